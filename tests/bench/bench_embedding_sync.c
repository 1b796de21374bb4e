/*
 * bench_embedding_sync -- how fast the embedding group's two ends exchange their bytes.
 *
 * Prints `name shape value unit`, tab separated: for 16 and 150 MB (the embedding of GPT-2 small is
 * 154 MB) the bandwidth of one direction over ZeroMQ and over the data plane between two processes,
 * the one beside the other, and of one memcpy of the same size. A gradient goes and the weights
 * come back, again and again, the carriers and the copy in turn; the median of the times to and fro
 * counts, half of it for each direction.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/comm.h"
#include "collectives/embedding_sync.h"

#define ROUNDS     7
#define DEADLINE_S 120.0

enum carrier {
    CARRIER_ZMQ,
    CARRIER_DATA_PLANE,
    CARRIERS
};

static const char *const carrier_names[] = {"embedding_zmq", "embedding_data_plane"};

/* One process. */
struct end {
    enum embedding_role role;
    const char *directory;
    size_t elems;
    struct comm *comm;
    struct embedding_sync *syncs[CARRIERS];
    float *outgoing;          /* in the shared block */
    float *landing[CARRIERS]; /* owns; one each, so that each is seen to arrive */
    float *copy;              /* owns */
    double ns[CARRIERS][ROUNDS];
    double copy_ns[ROUNDS];
};

static enum status join(struct end *end)
{
    static const int32_t ranks[] = {EMBEDDING_OWNER, EMBEDDING_HEAD};
    const struct comm_config config = {
        .job_directory = end->directory, .rank = (int32_t)end->role, .world = 2, .crowded = true};
    const struct group_config both = {.ranks = ranks, .count = 2};
    struct group *group = NULL;

    TRY(comm_shm_open(&config, &end->comm));
    TRY(comm_share(end->comm, end->elems * sizeof(float)));
    TRY(comm_group_open(end->comm, &both, &group));
    TRY(comm_connect(end->comm, NULL, clock_deadline(DEADLINE_S)));
    end->outgoing = comm_shared(end->comm);
    return STATUS_OK;
}

static enum status meet(struct end *end, enum carrier carrier)
{
    const struct embedding_sync_config config = {
        .role = end->role,
        .job_directory = end->directory,
        .name = carrier_names[carrier],
        .elems = end->elems,
        .weight_bytes = sizeof(float),
        .landing = end->landing[carrier],
        .comm = carrier == CARRIER_DATA_PLANE ? end->comm : NULL,
        .peer = end->role == EMBEDDING_OWNER ? EMBEDDING_HEAD : EMBEDDING_OWNER,
        .deadline_ns = clock_deadline(DEADLINE_S)};

    return embedding_sync_open(&config, &end->syncs[carrier]);
}

static enum status open_end(struct end *end)
{
    TRY(join(end));
    end->landing[CARRIER_ZMQ] = calloc(end->elems, sizeof(float));
    end->landing[CARRIER_DATA_PLANE] = calloc(end->elems, sizeof(float));
    end->copy = calloc(end->elems, sizeof(float));
    if (end->landing[CARRIER_ZMQ] == NULL || end->landing[CARRIER_DATA_PLANE] == NULL ||
        end->copy == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%zu elements", end->elems);
    }
    /* What arrives is told from what was there, at both ends and in every place. */
    for (size_t i = 0; i < end->elems; i++) {
        end->outgoing[i] = (float)(i % 65521) + (end->role == EMBEDDING_OWNER ? 0.25F : 0.5F);
        end->landing[CARRIER_ZMQ][i] = -1.0F;
        end->landing[CARRIER_DATA_PLANE][i] = -1.0F;
        end->copy[i] = -1.0F;
    }
    TRY(meet(end, CARRIER_ZMQ));
    return meet(end, CARRIER_DATA_PLANE);
}

static bool has_arrived(const struct end *end, enum carrier carrier)
{
    for (size_t i = 0; i < end->elems; i++) {
        float expected = (float)(i % 65521) + (end->role == EMBEDDING_OWNER ? 0.5F : 0.25F);

        if (end->landing[carrier][i] != expected) {
            return false;
        }
    }
    return true;
}

/* There and back; `number` is that of the step and of the version. */
static enum status exchange(struct end *end, enum carrier carrier, int64_t number)
{
    struct embedding_sync *sync = end->syncs[carrier];
    int64_t deadline_ns = clock_deadline(DEADLINE_S);

