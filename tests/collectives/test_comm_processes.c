/* The data plane between processes, one of which may be killed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm_job.h"

#define LANDINGS      2
#define MIDDLE        400
#define SHM_BYTES     (1 << 20)
#define LARGE_BYTES   (8 << 20) /* of one landing buffer, where /dev/shm has room for none */
#define BYTES         4096
#define EXIT_NO_MOUNT 77

enum {
    IN, /* lane F from the previous rank of the ring */
    OUT /* lane F to the next one */
};

/* ---- In the children. ---- */

static enum status connect_ring(struct child *child)
{
    struct rig_rank *self = child->self;
    int32_t world = self->rig->world;
    int32_t previous = (self->rank + world - 1) % world;

    TRY(rig_open(self));
    TRY(rig_lane(self, OUT, (self->rank + 1) % world, 0, true, LANDINGS, child->bytes));
    TRY(rig_lane(self, IN, previous, 0, false, LANDINGS, child->bytes));
    return comm_connect(self->comm, child->job->cancel, self->rig->deadline_ns);
}

/* Sends message k to the next rank and takes message k of the rank before. */
static enum status turn(struct child *child, uint64_t *out, uint32_t k)
{
    struct rig_rank *self = child->self;
    const struct cancel *cancel = child->job->cancel;
    int32_t world = self->rig->world;
    int32_t landing = (int32_t)(k % LANDINGS);
    uint32_t previous = (uint32_t)((self->rank + world - 1) % world);
    struct lane *in = self->lanes[IN];

    TRY(comm_wait_sent(self->lanes[OUT], cancel, self->rig->deadline_ns));
    rig_write(out, child->bytes, (uint32_t)self->rank, k);
    TRY(comm_post_send(self->lanes[OUT], landing, k, out, child->bytes));
    TRY(comm_wait_arrival(in, landing, k, cancel, self->rig->deadline_ns));
    if (!rig_reads(comm_landing(in, landing), child->bytes, previous, k)) {
        return status_fail(STATUS_ERR_FORMAT, "message %u of rank %u is not what was sent", k,
                           previous);
    }
    comm_credit(in, landing);
    return STATUS_OK;
}

static enum status run_ring(struct child *child)
{
    uint64_t *out = malloc(child->bytes);
    enum status status = out == NULL ? STATUS_ERR_NO_MEMORY : connect_ring(child);

    for (uint32_t k = 0; k < child->messages && status >= 0; k++) {
        status = turn(child, out, k);
        if (k == MIDDLE && status >= 0) {
            job_report_middle(child);
        }
    }
    if (status >= 0) {
        status = comm_wait_sent(child->self->lanes[OUT], child->job->cancel,
                                child->self->rig->deadline_ns);
    }
    free(out);
    return status;
}

/* Expects to come to the end. */
static int ring_to_the_end(struct child *child)
{
    enum status status = run_ring(child);

    comm_close(&child->self->comm);
    return status == STATUS_OK ? JOB_GOOD : JOB_BAD;
}

/* Expects that the job is given up while it runs. */
static int ring_until_cancelled(struct child *child)
{
    enum status status = run_ring(child);

    comm_close(&child->self->comm);
    return status == STATUS_ERR_CANCELLED ? JOB_GOOD : JOB_BAD;
}

/* As a control thread does: hears that the job has failed, and frees the main thread. */
static void *abort_on_order(void *context)
{
    struct child *child = context;
    char byte;

    if (read(child->order, &byte, 1) == 1) {
        comm_abort(child->self->comm);
    }
    return NULL;
}

static int ring_until_aborted(struct child *child)
{
    pthread_t thread;
    enum status status = connect_ring(child);
    uint64_t out[BYTES / 8];
    /* Detached: in a rank that a peer has freed it hears nothing until the process ends. */
    bool started = status >= 0 && pthread_create(&thread, NULL, abort_on_order, child) == 0 &&
                   pthread_detach(thread) == 0;

    for (uint32_t k = 0; started && k < child->messages && status >= 0; k++) {
        status = turn(child, out, k);
        if (k == MIDDLE && status >= 0) {
            job_report_middle(child);
        }
    }
    return started && status == STATUS_ERR_CANCELLED ? JOB_GOOD : JOB_BAD;
}

