/*
 * proof -- that a lowered plan is right, line by line: a line may be gone when the next one comes.
 *
 * All that plan_validate() checks, in another order: everything that one line shows while that line is in
 * the cache, what two lines have to agree on by a note of each message, and what needs all of them
 * by their course (scheduler/course.h). A plan that passes is proved. One that does not may be wrong
 * or only unusual, and which refusal it gets depends on the order of the checks: plan_validate() says.
 */
#ifndef SCHEDULER_PROOF_H
#define SCHEDULER_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/course.h"
#include "scheduler/lane_order.h"
#include "scheduler/lifetime.h"
#include "scheduler/plan.h"
#include "scheduler/plan_index.h"

#ifdef __cplusplus
extern "C" {
#endif

struct proof {
    const struct plan *plan; /* borrows */
    struct plan_index index; /* of one line */
    struct lane_order lanes;
    struct lifetimes lifetimes;
    struct course course;
    int32_t
        *sequences; /* owns; [(direction · stages + stage) · m + micro-batch]: place in its lane of
                           the message into `stage`, as the end that came first has it */
};

/* Borrows `plan` while the proof lives: its placement and buffers now, each line when it is added.
 * STATUS_ERR_REFUSED where the buffers cannot be. */
enum status proof_init(struct proof *proof, const struct plan *plan);

/* Lines in the order of ranks, each once. STATUS_ERR_REFUSED where it is not proved; nothing but
 * proof_release() may follow. */
enum status proof_add_line(struct proof *proof, int32_t rank);

/* Takes over what `other`, of the same plan, has of lines that were added to it and not to this one; nothing but
 * proof_release() may follow there. STATUS_ERR_REFUSED where the ends of a message do not agree. */
enum status proof_join(struct proof *proof, const struct proof *other);

/* The end, when all lines were added. STATUS_ERR_REFUSED likewise. */
enum status proof_finish(const struct proof *proof);

/* Safe on a zeroed proof, and twice. */
void proof_release(struct proof *proof);

/* The whole of a plan whose lines are all there. Logs nothing. */
bool proof_holds(const struct plan *plan);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PROOF_H */
