/*
 * prove -- from a shape to the plan that may run: generated or read, lowered, validated.
 *
 * The one way in which a launcher and every rank make their plan, so that all make the same one
 * and none runs a plan that was not proved.
 */
#ifndef SCHEDULER_PROVE_H
#define SCHEDULER_PROVE_H

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The compute-only plan: generated, or for SCHEDULE_FILE read from `path`, which stands in messages
 * and is not looked at for any other schedule. The caller owns *compute_out. STATUS_ERR_REFUSED as
 * plan_generate() and plan_text_read(). */
enum status plan_make(const struct plan_shape *shape, const char *path, struct plan **compute_out);

/* The same, lowered and validated. The caller owns *lowered_out. STATUS_ERR_REFUSED as plan_make(),
 * plan_lower() and plan_validate(). */
enum status plan_prove(const struct plan_shape *shape, const char *path, struct plan **lowered_out);

/* The same, and no line kept but that of `rank` (plan_keep_line()): most schedules need memory for one line
 * at a time, and for the proof. */
enum status plan_prove_keeping(const struct plan_shape *shape, const char *path, int32_t rank,
                               struct plan **lowered_out);

/* The line of `rank` as it stands in the plan that plan_prove() makes, with the buffers of its chunks and of
 * those that it sends to, and nothing of the others. Not proved: for a rank that compares its hash with one
 * whose plan was (plan_line_hash()). */
enum status plan_make_line(const struct plan_shape *shape, const char *path, int32_t rank,
                           struct plan **lowered_out);

/* A compute-only plan that was made elsewhere, lowered and validated; takes *compute, which is NULL
 * afterwards, also on an error. */
enum status plan_prove_made(struct plan **compute, struct plan **lowered_out);

/* The forward-only plan on the placement of `training`, lowered and validated. */
enum status plan_prove_evaluation(const struct plan *training, struct plan **lowered_out);

/* That as plan_prove_keeping() and as plan_make_line() have the one of training. */
enum status plan_prove_evaluation_keeping(const struct plan *training, int32_t rank,
                                          struct plan **lowered_out);
enum status plan_make_evaluation_line(const struct plan *training, int32_t rank,
                                      struct plan **lowered_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PROVE_H */
