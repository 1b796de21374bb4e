/* The data plane over NCCL: what its streams do while the host goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "base/clock.h"
#include "comm_rig.h"
#include "tensor/stream.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/queued.h"

#define ALL      0 /* the group of all ranks */
#define ASIDE    1 /* again, beside compute */
#define LANDINGS 2
#define FLOATS   32
#define BYTES    (FLOATS * sizeof(float))

enum {
    F_IN,
    F_OUT,
    B_IN,
    B_OUT
};

/* ---- A whole step ahead. ---- */

#define MICROBATCHES 24

static enum status open_pair(struct rig_rank *self)
{
    int32_t other = 1 - self->rank;
    bool first = self->rank == 0;

    TRY(rig_open(self));
    TRY(comm_share(self->comm, BYTES));
    TRY(rig_group(self, ALL, 0, 1, 2));
    TRY(rig_lane(self, first ? F_OUT : F_IN, other, 0, first, LANDINGS, BYTES));
    TRY(rig_lane(self, first ? B_IN : B_OUT, other, 1, !first, LANDINGS, BYTES));
    return rig_connect(self);
}

/* Rank 0 sends F to rank 1, which sends twice as much and one back as B. */
static void connect_pair(struct rig_rank *self)
{
    RIG_EXPECT(self, open_pair(self) == STATUS_OK);
}

static enum status receive(struct rig_rank *self, int lane, uint64_t k)
{
    int32_t landing = (int32_t)(k % LANDINGS);

    TRY(comm_post_receive(self->lanes[lane], landing, k));
    return comm_wait_arrival(self->lanes[lane], landing, k, NULL, CLOCK_NEVER);
}

/* The first of the numbers of message k: (k + 1), as the other rank turns it around. */
static float turned(uint64_t k)
{
    return 2.0F * (float)(k + 1) + 1.0F;
}

static enum status send(struct rig_rank *self, int lane, uint64_t k, const void *from)
{
    const struct comm_rig *rig = self->rig;
    float *out = rig_memory(self, lane, BYTES);

    TRY(comm_wait_sent(self->lanes[lane], &rig->cancel, rig->deadline_ns));
    TRY(device_copy(self->device, out, from, BYTES));
    return comm_post_send(self->lanes[lane], (int32_t)(k % LANDINGS), k, out, BYTES);
}

static enum status send_first(struct rig_rank *self, uint64_t k)
{
    float message[FLOATS];

    for (int i = 0; i < FLOATS; i++) {
        message[i] = (float)(k + 1);
    }
    return send(self, F_OUT, k, message);
}

/* The first float of what comes back is kept, and the last one. */
static enum status take_back(struct rig_rank *self, uint64_t k, float *results)
{
    int32_t landing = (int32_t)(k % LANDINGS);
    const float *at = comm_landing(self->lanes[B_IN], landing);

    TRY(receive(self, B_IN, k));
    TRY(device_copy(self->device, results + 2 * k, at, sizeof(float)));
    TRY(device_copy(self->device, results + 2 * k + 1, at + FLOATS - 1, sizeof(float)));
    comm_credit(self->lanes[B_IN], landing);
    return STATUS_OK;
}

static enum status step_of_first(struct rig_rank *self, float *results)
{
    const struct comm_rig *rig = self->rig;

    for (uint64_t k = 0; k < MICROBATCHES; k++) {
        TRY(send_first(self, k));
        TRY(k >= LANDINGS ? take_back(self, k - LANDINGS, results) : STATUS_OK);
    }
    for (uint64_t k = MICROBATCHES - LANDINGS; k < MICROBATCHES; k++) {
        TRY(take_back(self, k, results));
    }
    return comm_wait_sent(self->lanes[F_OUT], &rig->cancel, rig->deadline_ns);
}

static enum status turn_around(struct rig_rank *self, uint64_t k)
{
    int32_t landing = (int32_t)(k % LANDINGS);
    float *in = comm_landing(self->lanes[F_IN], landing);

    TRY(receive(self, F_IN, k));
    TRY(queued_scale(in, 2.0F, 1.0F, device_stream(self->device)));
    TRY(send(self, B_OUT, k, in));
    comm_credit(self->lanes[F_IN], landing);
    return STATUS_OK;
}

static enum status step_of_second(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;

    for (uint64_t k = 0; k < MICROBATCHES; k++) {
        TRY(turn_around(self, k));
    }
    return comm_wait_sent(self->lanes[B_OUT], &rig->cancel, rig->deadline_ns);
}

