/*
 * bench_comm -- what messages and collectives cost on the data plane of one host.
 *
 * Prints `name shape value unit`, tab separated: the one-way latency of 64 bytes between two
 * processes, their bandwidth at 3 and 16 MiB beside one memcpy of the same size in the same run
 * (copies and messages take turns, the median counts), and the time a hop of 4 KiB takes in rings
 * of 2, 4 and 8 processes; then all_reduce of 1 and 16 MiB with 2, 4 and 8 processes, its size over
 * its time, beside one memcpy of the same size; last what one call of 150 small pieces costs two
 * processes, beside one of a single piece as large as all of them, and of none.
 *
 * `bench_comm all_reduce RANKS MIB CALLS` measures one all_reduce alone and prints its median, so
 * that a script can let it take turns with others; `bench_comm pieces` the last alone.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/comm.h"

#define LANDINGS      2
#define RANKS_MOST    8
#define ROUNDS        15
#define WARM_MESSAGES 200
#define DEADLINE_S    60.0
#define CROWDED_FROM  3 /* ranks: the machines that this is run on have two cores at least */

/* A ring of processes: each receives from the rank before and sends to the next. */
struct ring {
    const char *directory;
    int32_t world;
    int32_t rank;
    bool crowded;
    size_t bytes; /* of a message */
    uint32_t messages;
    int64_t deadline_ns;
    struct comm *comm;
    struct lane *in;
    struct lane *out;
    struct group *group; /* of all ranks; NULL where none is wanted */
    bool combines;       /* wants the group, and no lanes */
    uint64_t sent;       /* messages on `out` so far, the tags */
    uint64_t received;   /* messages on `in` so far */
    unsigned char *data;
    unsigned char *copies[LANDINGS]; /* rank 0: where memcpy goes, as many as landing buffers */
    double message_ns[ROUNDS];       /* rank 0: filled by the work, the median counts */
    double copy_ns[ROUNDS];
};

typedef enum status (*ring_fn)(struct ring *ring);

static enum status send_one(struct ring *ring)
{
    int32_t landing = (int32_t)(ring->sent % LANDINGS);

    TRY(comm_wait_sent(ring->out, NULL, ring->deadline_ns));
    TRY(comm_post_send(ring->out, landing, ring->sent, ring->data, ring->bytes));
    ring->sent++;
    return STATUS_OK;
}

static enum status receive_one(struct ring *ring)
{
    int32_t landing = (int32_t)(ring->received % LANDINGS);

    TRY(comm_wait_arrival(ring->in, landing, ring->received, NULL, ring->deadline_ns));
    comm_credit(ring->in, landing);
    ring->received++;
    return STATUS_OK;
}

/* One token goes around `turns` times. */
static enum status pass_token(struct ring *ring, uint32_t turns)
{
    const ring_fn first = ring->rank == 0 ? send_one : receive_one;
    const ring_fn second = ring->rank == 0 ? receive_one : send_one;

    for (uint32_t k = 0; k < turns; k++) {
        TRY(first(ring));
        TRY(second(ring));
    }
    return STATUS_OK;
}

static enum status run_token(struct ring *ring)
{
    TRY(pass_token(ring, WARM_MESSAGES));
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin_ns = clock_now_ns();

        TRY(pass_token(ring, ring->messages));
        ring->message_ns[round] =
            (double)(clock_now_ns() - begin_ns) / ((double)ring->messages * (double)ring->world);
    }
    return STATUS_OK;
}

/* Rank 0 sends to rank 1 as fast as it can; rank 1 says at the end that it has all. */
static enum status run_stream(struct ring *ring)
{
    const ring_fn each = ring->rank == 0 ? send_one : receive_one;
    const ring_fn last = ring->rank == 0 ? receive_one : send_one;

    for (uint32_t k = 0; k < ring->messages; k++) {
        TRY(each(ring));
    }
    return last(ring);
}