/* All processes are one group; `bytes` of data each. */
static enum status connect_group(struct child *child)
{
    struct rig_rank *self = child->self;

    TRY(rig_open(self));
    TRY(comm_share(self->comm, child->bytes));
    TRY(rig_group(self, 0, 0, 1, self->rig->world));
    return comm_connect(self->comm, child->job->cancel, self->rig->deadline_ns);
}

static enum status combine(struct child *child, uint32_t k)
{
    const int32_t ranks[RIG_RANKS_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct rig_rank *self = child->self;
    float *data = comm_shared(self->comm);
    size_t elems = child->bytes / sizeof(float);

    rig_write_floats(data, 0, elems, self->rank, k);
    TRY(comm_all_reduce(self->groups[0], data, elems, COMM_SUM, child->job->cancel,
                        self->rig->deadline_ns));
    if (!rig_reads_sum(data, 0, elems, ranks, self->rig->world, k)) {
        return status_fail(STATUS_ERR_FORMAT, "sum %u is not what was to be summed", k);
    }
    return STATUS_OK;
}

static enum status combine_many(struct child *child)
{
    enum status status = connect_group(child);

    for (uint32_t k = 0; k < child->messages && status >= 0; k++) {
        status = combine(child, k);
        if (k == MIDDLE && status >= 0) {
            job_report_middle(child);
        }
    }
    comm_close(&child->self->comm);
    return status;
}

static int combine_to_the_end(struct child *child)
{
    return combine_many(child) == STATUS_OK ? JOB_GOOD : JOB_BAD;
}

static int combine_until_cancelled(struct child *child)
{
    return combine_many(child) == STATUS_ERR_CANCELLED ? JOB_GOOD : JOB_BAD;
}

/* A user that is not root needs a user namespace for it, in which it stays who it is. */
static bool enter_mount_namespace(void)
{
    char map[64];
    int fd;
    ssize_t wrote;

    if (unshare(CLONE_NEWNS) == 0) {
        return true;
    }
    (void)snprintf(map, sizeof(map), "%ju %ju 1", (uintmax_t)geteuid(), (uintmax_t)geteuid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return false;
    }
    fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    wrote = fd >= 0 ? write(fd, map, strlen(map)) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    return wrote == (ssize_t)strlen(map);
}

static bool mount_small_shm(void)
{
    struct statvfs found;

    return enter_mount_namespace() && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") == 0 &&
           statvfs("/dev/shm", &found) == 0 && found.f_blocks * found.f_frsize == SHM_BYTES;
}

static int names_in(const char *path)
{
    DIR *directory = opendir(path);
    int names = 0;

    if (directory == NULL) {
        return -1;
    }
    for (const struct dirent *entry = readdir(directory); entry != NULL;
         entry = readdir(directory)) {
        names += entry->d_name[0] != '.';
    }
    (void)closedir(directory);
    return names;
}

/* The process has a /dev/shm of its own, in which it must never make a name. */
static int ring_beside_a_small_shm(struct child *child)
{
    if (!mount_small_shm()) {
        cancel_request(child->job->cancel); /* the others need not wait for this rank */
        return EXIT_NO_MOUNT;
    }
    if (run_ring(child) != STATUS_OK || names_in("/dev/shm") != 0) {
        return JOB_BAD;
    }
    comm_close(&child->self->comm);
    return names_in("/dev/shm") == 0 ? JOB_GOOD : JOB_BAD;
}

/* Past this limit the kernel would send SIGXFSZ. */
static int connect_under_a_file_size_limit(struct child *child)
{
    const struct rlimit limit = {.rlim_cur = SHM_BYTES, .rlim_max = SHM_BYTES};

    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || connect_ring(child) != STATUS_ERR_NO_MEMORY ||
        strstr(status_last()->message, "ulimit -f) is 1048576 bytes") == NULL) {
        return JOB_BAD;
    }
    comm_close(&child->self->comm);
    return JOB_GOOD;
}

/* ---- Tests. ---- */

