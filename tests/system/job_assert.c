#include "tests/system/job_assert.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

/* What is killed may have to wait for a processor to die on. */
#define GRACE_S 10.0

void job_assert_exit(const struct job *job, int code)
{
    if (job->code != code) {
        fail_msg("exit code %d, expected %d\n%s%s", job->code, code, job->out, job->err);
    }
}

void job_assert_ended(const struct job *job, int code, double seconds)
{
    job_assert_exit(job, code);
    if (job->seconds > seconds) {
        fail_msg("it took %.1f s, expected at most %.1f\n%s%s", job->seconds, seconds, job->out,
                 job->err);
    }
    job_assert_nothing_left(job);
}

void job_assert_nothing_left(const struct job *job)
{
    int processes = job_processes(job, GRACE_S);
    int names = job_names(job);

    if (processes != 0 || names != 0) {
        fail_msg("%d processes and %d names are left\n%s%s", processes, names, job->out, job->err);
    }
}

static void expect(const struct job *job, const char *stream, const char *text)
{
    if (strstr(stream, text) == NULL) {
        fail_msg("expected \"%s\" in the %s of:\n%s%s", text,
                 stream == job->err ? "errors" : "output", job->out, job->err);
    }
}

void job_assert_says(const struct job *job, const char *text)
{
    expect(job, job->err, text);
}

void job_assert_prints(const struct job *job, const char *text)
{
    expect(job, job->out, text);
}

void job_assert_never_says(const struct job *job, const char *text)
{
    if (strstr(job->out, text) != NULL || strstr(job->err, text) != NULL) {
        fail_msg("expected no \"%s\" in:\n%s%s", text, job->out, job->err);
    }
}

void job_assert_refused(const struct job *job, const char *what, const char *first,
                        const char *second)
{
    if (job->code != 1 || strstr(job->err, first) == NULL || strstr(job->err, second) == NULL) {
        fail_msg("%s: exit code %d, expected 1 with \"%s\" and \"%s\" in:\n%s", what, job->code,
                 first, second, job->err);
    }
    if (job_has(job, "run")) {
        fail_msg("%s: it has made its run directory", what);
    }
    job_assert_nothing_left(job);
}
