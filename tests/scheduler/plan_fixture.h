/*
 * plan_fixture -- plans that the tests of scheduler/ look at.
 */
#ifndef TESTS_PLAN_FIXTURE_H
#define TESTS_PLAN_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One chunk a rank, depth 2, embedding sync. */
struct plan_shape fixture_shape(enum schedule schedule, int32_t ranks, int32_t microbatches,
                                bool early_send);

/* Fail the test where the plan cannot be made; plan_destroy() the result. */
struct plan *fixture_compute(enum schedule schedule, int32_t ranks, int32_t microbatches);
struct plan *fixture_lowered(enum schedule schedule, int32_t ranks, int32_t microbatches,
                             bool early_send);

/* The same with `chunks` a rank, lowered. */
struct plan *fixture_chunks(enum schedule schedule, int32_t ranks, int32_t microbatches,
                            int32_t chunks, bool early_send);

/* Interleaved, early send, with REDUCE and SYNC, lowered. */
struct plan *fixture_reduced(int32_t ranks, int32_t microbatches, int32_t chunks);

/* Fails the test unless the validator refuses the plan with these words; destroys it. */
void fixture_refused(struct plan *plan, const char *expected);

/* A compute-only plan from text. */
struct plan *fixture_text(const char *text);

/* The actions of a line with one blank between them; lent until the next call. */
const char *fixture_line(const struct plan *plan, int32_t rank);

/* Index of the action with this text in the line, or -1. */
int32_t fixture_find(const struct plan *plan, int32_t rank, const char *text);

/* Throws stderr away between the two calls, for loops in which refusals are expected. */
int fixture_mute(void);
void fixture_unmute(int saved);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_PLAN_FIXTURE_H */
