#include "stages/agent/sink.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 1000

/* To the line's beginning, and wipe to its end. */
static const char wipe[] = "\r\033[K";

static bool has_room(int fd, int timeout_ms)
{
    struct pollfd wanted = {.fd = fd, .events = POLLOUT};
    int ready = 0;

    do {
        ready = poll(&wanted, 1, timeout_ms);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* A stream that polls as writable takes PIPE_BUF bytes without blocking. What cannot be written
 * because nobody reads any more is dropped: there is nowhere to report it. */
static bool write_bytes(struct sink *sink, const char *bytes, size_t count)
{
    while (count > 0) {
        size_t part = count < PIPE_BUF ? count : PIPE_BUF;
        ssize_t written = 0;

        if (!has_room(sink->fd, sink->blocked ? 0 : PATIENCE_MS)) {
            sink->blocked = true;
            sink->torn |= sink->begun;
            return false;
        }
        sink->blocked = false;
        written = write(sink->fd, bytes, part);
        if (written < 0 && (errno == EINTR || errno == EAGAIN)) {
            continue;
        }
        if (written < 0) {
            return true;
        }
        sink->begun = true;
        bytes += written;
        count -= (size_t)written;
    }
    return true;
}

static bool write_line(struct sink *sink, const char *prefix, const char *line, size_t bytes)
{
    const char *lead = sink->shares_line ? wipe : "";
    char whole[PIPE_BUF];
    int used = snprintf(whole, sizeof(whole), "%s%s", lead, prefix);

    sink->begun = false;
    if (sink->torn && !write_bytes(sink, "\n", 1)) {
        return false;
    }
    sink->torn = false;
    sink->begun = false;
    if (used >= 0 && (size_t)used + bytes + 1 <= sizeof(whole)) {
        memcpy(whole + used, line, bytes);
        whole[(size_t)used + bytes] = '\n';
        return write_bytes(sink, whole, (size_t)used + bytes + 1);
    }
    return write_bytes(sink, lead, strlen(lead)) && write_bytes(sink, prefix, strlen(prefix)) &&
           write_bytes(sink, line, bytes) && write_bytes(sink, "\n", 1);
}

void sink_write(struct sink *sink, const char *prefix, const char *line, size_t bytes)
{
    if (sink->left_out > 0) {
        char note[96];
        int used = snprintf(note, sizeof(note), "(%llu lines left out here; the logs have them)",
                            (unsigned long long)sink->left_out);

        if (used < 0 || !write_line(sink, "", note, (size_t)used)) {
            sink->left_out++;
            return;
        }
        sink->left_out = 0;
    }
    if (!write_line(sink, prefix, line, bytes)) {
        sink->left_out++;
    }
}
