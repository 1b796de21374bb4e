/*
 * guard -- the process that cleans up after an agent that was killed.
 *
 * The kernel kills the agent's children when the agent dies, but not what they started. The guard
 * is a second process of the agent that sleeps on a pipe, knows the children's process groups, and
 * kills those groups when the pipe closes without a word, and sweeps the job directory that they
 * left. Signals of a terminal do not reach it.
 */
#ifndef STAGES_AGENT_GUARD_H
#define STAGES_AGENT_GUARD_H

#include <sys/types.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct guard {
    pid_t pid; /* 0: none */
    int line;  /* the pipe to it, -1: none */
};

/* Groups that one guard can watch. */
#define GUARD_GROUPS_MOST 4096

/* Forks. Before the children, so that they inherit nothing from it. */
enum status guard_start(struct guard *guard_out);

/* `group` has been started; `group` has ended and must not be killed any more, because its number
 * may soon belong to somebody else. */
void guard_add(const struct guard *guard, pid_t group);
void guard_remove(const struct guard *guard, pid_t group);

/* Ends the guard and reaps it. Safe twice. */
void guard_stop(struct guard *guard);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_AGENT_GUARD_H */