static void copy_many(struct ring *ring)
{
    for (uint32_t k = 0; k < ring->messages; k++) {
        memcpy(ring->copies[k % LANDINGS], ring->data, ring->bytes);
        /* Keeps the compiler from leaving out a copy that the next one overwrites. */
        __asm__ __volatile__("" : : "r"(ring->copies[k % LANDINGS]) : "memory");
    }
}

static enum status run_bandwidth(struct ring *ring)
{
    for (int round = -1; round < ROUNDS; round++) { /* the first warms up */
        int at = round < 0 ? 0 : round;
        int64_t begin_ns = clock_now_ns();

        TRY(run_stream(ring));
        ring->message_ns[at] = (double)(clock_now_ns() - begin_ns) / (double)ring->messages;
        if (ring->rank == 0) {
            begin_ns = clock_now_ns();
            copy_many(ring);
            ring->copy_ns[at] = (double)(clock_now_ns() - begin_ns) / (double)ring->messages;
        }
    }
    return STATUS_OK;
}

static enum status all_reduce_many(struct ring *ring)
{
    for (uint32_t k = 0; k < ring->messages; k++) {
        TRY(comm_all_reduce(ring->group, comm_shared(ring->comm), ring->bytes / sizeof(float),
                            COMM_SUM, NULL, ring->deadline_ns));
    }
    return STATUS_OK;
}

static enum status run_all_reduce(struct ring *ring)
{
    for (int round = -1; round < ROUNDS; round++) { /* the first warms up */
        int at = round < 0 ? 0 : round;
        int64_t begin_ns;

        /* The others are there, so that the first call waits for nobody. */
        TRY(comm_all_reduce(ring->group, comm_shared(ring->comm), 1, COMM_SUM, NULL,
                            ring->deadline_ns));
        begin_ns = clock_now_ns();
        TRY(all_reduce_many(ring));
        ring->message_ns[at] = (double)(clock_now_ns() - begin_ns) / (double)ring->messages;
        if (ring->rank == 0) {
            begin_ns = clock_now_ns();
            copy_many(ring);
            ring->copy_ns[at] = (double)(clock_now_ns() - begin_ns) / (double)ring->messages;
        }
    }
    return STATUS_OK;
}

#define PIECES      150
#define PIECE_ELEMS ((size_t)64)

/* Calls of `count` pieces with `elems` floats each, reduce_scatter and all_gather in turns. */
static enum status combine_pieces(struct ring *ring, int32_t count, size_t elems)
{
    struct comm_piece pieces[PIECES];
    float *data = comm_shared(ring->comm);

    for (int32_t i = 0; i < count; i++) {
        pieces[i] = (struct comm_piece){
            .data = data + (size_t)i * elems, .elems = elems, .elem_bytes = sizeof(float)};
    }
    for (uint32_t k = 0; k < ring->messages; k += 2) {
        TRY(comm_reduce_scatter_pieces(ring->group, pieces, count, NULL, ring->deadline_ns));
        TRY(comm_all_gather_pieces(ring->group, pieces, count, NULL, ring->deadline_ns));
    }
    return STATUS_OK;
}

/* message_ns is of many pieces, copy_ns of one with as many floats. */
static enum status run_pieces(struct ring *ring)
{
    for (int round = -1; round < ROUNDS; round++) { /* the first warms up */
        int at = round < 0 ? 0 : round;
        int64_t begin_ns = clock_now_ns();

        TRY(combine_pieces(ring, PIECES, PIECE_ELEMS));
        ring->message_ns[at] = (double)(clock_now_ns() - begin_ns) / (double)ring->messages;
        begin_ns = clock_now_ns();
        TRY(combine_pieces(ring, 1, PIECES * PIECE_ELEMS));
        ring->copy_ns[at] = (double)(clock_now_ns() - begin_ns) / (double)ring->messages;
    }
    return STATUS_OK;
}

/* message_ns is of a call with nothing in it. */
static enum status run_nothing(struct ring *ring)
{
    for (int round = -1; round < ROUNDS; round++) {
        int64_t begin_ns = clock_now_ns();

        TRY(combine_pieces(ring, 0, 0));
        ring->message_ns[round < 0 ? 0 : round] =
            (double)(clock_now_ns() - begin_ns) / (double)ring->messages;
    }
    return STATUS_OK;
}

