/*
 * mutant_verdict -- what the validator says of a mutant, and the kind of its reason.
 */
#ifndef TESTS_STAGES_MUTANT_VERDICT_H
#define TESTS_STAGES_MUTANT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "tests/stages/mutant.h"

/* kind, text */
#define REASON_TABLE(X)                                                                  \
    X(ACCEPTED, "accepted")                                                              \
    X(FORM, "form")         /* an action that cannot be, by itself */                    \
    X(COMPLETE, "complete") /* something is missing, twice, or has no place */           \
    X(ORDER, "order")       /* something stands before or does not name what it needs */ \
    X(WAITS, "waits")       /* a message names what it may not wait for */               \
    X(TAGS, "tags")         /* sent in one order, received in another */                 \
    X(COUNT, "count")       /* numbers of buffers that cannot be */                      \
    X(DEADLOCK, "deadlock")                                                              \
    X(LIFETIME, "lifetime")     /* a buffer in use, or not the one */                    \
    X(ACCUMULATE, "accumulate") /* sums out of order */                                  \
    X(END, "end")               /* SYNC, REDUCE, STEP out of place */                    \
    X(IDLE, "idle field")       /* a number where this kind of action has none */        \
    X(UNKNOWN, "unknown")       /* a refusal that this test does not know: add it */

enum reason {
#define X(kind, text) REASON_##kind,
    REASON_TABLE(X)
#undef X
    REASONS
};

struct verdict {
    enum reason reason;
    char message[STATUS_MESSAGE_BYTES]; /* "" where accepted */
};

/* Asks plan_validate(). */
void mutant_judge(const struct plan *plan, struct verdict *verdict_out);

/* Why a refusal cannot show in a run: kind, text */
#define EXCUSE_TABLE(X)                                                                           \
    X(NONE, "none")                                                                               \
    X(IDLE, "a field that nobody reads")                                                          \
    X(IMPLIED,                                                                                    \
      "what is not named is implied") /* by the order of the line, other dependencies or \
                                                  messages */        \
    X(LARGER, "more buffers than needed")                                                         \
    X(WAITS, "a message that waits for one") /* needs more than one mutation to block the line */ \
    X(PLACE,                                                                                      \
      "SYNC or REDUCE before the end") /* costs time alone, where nobody needs what follows \
                                               */

enum excuse {
#define X(kind, text) EXCUSE_##kind,
    EXCUSE_TABLE(X)
#undef X
    EXCUSES
};

/* Found from the mutation and the plan itself as far as that can be: a field that its kind of action
 * has not, a count that grew, a lost dependency that still holds. */
enum excuse mutant_excuse(const struct mutant *mutant, const struct verdict *verdict);

/* "implied"; a static string. */
const char *excuse_text(enum excuse excuse);

/* "deadlock"; a static string. */
const char *reason_text(enum reason reason);

#endif /* TESTS_STAGES_MUTANT_VERDICT_H */
