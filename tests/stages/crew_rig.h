/*
 * crew_rig -- a crew in a process of its own, as the agent runs it, with shell scripts in the place
 * of stage processes.
 *
 * What the crew writes comes back through pipes. Its working directory, which is also where its logs
 * go, is a new one. The test program is the subreaper of all that it starts (crew_rig_adopt()), so
 * that none is left exactly when there is nobody to wait for.
 */
#ifndef TESTS_STAGES_CREW_RIG_H
#define TESTS_STAGES_CREW_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CREW_RIG_TEXT_BYTES 65536

/* crew_rig_finish(): this plus the signal that killed the agent. */
#define CREW_RIG_SIGNALLED 1000

/* crew_rig_finish(): crew_create() or crew_run() failed. */
#define CREW_RIG_REFUSED 99

struct crew_rig_setup {
    const char *script; /* of /bin/sh, for every rank */
    int32_t processes;
    double grace_s;
    bool keeps_stdout;
    bool truncate_logs;
    bool ignores_hup;
    bool leaves_stderr; /* nobody reads it from the beginning */
};

struct crew_rig {
    char dir[64];
    pid_t pid; /* the agent */
    int out;
    int err;
    char out_text[CREW_RIG_TEXT_BYTES];
    char err_text[CREW_RIG_TEXT_BYTES];
};

/* Whether all that this program starts comes back to it. Once, before the tests. */
bool crew_rig_adopt(void);

/* Asserts that it works; so do the others. */
void crew_rig_start_as(struct crew_rig *rig, const struct crew_rig_setup *setup);

/* With all else as it is by default. */
void crew_rig_start(struct crew_rig *rig, const char *script, int32_t processes, double grace_s);

/* Again, in the same directory; the first has been finished. */
void crew_rig_start_again(struct crew_rig *rig, const struct crew_rig_setup *setup);

/* Reads stderr until `part` has come `count` times. */
void crew_rig_wait_for(struct crew_rig *rig, const char *part, int count);

/* Reads both streams to their ends, then gives the exit code of the agent: crew_outcome_code(), or
 * one of the above. After a failure `err_text` ends with `first: rank N` and the `tail: ` lines. */
int crew_rig_finish(struct crew_rig *rig);

/* The log of a rank into `text` of CREW_RIG_TEXT_BYTES. */
void crew_rig_read_log(const struct crew_rig *rig, int rank, char *text);

/* Removes the logs and the directory; waits until no process is left. */
void crew_rig_remove(const struct crew_rig *rig);

void crew_rig_nothing_is_left(void);

int crew_rig_count(const char *text, const char *part);

#endif /* TESTS_STAGES_CREW_RIG_H */
