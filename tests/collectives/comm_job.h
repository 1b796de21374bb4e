/*
 * comm_job -- ranks of the data plane as processes, one of which may be killed.
 */
#ifndef TESTS_COLLECTIVES_COMM_JOB_H
#define TESTS_COLLECTIVES_COMM_JOB_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cancel.h"
#include "comm_rig.h"

#ifdef __cplusplus
extern "C" {
#endif

#define JOB_GOOD    0 /* how a child ends that found what it expects */
#define JOB_BAD     9
#define JOB_ENDLESS UINT32_MAX

/* A job of processes. */
struct job {
    struct comm_rig rig; /* the parent's; children work on their copies */
    pid_t children[RIG_RANKS_MOST];
    int orders[RIG_RANKS_MOST];  /* the parent writes a byte: this rank aborts */
    int reports[RIG_RANKS_MOST]; /* the parent reads a byte: this rank is in the middle */
    struct cancel *cancel;       /* shared by all processes */
};

/* What a child holds. */
struct child {
    struct job *job;
    struct rig_rank *self;
    int order;
    int report;
    uint32_t messages;
    size_t bytes;
};

typedef int (*child_fn)(struct child *child);

void job_init(struct job *job, int32_t world);

/* Forks a child a rank, which ends as `work` says, and at the latest after a minute. */
void job_start(struct job *job, child_fn work, uint32_t messages, size_t bytes);

/* Waits for the end of a rank's process and returns how it ended. */
int job_end_of(struct job *job, int32_t rank);

/* Nothing may be left in the job directory. */
void job_release(struct job *job);

/* In a child: says that it is in the middle; in the parent: waits for that. */
void job_report_middle(const struct child *child);
void job_await_middle(const struct job *job, int32_t rank);

/* Waits until both ranks' processes sleep at the same moment: none of them waits for the other. */
void job_await_asleep(const struct job *job, int32_t a, int32_t b);

/* Ends the test where a process has not ended so. */
void job_assert_good_end(int how);
void job_assert_killed(int how);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_COLLECTIVES_COMM_JOB_H */