    if (end->role == EMBEDDING_OWNER) {
        TRY(embedding_sync_wait_gradient(sync, number, deadline_ns));
        return embedding_sync_send_weights(sync, number, end->outgoing);
    }
    TRY(embedding_sync_send_gradient(sync, number, end->outgoing));
    return embedding_sync_wait_version(sync, number, deadline_ns);
}

static void copy_once(struct end *end, double *ns_out)
{
    int64_t begin_ns = clock_now_ns();

    memcpy(end->copy, end->outgoing, end->elems * sizeof(float));
    /* Keeps the compiler from leaving out a copy that the next one overwrites. */
    __asm__ __volatile__("" : : "r"(end->copy) : "memory");
    *ns_out = (double)(clock_now_ns() - begin_ns);
}

/* The first round warms up and is looked at. */
static enum status run_round(struct end *end, int64_t number)
{
    int at = number == 1 ? 0 : (int)number - 2;

    for (int carrier = 0; carrier < CARRIERS; carrier++) {
        int64_t begin_ns = clock_now_ns();

        TRY(exchange(end, (enum carrier)carrier, number));
        end->ns[carrier][at] = (double)(clock_now_ns() - begin_ns) / 2.0;
        if (number == 1 && !has_arrived(end, (enum carrier)carrier)) {
            return status_fail(STATUS_ERR_FORMAT, "%s: not what was sent", carrier_names[carrier]);
        }
    }
    if (end->role == EMBEDDING_HEAD) {
        copy_once(end, &end->copy_ns[at]);
    }
    return STATUS_OK;
}

static enum status run_rounds(struct end *end)
{
    for (int64_t number = 1; number <= ROUNDS + 1; number++) {
        TRY(run_round(end, number));
    }
    return STATUS_OK;
}

static enum status run_end(struct end *end)
{
    enum status status = open_end(end);

    if (status == STATUS_OK) {
        status = run_rounds(end);
    }
    for (int carrier = 0; carrier < CARRIERS; carrier++) {
        embedding_sync_close(&end->syncs[carrier]);
        free(end->landing[carrier]);
    }
    comm_close(&end->comm);
    free(end->copy);
    return status;
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a;
    double second = *(const double *)b;

    return (first > second) - (first < second);
}

static double median(double values[ROUNDS])
{
    qsort(values, ROUNDS, sizeof(double), compare);
    return values[ROUNDS / 2];
}

static void remove_directory(const char *directory)
{
    char path[128];

    for (int carrier = 0; carrier < CARRIERS; carrier++) {
        (void)snprintf(path, sizeof(path), "%s/embedding-%s", directory, carrier_names[carrier]);
        (void)unlink(path);
    }
    (void)rmdir(directory);
}

/* The owner is a process of its own; the head is this one, so that its times stay in `head`. */
static bool bench(size_t megabytes)
{
    char directory[] = "/tmp/weir-bench-embedding-XXXXXX";
    struct end head = {.role = EMBEDDING_HEAD, .elems = megabytes * 1000000 / sizeof(float)};
    double bytes = (double)head.elems * sizeof(float);
    bool good;
    int how = 0;
    pid_t child;

    head.directory = mkdtemp(directory);
    child = fork();
    if (child == 0) {
        head.role = EMBEDDING_OWNER;
        _exit(run_end(&head) == STATUS_OK ? 0 : 1);
    }
    good = run_end(&head) == STATUS_OK;
    good = waitpid(child, &how, 0) == child && how == 0 && good;
    remove_directory(directory);
    if (!good) {
        return false;
    }
    double zmq_ns = median(head.ns[CARRIER_ZMQ]);
    double plane_ns = median(head.ns[CARRIER_DATA_PLANE]);
    double copy_ns = median(head.copy_ns);

    printf("embedding_zmq\t%zu MB\t%.2f\tGB/s\n", megabytes, bytes / zmq_ns);
    printf("embedding_data_plane\t%zu MB\t%.2f\tGB/s\n", megabytes, bytes / plane_ns);
    printf("memcpy\t%zu MB\t%.2f\tGB/s\n", megabytes, bytes / copy_ns);
    printf("data_plane_of_zmq\t%zu MB\t%.2f\tratio\n", megabytes, zmq_ns / plane_ns);
    printf("data_plane_of_memcpy\t%zu MB\t%.2f\tratio\n", megabytes, copy_ns / plane_ns);
    return true;
}

int main(void)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* a fork must not copy lines that are not out yet */
    return bench(16) && bench(150) ? 0 : 1;
}
