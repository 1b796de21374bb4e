/*
 * refusal -- the message about an action that is wrong in a plan.
 *
 * Every refusal of lowering and validation reads the same way: rank, index in its line, the action
 * itself, what is wrong; and file and line where the plan was read from one.
 */
#ifndef SCHEDULER_REFUSAL_H
#define SCHEDULER_REFUSAL_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Records and logs "plan refused: rank 1, action 7 (1B3): ..." and returns STATUS_ERR_REFUSED. */
enum status refusal_at(const char *file, int line, const struct plan *plan, int32_t rank,
                       int32_t index, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 6, 7)))
#endif
    ;

/* The same where no action is to blame: "plan refused: rank 1 has no F of ...". */
enum status refusal_of_rank_at(const char *file, int line, const struct plan *plan, int32_t rank,
                               const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 5, 6)))
#endif
    ;

#define REFUSAL_OF_RANK(plan, rank, ...) \
    refusal_of_rank_at(__FILE__, __LINE__, (plan), (rank), __VA_ARGS__)

#define REFUSAL(plan, rank, index, ...) \
    refusal_at(__FILE__, __LINE__, (plan), (rank), (index), __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_REFUSAL_H */
