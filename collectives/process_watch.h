/*
 * process_watch -- tells at once when one of several processes of this host has ended.
 *
 * A process is named by its pid as its own pid namespace numbers it; another namespace's numbers
 * mean nothing here, so process_space() says which one is ours, and only processes with the same
 * answer may be watched. Where the kernel has no process descriptors nothing is ever seen, and
 * heartbeats have to do.
 *
 * Threads: one owner thread.
 */
#ifndef COLLECTIVES_PROCESS_WATCH_H
#define COLLECTIVES_PROCESS_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct process_watch;

/* Watches up to `processes`, each under a tag of its own in 0 … processes-1. */
enum status process_watch_open(int32_t processes, struct process_watch **watch_out);

/* Starts to watch `pid` under `tag`. A process that has ended already is told by the next
 * process_watch_next(). A tag that is watched is ENSUREd against. */
void process_watch_add(struct process_watch *watch, int32_t tag, int64_t pid);

/* Stops; nothing where the tag is not watched. */
void process_watch_remove(struct process_watch *watch, int32_t tag);

/* Readable when process_watch_next() has something to tell; for a poll. */
int process_watch_fd(const struct process_watch *watch);

/* Takes one process that has ended; false where none has. Does not block. It is no longer watched.
 */
bool process_watch_next(struct process_watch *watch, int32_t *tag_out);

/* Nulls the caller's pointer; NULL is fine. */
void process_watch_close(struct process_watch **watch);

/* Names the pid namespace of this process; 0 where it has no name. */
uint64_t process_space(void);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_PROCESS_WATCH_H */
