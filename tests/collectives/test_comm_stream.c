/* Many messages at once, between ranks that are threads: order, credits and contents. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm_rig.h"

#define BYTES 256

enum {
    F_OUT, /* lane F from this rank to the other */
    F_IN,
    B_OUT,
    B_IN
};

/* Both ranks have all four lanes with the other. */
static void connect_pair(struct rig_rank *self)
{
    int32_t other = 1 - self->rank;

    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, F_OUT, other, 0, true, 2, BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, F_IN, other, 0, false, 2, BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, B_OUT, other, 1, true, 3, BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, B_IN, other, 1, false, 3, BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

#define BOTH_WAYS_MESSAGES 20000

/* Sends on F and B and receives on F and B, all four interleaved, 1-deep out buffers. */
static void talk_both_ways(struct rig_rank *self)
{
    const struct cancel *cancel = &self->rig->cancel;
    int64_t deadline_ns = self->rig->deadline_ns;
    uint64_t out[2][BYTES / 8];

    for (uint32_t k = 0; k < BOTH_WAYS_MESSAGES; k++) {
        for (uint32_t direction = 0; direction < 2; direction++) {
            struct lane *lane = self->lanes[direction == 0 ? F_OUT : B_OUT];
            int32_t landing = (int32_t)(k % (2 + direction));
            uint32_t number = 2 * (uint32_t)self->rank + direction;

            RIG_EXPECT(self, comm_wait_sent(lane, cancel, deadline_ns) == STATUS_OK);
            rig_write(out[direction], BYTES, number, k);
            RIG_EXPECT(self, comm_post_send(lane, landing, k, out[direction], BYTES) == STATUS_OK);
        }
        for (uint32_t direction = 0; direction < 2; direction++) {
            struct lane *lane = self->lanes[direction == 0 ? F_IN : B_IN];
            int32_t landing = (int32_t)(k % (2 + direction));
            uint32_t number = 2 * (uint32_t)(1 - self->rank) + direction;

            RIG_EXPECT(self, comm_wait_arrival(lane, landing, k, cancel, deadline_ns) == STATUS_OK);
            RIG_EXPECT(self, rig_reads(comm_landing(lane, landing), BYTES, number, k));
            comm_credit(lane, landing);
        }
    }
    RIG_EXPECT(self, comm_wait_sent(self->lanes[F_OUT], cancel, deadline_ns) == STATUS_OK);
    RIG_EXPECT(self, comm_wait_sent(self->lanes[B_OUT], cancel, deadline_ns) == STATUS_OK);
}

static void two_lanes_both_ways_at_once_lose_and_swap_nothing(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        struct comm_rig rig;

        rig_init(&rig, 2, crowded == 1);
        rig_run(&rig, connect_pair);
        rig_assert_no_notes(&rig);
        rig_run(&rig, talk_both_ways);
        rig_assert_no_notes(&rig);
        rig_release(&rig);
    }
}

#define CHAIN_RANKS    4
#define CHAIN_LANDINGS 3
#define CHAIN_MESSAGES 17000 /* on each of 6 lanes: 102,000 */

enum {
    CHAIN_F_IN,
    CHAIN_F_OUT,
    CHAIN_B_IN,
    CHAIN_B_OUT
};

