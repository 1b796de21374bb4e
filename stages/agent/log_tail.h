/*
 * log_tail -- the last lines of a stream, kept for a report.
 */
#ifndef STAGES_AGENT_LOG_TAIL_H
#define STAGES_AGENT_LOG_TAIL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOG_TAIL_LINES      20
#define LOG_TAIL_LINE_BYTES 512 /* with the final zero; longer lines are cut */

/* Zero is an empty tail. */
struct log_tail {
    char lines[LOG_TAIL_LINES][LOG_TAIL_LINE_BYTES];
    uint64_t added; /* since the beginning; line k lies at k mod LOG_TAIL_LINES */
};

void log_tail_add(struct log_tail *tail, const char *line, size_t bytes);

/* How many lines are kept, and the `index`-th of them, oldest first; lends until the next add. */
size_t log_tail_count(const struct log_tail *tail);
const char *log_tail_line(const struct log_tail *tail, size_t index);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_AGENT_LOG_TAIL_H */