static enum status open_group(struct ring *ring)
{
    int32_t ranks[RANKS_MOST];
    const struct group_config config = {.ranks = ranks, .count = ring->world};

    for (int32_t rank = 0; rank < ring->world; rank++) {
        ranks[rank] = rank;
    }
    TRY(comm_share(ring->comm, ring->bytes));
    return comm_group_open(ring->comm, &config, &ring->group);
}

static enum status open_lanes(struct ring *ring)
{
    struct lane_config lane = {.landings = LANDINGS, .landing_bytes = ring->bytes};

    lane.sends = true;
    lane.peer = (ring->rank + 1) % ring->world;
    TRY(comm_lane_open(ring->comm, &lane, &ring->out));
    lane.sends = false;
    lane.peer = (ring->rank + ring->world - 1) % ring->world;
    return comm_lane_open(ring->comm, &lane, &ring->in);
}

static enum status connect_ring(struct ring *ring)
{
    const struct comm_config config = {.job_directory = ring->directory,
                                       .rank = ring->rank,
                                       .world = ring->world,
                                       .crowded = ring->crowded};

    TRY(comm_shm_open(&config, &ring->comm));
    TRY(ring->combines ? open_group(ring) : open_lanes(ring));
    return comm_connect(ring->comm, NULL, ring->deadline_ns);
}

static unsigned char *touched(size_t bytes)
{
    unsigned char *data = aligned_alloc(128, (bytes + 127) / 128 * 128);

    if (data != NULL) {
        memset(data, 1, bytes);
    }
    return data;
}

static enum status run_rank(struct ring *ring, ring_fn work)
{
    enum status status = connect_ring(ring);

    ring->data = touched(ring->bytes);
    for (int i = 0; i < LANDINGS; i++) {
        ring->copies[i] = touched(ring->bytes);
    }
    if (status >= 0) {
        status = work(ring);
    }
    comm_close(&ring->comm);
    free(ring->data);
    for (int i = 0; i < LANDINGS; i++) {
        free(ring->copies[i]);
    }
    return status;
}

/* Forks the other ranks; rank 0 is this process, so that its measurements stay in `ring`. */
static bool run_ring(struct ring *ring, ring_fn work)
{
    pid_t children[RANKS_MOST] = {0};
    char directory[] = "/tmp/weir-bench-comm-XXXXXX";
    bool good;

    ring->directory = mkdtemp(directory);
    ring->deadline_ns = clock_deadline(DEADLINE_S);
    for (int32_t rank = 1; rank < ring->world; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            ring->rank = rank;
            _exit(run_rank(ring, work) == STATUS_OK ? 0 : 1);
        }
    }
    good = run_rank(ring, work) == STATUS_OK;
    for (int32_t rank = 1; rank < ring->world; rank++) {
        int how = 0;

        good = waitpid(children[rank], &how, 0) == children[rank] && how == 0 && good;
    }
    (void)rmdir(directory);
    return good;
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

static bool bench_token(const char *name, int32_t world, size_t bytes, bool crowded,
                        uint32_t messages)
{
    struct ring ring = {.world = world, .crowded = crowded, .bytes = bytes, .messages = messages};

    if (!run_ring(&ring, run_token)) {
        return false;
    }
    printf("%s\t%d ranks, %zu B, %s\t%.2f\tus\n", name, world, bytes,
           crowded ? "futex" : "spin, then futex", median(ring.message_ns) / 1e3);
    return true;
}