static void connect_chain(struct rig_rank *self)
{
    int32_t previous = self->rank - 1;
    int32_t next = self->rank + 1;

    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    if (previous >= 0) {
        RIG_EXPECT(self, rig_lane(self, CHAIN_F_IN, previous, 0, false, CHAIN_LANDINGS, BYTES) ==
                             STATUS_OK);
        RIG_EXPECT(self, rig_lane(self, CHAIN_B_OUT, previous, 1, true, CHAIN_LANDINGS, BYTES) ==
                             STATUS_OK);
    }
    if (next < self->rig->world) {
        RIG_EXPECT(self,
                   rig_lane(self, CHAIN_F_OUT, next, 0, true, CHAIN_LANDINGS, BYTES) == STATUS_OK);
        RIG_EXPECT(self,
                   rig_lane(self, CHAIN_B_IN, next, 1, false, CHAIN_LANDINGS, BYTES) == STATUS_OK);
    }
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* Takes message k of the lane that comes in, keeps it for a while, passes it on as its own. */
static void pass_on(struct rig_rank *self, int in, int out, uint32_t k, uint64_t *seed)
{
    static _Thread_local uint64_t buffers[4][BYTES / 8];
    const struct cancel *cancel = &self->rig->cancel;
    int64_t deadline_ns = self->rig->deadline_ns;
    int32_t landing = (int32_t)(k % CHAIN_LANDINGS);
    uint32_t direction = in == CHAIN_F_IN ? 0 : 1;
    uint32_t own = 2 * (uint32_t)self->rank + direction;
    uint32_t from = direction == 0 ? own - 2 : own + 2;
    struct lane *lane_in = self->lanes[in];
    struct lane *lane_out = self->lanes[out];

    if (lane_in != NULL) {
        RIG_EXPECT(self, comm_wait_arrival(lane_in, landing, k, cancel, deadline_ns) == STATUS_OK);
        RIG_EXPECT(self, rig_reads(comm_landing(lane_in, landing), BYTES, from, k));
    }
    for (uint32_t yields = rig_random(seed) % 4; rig_random(seed) % 16 == 0 && yields > 0;
         yields--) {
        (void)sched_yield();
    }
    if (lane_out != NULL) {
        RIG_EXPECT(self, comm_wait_sent(lane_out, cancel, deadline_ns) == STATUS_OK);
        rig_write(buffers[out], BYTES, own, k);
        RIG_EXPECT(self, comm_post_send(lane_out, landing, k, buffers[out], BYTES) == STATUS_OK);
    }
    if (lane_in != NULL) {
        RIG_EXPECT(self, rig_reads(comm_landing(lane_in, landing), BYTES, from, k));
        comm_credit(lane_in, landing);
    }
}

/* The order of 1F1B: the last rank turns around at once, those before it run ahead. */
static void run_chain(struct rig_rank *self)
{
    uint64_t seed = 77 + (uint64_t)self->rank;
    uint32_t ahead = (uint32_t)(self->rig->world - 1 - self->rank);

    for (uint32_t k = 0; k < CHAIN_MESSAGES + ahead && self->noted[0] == '\0'; k++) {
        if (k < CHAIN_MESSAGES) {
            pass_on(self, CHAIN_F_IN, CHAIN_F_OUT, k, &seed);
        }
        if (k >= ahead) {
            pass_on(self, CHAIN_B_IN, CHAIN_B_OUT, k - ahead, &seed);
        }
    }
    for (int lane = CHAIN_F_OUT; lane <= CHAIN_B_OUT; lane += CHAIN_B_OUT - CHAIN_F_OUT) {
        if (self->lanes[lane] != NULL && self->noted[0] == '\0') {
            RIG_EXPECT(self, comm_wait_sent(self->lanes[lane], &self->rig->cancel,
                                            self->rig->deadline_ns) == STATUS_OK);
        }
    }
    if (self->noted[0] != '\0') {
        cancel_request(&self->rig->cancel);
    }
}

static void a_chain_of_four_ranks_with_delays_passes_every_message_on(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        struct comm_rig rig;

        rig_init(&rig, CHAIN_RANKS, crowded == 1);
        rig_run(&rig, connect_chain);
        rig_assert_no_notes(&rig);
        rig_run(&rig, run_chain);
        rig_assert_no_notes(&rig);
        rig_release(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_lanes_both_ways_at_once_lose_and_swap_nothing),
        cmocka_unit_test(a_chain_of_four_ranks_with_delays_passes_every_message_on),
    };

    return cmocka_run_group_tests_name("comm_stream", tests, NULL, NULL);
}
