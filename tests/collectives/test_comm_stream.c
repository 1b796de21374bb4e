/* Many messages at once, between ranks that are threads: order, credits and contents. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "comm_rig.h"

#define BYTES 256

enum {
    F_IN, /* lane F from the previous rank, or from the other one */
    F_OUT,
    B_IN,
    B_OUT
};

/* The numbers under which a rank's messages are written and read. */
static uint32_t stream_of(int32_t rank, int lane)
{
    return 2 * (uint32_t)rank + (lane == B_IN || lane == B_OUT ? 1 : 0);
}

/* Waits for the lane's out buffer, fills it, and sends it as message k. */
static enum status send_message(struct rig_rank *self, int lane, int32_t landings, uint32_t k)
{
    struct comm_rig *rig = self->rig;
    uint64_t message[BYTES / 8];
    void *out = rig_memory(self, lane, BYTES);

    TRY(comm_wait_sent(self->lanes[lane], &rig->cancel, rig->deadline_ns));
    rig_write(message, BYTES, stream_of(self->rank, lane), k);
    TRY(rig_put(self, out, message, BYTES));
    return comm_post_send(self->lanes[lane], (int32_t)k % landings, k, out, BYTES);
}

static enum status check_message(struct rig_rank *self, int lane, int32_t from, int32_t landing,
                                 uint32_t k)
{
    uint64_t message[BYTES / 8];

    TRY(rig_get(self, message, comm_landing(self->lanes[lane], landing), BYTES));
    if (!rig_reads(message, BYTES, stream_of(from, lane), k)) {
        return status_fail(STATUS_ERR_FORMAT, "lane %d: message %u of rank %d is not what was sent",
                           lane, k, from);
    }
    return STATUS_OK;
}

/* Waits for message k and checks what is in it; it stays where it is. */
static enum status receive_message(struct rig_rank *self, int lane, int32_t from, int32_t landings,
                                   uint32_t k)
{
    struct comm_rig *rig = self->rig;
    int32_t landing = (int32_t)k % landings;

    TRY(comm_post_receive(self->lanes[lane], landing, k));
    TRY(comm_wait_arrival(self->lanes[lane], landing, k, &rig->cancel, rig->deadline_ns));
    return check_message(self, lane, from, landing, k);
}

/* Ends what is pending; frees the other ranks where this one has failed. */
static void finish(struct rig_rank *self, enum status status)
{
    const int lanes[] = {F_OUT, B_OUT};
    struct comm_rig *rig = self->rig;

    for (int i = 0; i < 2; i++) {
        struct lane *lane = self->lanes[lanes[i]];

        if (lane != NULL && status >= 0) {
            status = comm_wait_sent(lane, &rig->cancel, rig->deadline_ns);
        }
    }
    if (status < 0) {
        cancel_request(&rig->cancel);
    }
    RIG_EXPECT(self, status >= 0);
}

/* ---- Two ranks, four lanes. ---- */

#define PAIR_MESSAGES RIG_TURNS(20000)

/* F and B have different depths, so that the lanes drift against each other. */
static const int32_t pair_landings[] = {2, 2, 3, 3};

