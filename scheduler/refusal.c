#include "scheduler/refusal.h"

#include <stdarg.h>
#include <stdio.h>

enum status refusal_at(const char *file, int line, const struct plan *plan, int32_t rank,
                       int32_t index, const char *format, ...)
{
    char what[STATUS_MESSAGE_BYTES];
    char action[32];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    (void)action_print(&plan->lines[rank].actions[index], action, sizeof(action));
    return status_fail_at(file, line, STATUS_ERR_REFUSED,
                          "plan refused: rank %d, action %d (%s): %s", rank, index, action, what);
}