/* Then the sum of both ranks' own number + 1 over the group. */
static enum status sum_up(struct rig_rank *self, float *result)
{
    const struct comm_rig *rig = self->rig;
    float *shared = comm_shared(self->comm);
    float own = (float)self->rank + 1.0F;

    TRY(device_copy(self->device, shared, &own, sizeof(own)));
    TRY(comm_all_reduce(self->groups[ALL], shared, 1, COMM_SUM, &rig->cancel, rig->deadline_ns));
    return device_copy(self->device, result, shared, sizeof(float));
}

static enum status enqueue_and_wait(struct rig_rank *self, float *results)
{
    TRY(self->rank == 0 ? step_of_first(self, results) : step_of_second(self));
    TRY(sum_up(self, results + (size_t)2 * MICROBATCHES));
    TRY(comm_check(self->comm));
    return device_wait(self->device, &self->rig->cancel, self->rig->deadline_ns);
}

/* The kernel has scaled the first float alone. */
static bool are_turned(const float *results)
{
    bool right = true;

    for (uint64_t k = 0; k < MICROBATCHES; k++) {
        right = right && results[2 * k] == turned(k) && results[2 * k + 1] == (float)(k + 1);
    }
    return right;
}

static void run_ahead(struct rig_rank *self)
{
    void *memory = NULL;
    float *results = NULL;
    size_t bytes = (2 * MICROBATCHES + 1) * sizeof(float);
    size_t left;

    RIG_EXPECT(self,
               device_take(self->device, DEVICE_HOST, "results", bytes, &memory) == STATUS_OK);
    (void)rig_memory(self, self->rank == 0 ? F_OUT : B_OUT, BYTES);
    results = memory;
    left = fake_cuda_left();
    fake_cuda_fail_malloc(1); /* nothing is allocated from here on */
    RIG_EXPECT(self, enqueue_and_wait(self, results) == STATUS_OK);
    RIG_EXPECT(self, fake_cuda_left() == left);
    fake_cuda_fail_malloc(0);
    RIG_EXPECT(self, self->rank == 1 || are_turned(results));
    RIG_EXPECT(self, results[(size_t)2 * MICROBATCHES] == 3.0F);
    device_give(self->device, DEVICE_HOST, memory, bytes);
}

static void a_step_enqueued_ahead_keeps_every_order_in_every_order_of_streams(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct comm_rig rig;

        rig_init(&rig, 2, seed % 2 == 1);
        rig_run(&rig, connect_pair);
        rig_assert_no_notes(&rig);
        for (int32_t rank = 0; rank < 2; rank++) {
            fake_cuda_use(rig.ranks[rank].gpu);
            fake_cuda_seed(97 * seed + (uint64_t)rank);
        }
        rig_run(&rig, run_ahead);
        rig_assert_no_notes(&rig);
        rig_release(&rig);
    }
}

/* Nobody has come to what is sent here. */
static void send_alone(struct rig_rank *self)
{
    struct lane *lane = self->lanes[F_OUT];

    RIG_EXPECT(self, comm_sent(lane));
    RIG_EXPECT(self, send_first(self, 0) == STATUS_OK);
    RIG_EXPECT(self, !comm_sent(lane) && comm_progress(self->comm) == 1);
    RIG_EXPECT(self, comm_wait_sent(lane, NULL, CLOCK_NEVER) == STATUS_OK);
    RIG_EXPECT(self, comm_sent(lane) && comm_progress(self->comm) == 0);
}

/* Nobody has sent what is received here. */
static void receive_alone(struct rig_rank *self)
{
    struct lane *lane = self->lanes[B_IN];

    RIG_EXPECT(self, comm_arrived(lane, 0, 7) == STATUS_IN_PROGRESS);
    RIG_EXPECT(self, comm_post_receive(lane, 0, 7) == STATUS_OK);
    RIG_EXPECT(self, comm_arrived(lane, 0, 7) == STATUS_IN_PROGRESS);
    RIG_EXPECT(self, comm_arrived(lane, 0, 8) == STATUS_ERR_FORMAT);
    RIG_EXPECT(self, comm_wait_arrival(lane, 0, 7, NULL, CLOCK_NEVER) == STATUS_OK);
    RIG_EXPECT(self, comm_arrived(lane, 0, 7) == STATUS_OK);
    comm_credit(lane, 0);
    RIG_EXPECT(self, comm_post_receive(lane, 0, 8) == STATUS_OK);
}