static void connect_pair(struct rig_rank *self)
{
    int32_t other = 1 - self->rank;

    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, F_IN, other, 0, false, 2, BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, F_OUT, other, 0, true, 2, BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, B_IN, other, 1, false, 3, BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, B_OUT, other, 1, true, 3, BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

static enum status talk_once(struct rig_rank *self, uint32_t k)
{
    int32_t other = 1 - self->rank;

    TRY(send_message(self, F_OUT, pair_landings[F_OUT], k));
    TRY(send_message(self, B_OUT, pair_landings[B_OUT], k));
    TRY(receive_message(self, F_IN, other, pair_landings[F_IN], k));
    TRY(receive_message(self, B_IN, other, pair_landings[B_IN], k));
    comm_credit(self->lanes[F_IN], (int32_t)k % pair_landings[F_IN]);
    comm_credit(self->lanes[B_IN], (int32_t)k % pair_landings[B_IN]);
    return STATUS_OK;
}

static void talk_both_ways(struct rig_rank *self)
{
    enum status status = STATUS_OK;

    for (uint32_t k = 0; k < PAIR_MESSAGES && status >= 0; k++) {
        status = talk_once(self, k);
    }
    finish(self, status);
}

static void two_lanes_both_ways_at_once_lose_and_swap_nothing(void **state)
{
    (void)state;
    rig_run_on_two_kinds_of_hosts(2, connect_pair, talk_both_ways);
}

/* ---- Four ranks in a chain. ---- */

#define CHAIN_RANKS    4
#define CHAIN_LANDINGS 3
#define CHAIN_MESSAGES RIG_TURNS(17000) /* on each of 6 lanes: 102,000 */

static enum status chain_lanes(struct rig_rank *self, int32_t peer, int in, int out)
{
    int32_t direction_in = in == F_IN ? 0 : 1;

    if (peer < 0 || peer >= self->rig->world) {
        return STATUS_OK;
    }
    TRY(rig_lane(self, in, peer, direction_in, false, CHAIN_LANDINGS, BYTES));
    return rig_lane(self, out, peer, 1 - direction_in, true, CHAIN_LANDINGS, BYTES);
}

static void connect_chain(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, chain_lanes(self, self->rank - 1, F_IN, B_OUT) == STATUS_OK);
    RIG_EXPECT(self, chain_lanes(self, self->rank + 1, B_IN, F_OUT) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* Most messages go on at once, some are kept while others run. */
static void delay(uint64_t *seed)
{
    uint32_t yields = rig_random(seed) % 16 == 0 ? rig_random(seed) % 8 : 0;

    for (; yields > 0; yields--) {
        (void)sched_yield();
    }
}

/* Takes message k of the lane that comes in, keeps it for a while, and sends one of its own. */
static enum status pass_on(struct rig_rank *self, uint64_t *seed, int in, int out, uint32_t k)
{
    int32_t landing = (int32_t)k % CHAIN_LANDINGS;
    int32_t from = in == F_IN ? self->rank - 1 : self->rank + 1;

    if (self->lanes[in] != NULL) {
        TRY(receive_message(self, in, from, CHAIN_LANDINGS, k));
    }
    delay(seed);
    if (self->lanes[out] != NULL) {
        TRY(send_message(self, out, CHAIN_LANDINGS, k));
    }
    if (self->lanes[in] != NULL) {
        TRY(check_message(self, in, from, landing, k));
        comm_credit(self->lanes[in], landing);
    }
    return STATUS_OK;
}

/* The order of 1F1B: the last rank turns around at once, those before it run ahead. */
static void run_chain(struct rig_rank *self)
{
    uint64_t seed = 77 + (uint64_t)self->rank;
    uint32_t ahead = (uint32_t)(self->rig->world - 1 - self->rank);
    enum status status = STATUS_OK;

    for (uint32_t k = 0; k < CHAIN_MESSAGES + ahead && status >= 0; k++) {
        if (k < CHAIN_MESSAGES) {
            status = pass_on(self, &seed, F_IN, F_OUT, k);
        }
        if (k >= ahead && status >= 0) {
            status = pass_on(self, &seed, B_IN, B_OUT, k - ahead);
        }
    }
    finish(self, status);
}

static void a_chain_of_four_ranks_with_delays_passes_every_message_on(void **state)
{
    (void)state;
    rig_run_on_two_kinds_of_hosts(CHAIN_RANKS, connect_chain, run_chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_lanes_both_ways_at_once_lose_and_swap_nothing),
        cmocka_unit_test(a_chain_of_four_ranks_with_delays_passes_every_message_on),
    };

    return cmocka_run_group_tests_name("comm_stream", tests, NULL, NULL);
}