static void rings_of_two_to_eight_processes_pass_every_message(void **state)
{
    const int32_t worlds[] = {2, 3, 8};

    (void)state;
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        struct job job;

        job_init(&job, worlds[i]);
        job_start(&job, ring_to_the_end, 1000, BYTES);
        for (int32_t rank = 0; rank < worlds[i]; rank++) {
            job_assert_good_end(job_end_of(&job, rank));
        }
        job_release(&job);
    }
}

static void groups_of_two_to_eight_processes_have_every_sum(void **state)
{
    const int32_t worlds[] = {2, 3, 4, 5, 8};

    (void)state;
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        struct job job;

        job_init(&job, worlds[i]);
        job_start(&job, combine_to_the_end, 300, BYTES);
        for (int32_t rank = 0; rank < worlds[i]; rank++) {
            job_assert_good_end(job_end_of(&job, rank));
        }
        job_release(&job);
    }
}

static void check_kill(child_fn work)
{
    struct job job;

    job_init(&job, 4);
    job_start(&job, work, JOB_ENDLESS, BYTES);
    job_await_middle(&job, 2);
    assert_int_equal(kill(job.children[2], SIGKILL), 0);
    job_assert_killed(job_end_of(&job, 2));
    cancel_request(job.cancel);
    for (int32_t rank = 0; rank < 4; rank++) {
        if (rank != 2) {
            job_assert_good_end(job_end_of(&job, rank));
        }
    }
    job_release(&job);
}

static void when_a_rank_is_killed_cancel_frees_all_others(void **state)
{
    (void)state;
    check_kill(ring_until_cancelled);
    check_kill(combine_until_cancelled);
}

static void when_a_rank_is_killed_an_abort_frees_the_rank_and_its_peers(void **state)
{
    struct job job;

    (void)state;
    job_init(&job, 4);
    job_start(&job, ring_until_aborted, JOB_ENDLESS, BYTES);
    job_await_middle(&job, 2);
    assert_int_equal(kill(job.children[2], SIGKILL), 0);
    job_assert_killed(job_end_of(&job, 2));
    /* Rank 0 has lanes with 1 and 3, and tells both. */
    assert_int_equal(write(job.orders[0], "a", 1), 1);
    job_assert_good_end(job_end_of(&job, 0));
    job_assert_good_end(job_end_of(&job, 1));
    job_assert_good_end(job_end_of(&job, 3));
    job_release(&job);
}

static void the_size_of_dev_shm_does_not_matter_and_no_name_is_made_there(void **state)
{
    struct job job;
    int hows[2];

    (void)state;
    job_init(&job, 2);
    job_start(&job, ring_beside_a_small_shm, 20, LARGE_BYTES);
    for (int32_t rank = 0; rank < 2; rank++) {
        hows[rank] = job_end_of(&job, rank);
    }
    job_release(&job);
    for (int32_t rank = 0; rank < 2; rank++) {
        if (WIFEXITED(hows[rank]) && WEXITSTATUS(hows[rank]) == EXIT_NO_MOUNT) {
            skip();
        }
        job_assert_good_end(hows[rank]);
    }
}

static void a_file_size_limit_is_a_refusal_and_no_signal(void **state)
{
    struct job job;

    (void)state;
    job_init(&job, 2);
    job_start(&job, connect_under_a_file_size_limit, 1, LARGE_BYTES);
    job_assert_good_end(job_end_of(&job, 0));
    job_assert_good_end(job_end_of(&job, 1));
    job_release(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_of_two_to_eight_processes_pass_every_message),
        cmocka_unit_test(groups_of_two_to_eight_processes_have_every_sum),
        cmocka_unit_test(when_a_rank_is_killed_cancel_frees_all_others),
        cmocka_unit_test(when_a_rank_is_killed_an_abort_frees_the_rank_and_its_peers),
        cmocka_unit_test(the_size_of_dev_shm_does_not_matter_and_no_name_is_made_there),
        cmocka_unit_test(a_file_size_limit_is_a_refusal_and_no_signal),
    };

    return cmocka_run_group_tests_name("comm_processes", tests, NULL, NULL);
}