static bool bench_bandwidth(size_t mib, uint32_t messages)
{
    struct ring ring = {.world = 2, .bytes = mib << 20, .messages = messages};
    double message_ns;
    double copy_ns;

    if (!run_ring(&ring, run_bandwidth)) {
        return false;
    }
    message_ns = median(ring.message_ns);
    copy_ns = median(ring.copy_ns);
    printf("p2p\t%zu MiB\t%.2f\tGB/s\n", mib, (double)ring.bytes / message_ns);
    printf("memcpy\t%zu MiB\t%.2f\tGB/s\n", mib, (double)ring.bytes / copy_ns);
    printf("p2p_of_memcpy\t%zu MiB\t%.2f\tratio\n", mib, copy_ns / message_ns);
    return true;
}

static bool bench_all_reduce(int32_t world, size_t mib, uint32_t calls)
{
    struct ring ring = {.world = world,
                        .crowded = world >= CROWDED_FROM,
                        .bytes = mib << 20,
                        .messages = calls,
                        .combines = true};
    double call_ns;
    double copy_ns;

    if (!run_ring(&ring, run_all_reduce)) {
        return false;
    }
    call_ns = median(ring.message_ns);
    copy_ns = median(ring.copy_ns);
    printf("all_reduce\t%d ranks, %zu MiB\t%.2f\tGB/s\n", world, mib, (double)ring.bytes / call_ns);
    printf("all_reduce_of_memcpy\t%d ranks, %zu MiB\t%.2f\tratio\n", world, mib, copy_ns / call_ns);
    return true;
}

static bool bench_all_reduces(void)
{
    bool good = true;

    for (int32_t world = 2; world <= RANKS_MOST && good; world *= 2) {
        good = bench_all_reduce(world, 1, 100) && bench_all_reduce(world, 16, 8);
    }
    return good;
}

static bool bench_pieces(void)
{
    struct ring ring = {.world = 2,
                        .bytes = PIECES * PIECE_ELEMS * sizeof(float),
                        .messages = 2000,
                        .combines = true};
    struct ring empty = ring;

    if (!run_ring(&ring, run_pieces) || !run_ring(&empty, run_nothing)) {
        return false;
    }
    printf("pieces\t2 ranks, %d of %zu floats\t%.2f\tus\n", PIECES, PIECE_ELEMS,
           median(ring.message_ns) / 1e3);
    printf("pieces\t2 ranks, 1 of %zu floats\t%.2f\tus\n", PIECES * PIECE_ELEMS,
           median(ring.copy_ns) / 1e3);
    printf("pieces\t2 ranks, none\t%.2f\tus\n", median(empty.message_ns) / 1e3);
    return true;
}

/* The one that the arguments name. */
static int bench_one(int count, char *const arguments[])
{
    long ranks = count == 4 ? strtol(arguments[1], NULL, 10) : 0;
    long mib = count == 4 ? strtol(arguments[2], NULL, 10) : 0;
    long calls = count == 4 ? strtol(arguments[3], NULL, 10) : 0;

    if (count == 1 && strcmp(arguments[0], "pieces") == 0) {
        return bench_pieces() ? 0 : 1;
    }
    if (strcmp(arguments[0], "all_reduce") != 0 || ranks < 2 || ranks > RANKS_MOST || mib < 1 ||
        mib > 1024 || calls < 1 || calls > 1000000) {
        (void)fprintf(stderr,
                      "usage: bench_comm [pieces | all_reduce RANKS(2-%d) MIB(1-1024) CALLS]\n",
                      RANKS_MOST);
        return 1;
    }
    return bench_all_reduce((int32_t)ranks, (size_t)mib, (uint32_t)calls) ? 0 : 1;
}

int main(int count, char *arguments[])
{
    bool good;

    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* a fork must not copy lines that are not out yet */
    if (count > 1) {
        return bench_one(count - 1, arguments + 1);
    }
    good = bench_token("latency", 2, 64, false, 5000) &&
           bench_token("latency", 2, 64, true, 1000) && bench_bandwidth(3, 100) &&
           bench_bandwidth(16, 20) && bench_token("ring_hop", 2, 4096, false, 1000) &&
           bench_token("ring_hop", 4, 4096, true, 300) &&
           bench_token("ring_hop", 8, 4096, true, 150) && bench_all_reduces() && bench_pieces();
    return good ? 0 : 1;
}