/* The other rank does nothing at all: no call waits for it. */
static void call_alone(struct rig_rank *self)
{
    if (self->rank == 1) {
        return;
    }
    send_alone(self);
    receive_alone(self);
    RIG_EXPECT(self, comm_all_reduce(self->groups[ALL], comm_shared(self->comm), 4, COMM_SUM, NULL,
                                     CLOCK_NEVER) == STATUS_OK);
    RIG_EXPECT(self, comm_check(self->comm) == STATUS_OK);
    RIG_EXPECT(self, fake_cuda_pending() > 0);
    RIG_EXPECT(self, device_wait(self->device, NULL, clock_deadline(0.05)) == STATUS_ERR_PEER);
}

static void no_call_of_a_step_waits_for_anybody(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, connect_pair);
    rig_assert_no_notes(&rig);
    rig_run(&rig, call_alone);
    rig_assert_no_notes(&rig);
    comm_abort(rig.ranks[1].comm); /* which is well, and would end together with rank 0 */
    rig_release(&rig);
}

/* ---- Beside the compute stream. ---- */

static enum status open_aside(struct rig_rank *self)
{
    const int32_t both[] = {0, 1};
    const struct group_config aside = {.ranks = both, .count = 2, .aside = true};

    TRY(rig_open(self));
    TRY(comm_share(self->comm, 2 * BYTES));
    TRY(rig_group(self, ALL, 0, 1, 2));
    TRY(comm_group_open(self->comm, &aside, &self->groups[ASIDE]));
    return rig_connect(self);
}

static void connect_aside(struct rig_rank *self)
{
    RIG_EXPECT(self, open_aside(self) == STATUS_OK);
}

/* Until nothing waits in the GPU's streams but `left` operations. */
static bool runs_down_to(struct rig_rank *self, size_t left)
{
    cudaStream_t compute = stream_queue(device_stream(self->device))->handle;

    while (fake_cuda_pending() > left && clock_now_ns() < self->rig->deadline_ns) {
        (void)cudaStreamQuery(compute);
        (void)cudaGetLastError();
    }
    return fake_cuda_pending() == left;
}

/* Makes a number of the call's in the block, and has the group sum it. */
static enum status sum_aside(struct rig_rank *self, float *at, float term)
{
    TRY(device_zero(self->device, at, sizeof(float)));
    TRY(queued_scale(at, 1.0F, term + (float)self->rank, device_stream(self->device)));
    return comm_all_reduce(self->groups[ASIDE], at, 1, COMM_SUM, NULL, CLOCK_NEVER);
}

/* Two calls of which compute waits for the first: it sees its sum while the stream stands before the second's use. */
static void sum_beside(struct rig_rank *self)
{
    float *block = comm_shared(self->comm);
    uint64_t first = 0;
    float sums[2] = {0.0F, 0.0F};
    int flag = 0;

    RIG_EXPECT(self, comm_group_calls(self->groups[ASIDE]) == 0);
    RIG_EXPECT(self, comm_group_join(self->groups[ASIDE], 0) == STATUS_OK);
    RIG_EXPECT(self, sum_aside(self, block, 3.0F) == STATUS_OK);
    first = comm_group_calls(self->groups[ASIDE]);
    RIG_EXPECT(self, first == 1);
    RIG_EXPECT(self, sum_aside(self, block + FLOATS, 5.0F) == STATUS_OK);
    /* The compute stream stands, and both sums end. */
    RIG_EXPECT(self, queued_until(stream_queue(device_stream(self->device))->handle, &flag) == 0);
    RIG_EXPECT(self, runs_down_to(self, 1));
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    RIG_EXPECT(self, comm_group_join(self->groups[ASIDE], first) == STATUS_OK);
    RIG_EXPECT(self, device_copy(self->device, &sums[0], block, sizeof(float)) == STATUS_OK);
    RIG_EXPECT(self, comm_group_join(self->groups[ASIDE], 2) == STATUS_OK);
    RIG_EXPECT(self, device_copy(self->device, &sums[1], block + FLOATS, 4) == STATUS_OK);
    RIG_EXPECT(self, sums[0] == 7.0F && sums[1] == 11.0F);
}

