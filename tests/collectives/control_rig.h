/*
 * control_rig -- what the tests of the control plane stand on: a job directory of their own, and
 * ranks as threads of one process, each with its own control.
 */
#ifndef TESTS_COLLECTIVES_CONTROL_RIG_H
#define TESTS_COLLECTIVES_CONTROL_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/control.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RIG_RANKS_MOST 8

struct control_rig;

/* One rank. In threads of their own ranks cannot use cmocka's assertions, so they note what they
 * find, and the test looks when all have ended. */
struct rig_rank {
    struct control_rig *rig;
    int32_t rank;
    bool absent;                  /* the test leaves it out */
    struct control_config config; /* the test may change it before rig_run() */
    struct cancel cancel;
    struct control *control;
    enum status opened; /* what control_open() answered */
    char opened_text[STATUS_MESSAGE_BYTES];
    enum status ended; /* what the body answered; with its text */
    char ended_text[STATUS_MESSAGE_BYTES];
    enum status closed; /* what control_close() answered */
    char cause[CONTROL_TEXT_BYTES];
    int32_t cause_rank;
    int aborts; /* calls of on_abort; atomic */
};

/* What a rank does between open and close. */
typedef enum status (*rig_body_fn)(struct rig_rank *self);

struct control_rig {
    char directory[64]; /* 0700, the test's own */
    int32_t world;
    rig_body_fn body;
    int turns; /* a counter for the test, atomic */
    struct rig_rank ranks[RIG_RANKS_MOST];
};

/* Makes the directory and gives every rank the same configuration: fast beats, patient verdicts. */
void rig_init(struct control_rig *rig, int32_t world);

/* Runs open, `body` (may be NULL) where the open went well, and close in a thread for each rank
 * that is not absent. */
void rig_run(struct control_rig *rig, rig_body_fn body);

/* Fails the test unless open, body and close of every rank went well. */
void rig_assert_all_well(const struct control_rig *rig);

void rig_release(struct control_rig *rig);

/* A deadline far away, so that no test hangs. */
int64_t rig_deadline(void);

/* Waits until `flag` is at least `value`; false after a long time. */
bool rig_await(const int *flag, int value);

/* A round of one key: all ranks of the job give one. */
enum status rig_barrier(struct rig_rank *self, uint64_t number);

/* Fails with a note; for a body: `return rig_expect(condition, "text")`. */
enum status rig_expect(bool condition, const char *text);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_COLLECTIVES_CONTROL_RIG_H */
