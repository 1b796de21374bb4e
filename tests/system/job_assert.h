/*
 * job_assert -- what a test asks of a job's last command; whatever fails says all that it said.
 */
#ifndef TESTS_SYSTEM_JOB_ASSERT_H
#define TESTS_SYSTEM_JOB_ASSERT_H

#include "tests/system/job.h"

/* It ended with `code`. */
void job_assert_exit(const struct job *job, int code);

/* It ended with `code`, at most `seconds` after its mark (what was last awaited or sent, or its start), and
 * no process and no name of it is left. */
void job_assert_ended(const struct job *job, int code, double seconds);

/* No process, for which there is time to go, and no name is left. */
void job_assert_nothing_left(const struct job *job);

/* Standard error has `text`; standard output has it; neither has. */
void job_assert_says(const struct job *job, const char *text);
void job_assert_prints(const struct job *job, const char *text);
void job_assert_never_says(const struct job *job, const char *text);

/* It was refused: exit code 1, both texts in its standard error, and nothing made, RUN included. `what`
 * names it. */
void job_assert_refused(const struct job *job, const char *what, const char *first,
                        const char *second);

#endif /* TESTS_SYSTEM_JOB_ASSERT_H */