/* Whether compute goes on behind a sum, and only there, in many orders of the streams. */
static void sum_and_join(struct rig_rank *self)
{
    float *block = comm_shared(self->comm);

    for (int round = 0; round < 8; round++) {
        float *at = block + (size_t)(round % 2) * FLOATS;
        float sum = 0.0F;

        RIG_EXPECT(self, sum_aside(self, at, (float)round) == STATUS_OK);
        RIG_EXPECT(self, comm_group_join(self->groups[ASIDE],
                                         comm_group_calls(self->groups[ASIDE])) == STATUS_OK);
        RIG_EXPECT(self, queued_scale(at, 2.0F, 1.0F, device_stream(self->device)) == STATUS_OK);
        RIG_EXPECT(self, device_copy(self->device, &sum, at, sizeof(sum)) == STATUS_OK);
        RIG_EXPECT(self, sum == 2.0F * (2.0F * (float)round + 1.0F) + 1.0F);
    }
}

static void a_group_aside_sums_beside_compute_which_joins_it(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct comm_rig rig;

        rig_init(&rig, 2, false);
        rig_run(&rig, connect_aside);
        rig_assert_no_notes(&rig);
        for (int32_t rank = 0; rank < 2; rank++) {
            fake_cuda_use(rig.ranks[rank].gpu);
            fake_cuda_seed(31 * seed + (uint64_t)rank);
        }
        rig_run(&rig, seed == 0 ? sum_beside : sum_and_join);
        rig_assert_no_notes(&rig);
        rig_release(&rig);
    }
}

/* ---- What it counts and refuses. ---- */

static bool has_counted(const struct lane *lane, uint64_t calls)
{
    struct comm_traffic traffic = comm_lane_traffic(lane);

    return traffic.calls == calls && traffic.bytes == calls * BYTES;
}

static void count_received(struct rig_rank *self)
{
    struct lane *lane = self->lanes[F_IN];

    RIG_EXPECT(self, receive(self, F_IN, 0) == STATUS_OK);
    RIG_EXPECT(self, has_counted(lane, 0));
    comm_credit(lane, 0);
    RIG_EXPECT(self, has_counted(lane, 1));
}

static void count_sent(struct rig_rank *self)
{
    struct lane *lane = self->lanes[F_OUT];
    const float *out = rig_memory(self, F_OUT, BYTES);
    int64_t begin_ns = 1;
    int64_t end_ns = 1;

    RIG_EXPECT(self, comm_post_send(lane, 0, 0, out, BYTES - 4) == STATUS_ERR_INVALID);
    RIG_EXPECT(self, comm_post_send(lane, 0, 0, out, BYTES) == STATUS_OK);
    RIG_EXPECT(self, comm_wait_sent(lane, NULL, CLOCK_NEVER) == STATUS_OK);
    comm_last_copy(lane, &begin_ns, &end_ns);
    RIG_EXPECT(self, begin_ns == 0 && end_ns == 0);
    RIG_EXPECT(self, has_counted(lane, 1));
}

static void look_around(struct rig_rank *self)
{
    float number = 0.0F;
    const struct lane *in = self->lanes[self->rank == 0 ? B_IN : F_IN];

    RIG_EXPECT(self, !comm_reads(self->comm));
    RIG_EXPECT(self,
               comm_read(self->comm, 1 - self->rank, 0, &number, 4) == STATUS_ERR_UNSUPPORTED);
    RIG_EXPECT(self, comm_reserved_bytes(self->comm) == LANDINGS * BYTES);
    RIG_EXPECT(self, (uintptr_t)comm_landing(in, 1) % 128 == 0);
    (self->rank == 0 ? count_sent : count_received)(self);
    RIG_EXPECT(self, device_wait(self->device, NULL, self->rig->deadline_ns) == STATUS_OK);
}

static void it_counts_messages_and_refuses_what_it_cannot_do(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, connect_pair);
    rig_assert_no_notes(&rig);
    rig_run(&rig, look_around);
    rig_assert_no_notes(&rig);
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_enqueued_ahead_keeps_every_order_in_every_order_of_streams),
        cmocka_unit_test(no_call_of_a_step_waits_for_anybody),
        cmocka_unit_test(a_group_aside_sums_beside_compute_which_joins_it),
        cmocka_unit_test(it_counts_messages_and_refuses_what_it_cannot_do),
    };

    return cmocka_run_group_tests_name("comm_nccl", tests, NULL, NULL);
}
