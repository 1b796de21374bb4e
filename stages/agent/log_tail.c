#include "stages/agent/log_tail.h"

#include <string.h>

#include "base/check.h"

void log_tail_add(struct log_tail *tail, const char *line, size_t bytes)
{
    char *kept = tail->lines[tail->added % LOG_TAIL_LINES];
    size_t room = bytes < LOG_TAIL_LINE_BYTES - 1 ? bytes : LOG_TAIL_LINE_BYTES - 1;

    memcpy(kept, line, room);
    kept[room] = '\0';
    tail->added++;
}

size_t log_tail_count(const struct log_tail *tail)
{
    return tail->added < LOG_TAIL_LINES ? (size_t)tail->added : LOG_TAIL_LINES;
}

const char *log_tail_line(const struct log_tail *tail, size_t index)
{
    size_t count = log_tail_count(tail);

    ENSURE(index < count, "line %zu of %zu", index, count);
    return tail->lines[(tail->added - count + index) % LOG_TAIL_LINES];
}
