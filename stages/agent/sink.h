/*
 * sink -- one of the agent's own output streams, written by whole lines.
 *
 * A reader that does not read (a pager, a terminal that is held) must not stop the job: a line
 * that finds no room within a second is left out here, and the first one that fits again is
 * preceded by the number of those; a long one may be cut off, and counts as well. The rank's log
 * file has them all.
 */
#ifndef STAGES_AGENT_SINK_H
#define STAGES_AGENT_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sink {
    int fd;           /* borrows */
    bool shares_line; /* a terminal on which a progress bar may stand: a line wipes it first */
    bool blocked;     /* private to sink.c */
    bool begun;       /* private: a part of the line has been written */
    bool torn;        /* private: a line that found room for a part of it has not been ended */
    uint64_t left_out;
};

/* Writes prefix, `bytes` of `line` and a newline. Waits at most a second or so. */
void sink_write(struct sink *sink, const char *prefix, const char *line, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_AGENT_SINK_H */
