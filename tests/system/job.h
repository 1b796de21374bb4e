/*
 * job -- the real binary in a directory of its own, with a deadline, and what it left behind.
 *
 * Commands run in DIR through /bin/sh with WEIR naming the binary under test, LAUNCH the launcher
 * script, TEXT a small text, RUN a run directory, CONFIG a small configuration, and TMPDIR inside the
 * directory, which also marks every process that comes of the command. `./train` is the launcher that
 * trains CONFIG into RUN with the options that follow, `./rank` the binary that does so as one rank;
 * both are exec'ed.
 *
 * Every wait has a deadline, which only a failing test comes to: it is long, so that a machine that has
 * much else to do breaks none.
 */
#ifndef TESTS_SYSTEM_JOB_H
#define TESTS_SYSTEM_JOB_H

#include <sys/types.h>

#define JOB_OUTPUT_BYTES (1 << 18)

/* Of one end, or one text, that is waited for. */
#define JOB_DEADLINE_S 120.0

/* A case of cmocka's whose `job` (a pointer to one) is made before it and removed after it. */
#define JOB_TEST(test, job) \
    cmocka_unit_test_prestate_setup_teardown(test, job_set_up, job_tear_down, job)

struct job {
    char directory[64];
    pid_t shell; /* 0 where none runs */
    double
        mark_s; /* when it started, had the text that was awaited or got a signal, the last of these */
    /* Of the last command: */
    int code;       /* exit code, 128 + signal, or -1 where the deadline passed and it was killed */
    double seconds; /* from its mark to its end */
    char out[JOB_OUTPUT_BYTES];
    char err[JOB_OUTPUT_BYTES];
};

/* Makes the directory, the text and a configuration of 4 layers and 4 micro-batches; and kills what still
 * runs and removes all. 0, or cmocka counts the case as failed. */
int job_set_up(void **state);
int job_tear_down(void **state);

/* Runs `command` (printf form) to its end. */
void job_run(struct job *job, const char *command, ...) __attribute__((format(printf, 2, 3)));

/* The same in two parts, for what comes in between. */
void job_start(struct job *job, const char *command, ...) __attribute__((format(printf, 2, 3)));
void job_end(struct job *job);

/* Waits until standard output or standard error has `text`; fails the test, with all that was said,
 * where the command ends or JOB_DEADLINE_S pass before. */
void job_await(struct job *job, const char *text);

/* Waits until the started command, which is exec'ed, blocks `signal` in its main thread: then it
 * waits for it elsewhere. Fails as job_await() does. */
void job_await_blocked(struct job *job, int signal);

/* Sends `signal` to `process`, one of the running command's; fails the test where there is none. */
void job_signal(struct job *job, pid_t process, int signal);

/* The process that runs as `rank`; 0 where there is none. */
pid_t job_rank(const struct job *job, int rank);

/* Processes of this job that are still alive after `grace_s`. */
int job_processes(const struct job *job, double grace_s);

/* Names in its TMPDIR, the directory of all of a user's jobs itself not counted. */
int job_names(const struct job *job);

/* Whether `name` exists under the directory. */
int job_has(const struct job *job, const char *name);

/* Makes an empty file there; 0 where it could. */
int job_touch(const struct job *job, const char *name);

#endif /* TESTS_SYSTEM_JOB_H */
