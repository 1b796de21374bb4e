/*
 * log_pump -- moves one stream of one child, line by line, to the console and to its log file.
 *
 * A line goes out whole, so that the lines of several children never mix; a line longer than
 * LOG_PUMP_LINE_BYTES goes out in pieces of that size. On the console it gets the child's prefix
 * unless it begins with it already, as the lines of a child that names itself do. The file gets
 * every line as it came.
 *
 * Not thread-safe; the agent polls `in` and calls log_pump_read() where there is something.
 */
#ifndef STAGES_AGENT_LOG_PUMP_H
#define STAGES_AGENT_LOG_PUMP_H

#include <stddef.h>
#include <stdint.h>

#include "stages/agent/log_tail.h"
#include "stages/agent/sink.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LOG_PUMP_LINE_BYTES   ((size_t)65536)
#define LOG_PUMP_PREFIX_BYTES 32

struct log_pump_config {
    int in;                /* does not block; the pump owns it */
    int file;              /* borrows: opened for appending; -1: none */
    struct sink *sink;     /* borrows */
    const char *prefix;    /* copied; "" for none */
    struct log_tail *tail; /* borrows; NULL: none */
};

struct log_pump {
    int in; /* -1 once the stream has ended */
    int file;
    struct sink *sink;
    char prefix[LOG_PUMP_PREFIX_BYTES];
    struct log_tail *tail;
    int64_t first_error_ns; /* when the first line of level error came; INT64_MAX: none yet */
    size_t used;            /* of `line`: what has come of a line that has not ended */
    char line[LOG_PUMP_LINE_BYTES];
};

void log_pump_open(const struct log_pump_config *config, struct log_pump *pump_out);

/* Moves what lies ready, a bounded part of it, and closes at the end of the stream. */
void log_pump_read(struct log_pump *pump);

/* The child is gone: moves all that lies ready, the unfinished last line too, then closes. Does
 * not wait for others who hold the stream open. */
void log_pump_finish(struct log_pump *pump);

/* Closes the stream; safe where `in` is -1. */
void log_pump_close(struct log_pump *pump);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_AGENT_LOG_PUMP_H */
