#include "scheduler/refusal.h"

#include <stdarg.h>
#include <stdio.h>

/* A longer name is cut: the end of the message is what is wrong. */
#define SOURCE_BYTES 512
#define WHO_BYTES    (SOURCE_BYTES + 64)

/* "rank 1", and of a plan from a file "a.csv, line 2: rank 1". */
static void name_rank(const struct plan *plan, int32_t rank, char *text, size_t text_bytes)
{
    if (plan->source != NULL) {
        (void)snprintf(text, text_bytes, "%.*s, line %d: rank %d", SOURCE_BYTES, plan->source,
                       plan->lines[rank].source_line, rank);
    } else {
        (void)snprintf(text, text_bytes, "rank %d", rank);
    }
}

enum status refusal_of_rank_at(const char *file, int line, const struct plan *plan, int32_t rank,
                               const char *format, ...)
{
    char what[STATUS_MESSAGE_BYTES];
    char who[WHO_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    name_rank(plan, rank, who, sizeof(who));
    return status_fail_at(file, line, STATUS_ERR_REFUSED, "plan refused: %s %s", who, what);
}

enum status refusal_at(const char *file, int line, const struct plan *plan, int32_t rank,
                       int32_t index, const char *format, ...)
{
    char what[STATUS_MESSAGE_BYTES];
    char who[WHO_BYTES];
    char action[32];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    (void)action_print(&plan->lines[rank].actions[index], action, sizeof(action));
    name_rank(plan, rank, who, sizeof(who));
    return status_fail_at(file, line, STATUS_ERR_REFUSED, "plan refused: %s, action %d (%s): %s",
                          who, index, action, what);
}
