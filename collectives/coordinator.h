/*
 * coordinator -- rank 0's side of the control plane: hears every rank, answers all.
 *
 * It accepts each rank's HELLO, welcomes all when all are there, collects the values of a round and
 * answers them, watches who lives and who makes progress, and ends the job everywhere with the
 * first cause that it hears of. Rank 0's own main thread reaches it like everybody else, by
 * messages. What a stranger sends is dropped and told once in a while.
 *
 * Threads: the control thread of rank 0. Nothing here waits.
 */
#ifndef COLLECTIVES_COORDINATOR_H
#define COLLECTIVES_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/control.h"
#include "collectives/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

struct coordinator;

/* Where rank 0's own link connects: the same hub, no file. */
#define COORDINATOR_LOCAL_ENDPOINT "inproc://coordinator"

/* Binds in the job directory, at `endpoint`, and locally. Borrows `config` and what it points to
 * until the close. */
enum status coordinator_open(struct wire_hub *hub, const struct control_config *config,
                             const char *endpoint, struct coordinator **coordinator_out);

/* Writes what a poll must wait for: two items. */
void coordinator_items(const struct coordinator *coordinator, struct wire_item *items);

/* Does all there is to do at `now_ns`: letters, ended processes, beats, verdicts. A failure is one
 * of this process and ends it. */
enum status coordinator_serve(struct coordinator *coordinator, int64_t now_ns);

/* When it wants to serve again, letters apart. */
int64_t coordinator_due_ns(const struct coordinator *coordinator);

/* Whether nobody needs it any more: all ranks have left or are lost, or the job is aborted and
 * those who may still come to a refused start have had their time. */
bool coordinator_is_done(const struct coordinator *coordinator, int64_t now_ns);

/* Nulls the caller's pointer; NULL is fine. What was said last goes out while the hub closes. */
void coordinator_close(struct coordinator **coordinator);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_COORDINATOR_H */
