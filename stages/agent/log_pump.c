#include "stages/agent/log_pump.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/* So that one talkative child does not keep the others waiting. */
#define READS_AT_ONCE 4

/* A dead child's pipe holds no more than the kernel lets it: 1 MiB unless the system was tuned. */
#define READS_AT_END 4096

void log_pump_open(const struct log_pump_config *config, struct log_pump *pump_out)
{
    pump_out->in = config->in;
    pump_out->file = config->file;
    pump_out->sink = config->sink;
    pump_out->tail = config->tail;
    pump_out->first_error_ns = INT64_MAX;
    pump_out->used = 0;
    (void)snprintf(pump_out->prefix, sizeof(pump_out->prefix), "%s", config->prefix);
}

static void write_file(struct log_pump *pump, const char *bytes, size_t count)
{
    while (count > 0 && pump->file >= 0) {
        ssize_t written = write(pump->file, bytes, count);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            log_warn("cannot write the log of %s: %s; the console goes on alone",
                     pump->prefix[0] != '\0' ? pump->prefix : "the process", strerror(errno));
            pump->file = -1;
            return;
        }
        bytes += written;
        count -= (size_t)written;
    }
}

static bool begins_with(const char *line, size_t bytes, const char *head)
{
    size_t length = strlen(head);

    return bytes >= length && memcmp(line, head, length) == 0;
}

/* `line` without its newline. */
static void move_line(struct log_pump *pump, const char *line, size_t bytes)
{
    bool named = begins_with(line, bytes, pump->prefix);
    size_t head = named ? strlen(pump->prefix) : 0;

    if (pump->first_error_ns == INT64_MAX && begins_with(line + head, bytes - head, "error: ")) {
        pump->first_error_ns = clock_now_ns();
    }
    if (pump->tail != NULL) {
        log_tail_add(pump->tail, line + head, bytes - head);
    }
    write_file(pump, line, bytes);
    write_file(pump, "\n", 1);
    sink_write(pump->sink, named ? "" : pump->prefix, line, bytes);
}

static void move_lines(struct log_pump *pump)
{
    size_t begin = 0;

    for (;;) {
        const char *end = memchr(pump->line + begin, '\n', pump->used - begin);

        if (end == NULL) {
            break;
        }
        move_line(pump, pump->line + begin, (size_t)(end - (pump->line + begin)));
        begin = (size_t)(end - pump->line) + 1;
    }
    if (begin == 0 && pump->used == LOG_PUMP_LINE_BYTES) {
        move_line(pump, pump->line, pump->used);
        begin = pump->used;
    }
    memmove(pump->line, pump->line + begin, pump->used - begin);
    pump->used -= begin;
}

void log_pump_close(struct log_pump *pump)
{
    if (pump->in >= 0) {
        (void)close(pump->in);
        pump->in = -1;
    }
}

static void end_stream(struct log_pump *pump)
{
    if (pump->used > 0) {
        move_line(pump, pump->line, pump->used);
        pump->used = 0;
    }
    log_pump_close(pump);
}

/* Whether more may lie ready. */
static bool read_once(struct log_pump *pump)
{
    ssize_t got = read(pump->in, pump->line + pump->used, LOG_PUMP_LINE_BYTES - pump->used);

    if (got > 0) {
        pump->used += (size_t)got;
        move_lines(pump);
        return true;
    }
    if (got < 0 && errno == EINTR) {
        return true;
    }
    if (got < 0 && errno == EAGAIN) {
        return false;
    }
    end_stream(pump);
    return false;
}

void log_pump_read(struct log_pump *pump)
{
    for (int i = 0; i < READS_AT_ONCE && pump->in >= 0; i++) {
        if (!read_once(pump)) {
            return;
        }
    }
}

void log_pump_finish(struct log_pump *pump)
{
    for (int i = 0; i < READS_AT_END && pump->in >= 0; i++) {
        if (!read_once(pump)) {
            break;
        }
    }
    if (pump->in >= 0) {
        end_stream(pump);
    }
}
