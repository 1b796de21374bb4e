/*
 * embedding_rig -- what the tests of embedding_sync stand on: a directory, a pair of ends in threads
 * that look at everything that arrives, and an end that says what the test wants it to say.
 */
#ifndef TESTS_COLLECTIVES_EMBEDDING_RIG_H
#define TESTS_COLLECTIVES_EMBEDDING_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/comm.h"
#include "collectives/embedding_sync.h"
#include "collectives/message.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMBEDDING_PATIENCE_S 20.0

/* Of each test: a directory, and its end, with nothing left in it but the pair's socket. */
int embedding_make_directory(void **state);
int embedding_remove_directory(void **state);

struct embedding_sync_config embedding_configure(enum embedding_role role, size_t elems,
                                                 const struct cancel *cancel);

/* One end of the pair in a thread of its own, which notes the first thing that went wrong. */
struct embedding_end {
    enum embedding_role role;
    size_t elems;
    size_t weight_bytes; /* of an element of the weights */
    bool reads;          /* the data plane carries the bytes */
    bool trickles;       /* what it sends comes to its place bit by bit */
    int64_t steps;
    int64_t skip_every; /* of so many steps one brings no weights back; 0: none */
    struct cancel *cancel;
    int64_t *steps_ended; /* by the owner; shared by both ends, atomic */
    const char *wrong;    /* NULL where all went well */
    enum status opened;
    char text[STATUS_MESSAGE_BYTES];
};

/* Runs both ends to their end. */
void embedding_run_pair(struct embedding_end *owner, struct embedding_end *head);

/* Runs `steps` steps with weights of `weight_bytes` an element and fails the test where anything is not as it was sent. */
void embedding_expect_steps(bool reads, size_t elems, size_t weight_bytes, int64_t steps,
                            int64_t skip_every);

/* The same over ZeroMQ, of what comes to its place while it is sent. */
void embedding_expect_trickle(size_t elems, size_t weight_bytes, int64_t steps);

/* Where what the end sends lies in its shared block. */
size_t embedding_offset(enum embedding_role role);

/* The end's data plane: a group of both, and a block that ends `bytes` behind the offset. Blocks
 * until the other end has called it too. */
enum status embedding_join(enum embedding_role role, size_t bytes, struct comm **comm_out);

/* The other end, by hand. */
struct embedding_puppet {
    void *context;
    void *socket;
    struct message_pack *pack;
};

void embedding_puppet_open(struct embedding_puppet *puppet, bool binds);
void embedding_puppet_close(struct embedding_puppet *puppet);
void embedding_puppet_begin(struct embedding_puppet *puppet, const char *kind);
void embedding_puppet_send(struct embedding_puppet *puppet, const void *attachment,
                           size_t attachment_bytes);
void embedding_puppet_hello(struct embedding_puppet *puppet, size_t elems, const char *sends,
                            const char *carrier, uint64_t offset);

/* Waits for the next letter, which has one part, and throws it away. */
void embedding_puppet_skip(struct embedding_puppet *puppet);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_COLLECTIVES_EMBEDDING_RIG_H */
