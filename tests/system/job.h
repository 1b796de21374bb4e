/*
 * job -- the real binary in a directory of its own, with a deadline, and what it left behind.
 *
 * Commands run through /bin/sh with WEIR naming the binary under test, LAUNCH the launcher script,
 * TEXT a small text, RUN a run directory, CONFIG a small configuration, and TMPDIR inside the
 * directory, which also marks every process that comes of the command.
 */
#ifndef TESTS_SYSTEM_JOB_H
#define TESTS_SYSTEM_JOB_H

#include <sys/types.h>

#define JOB_OUTPUT_BYTES (1 << 18)

struct job {
    char directory[64];
    pid_t shell;
    double begin_s;
    /* Of the last command: */
    int code; /* exit code, 128 + signal, or -1 where the deadline passed and it was killed */
    double seconds;
    char out[JOB_OUTPUT_BYTES];
    char err[JOB_OUTPUT_BYTES];
};

/* Makes the directory, the text and a configuration of 4 layers and 4 micro-batches. */
void job_make(struct job *job);

/* Runs `command` (printf form) to its end. */
void job_run(struct job *job, double deadline_s, const char *command, ...)
    __attribute__((format(printf, 3, 4)));

/* The same in two parts: for signals in between. */
void job_start(struct job *job, const char *command, ...) __attribute__((format(printf, 2, 3)));
void job_end(struct job *job, double deadline_s);

/* Waits until standard output or standard error has `text`, at most `deadline_s`; 1 where one has.
 */
int job_await(struct job *job, const char *text, double deadline_s);

/* Seconds since the running command was started. */
double job_age_s(const struct job *job);

/* Waits until the started command, which is exec'ed, blocks `signal` in its main thread: then it
 * waits for it elsewhere. At most `deadline_s`; 1 where it does. */
int job_await_blocked(const struct job *job, int signal, double deadline_s);

/* The process that runs as `rank`; 0 where there is none. */
pid_t job_rank(const struct job *job, int rank);

/* Processes of this job that are still alive after `grace_s`. */
int job_processes(const struct job *job, double grace_s);

/* Names in its TMPDIR, the directory of all of a user's jobs itself not counted. */
int job_names(const struct job *job);

/* Fails the test where processes or names are left; gives processes up to 3 s to go. */
void job_assert_nothing_left(const struct job *job);

/* Fails the test, with all that the command said, where its standard error lacks `text`. */
void job_assert_says(const struct job *job, const char *text);

/* Whether `name` exists under the directory. */
int job_has(const struct job *job, const char *name);

/* Makes an empty file there; 0 where it could. */
int job_touch(const struct job *job, const char *name);

void job_remove(struct job *job);

#endif /* TESTS_SYSTEM_JOB_H */
