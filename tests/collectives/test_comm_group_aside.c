/* A group that is aside: its collectives run in a thread of their own, while the owner thread sends,
 * receives and combines. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "collectives/doorbell.h"
#include "comm_rig.h"

#define ELEMS       1000
#define BLOCK_BYTES ((size_t)2 * 1024 * sizeof(float))
#define ROUNDS      200
#define LANE_BYTES  64

enum {
    OWNER,
    ASIDE
};

static const int32_t both[2] = {0, 1};

static enum status open_aside(struct rig_rank *self)
{
    const struct group_config config = {.ranks = both, .count = 2, .aside = true};

    return comm_group_open(self->comm, &config, &self->groups[ASIDE]);
}

static void connect_all(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, comm_share(self->comm, BLOCK_BYTES) == STATUS_OK);
    RIG_EXPECT(self,
               rig_lane(self, 0, 1 - self->rank, 0, self->rank == 0, 1, LANE_BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_group(self, OWNER, 0, 1, 2) == STATUS_OK);
    RIG_EXPECT(self, open_aside(self) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* Sums in one half of the block, round after round; what a round has left is checked. */
static bool combine(struct rig_rank *self, int group, uint32_t rounds)
{
    const struct comm_rig *rig = self->rig;
    float *data = (float *)comm_shared(self->comm) + (group == ASIDE ? 1024 : 0);

    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t number = 2 * round + (uint32_t)group;

        rig_write_floats(data, 0, ELEMS, self->rank, number);
        if (comm_all_reduce(self->groups[group], data, ELEMS, COMM_SUM, &rig->cancel,
                            rig->deadline_ns) != STATUS_OK ||
            !rig_reads_sum(data, 0, ELEMS, both, 2, number)) {
            return false;
        }
    }
    return true;
}

static void *combine_aside(void *argument)
{
    return combine(argument, ASIDE, ROUNDS) ? argument : NULL;
}

/* One message after another through one landing buffer. */
static bool pass_messages(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;
    struct lane *lane = self->lanes[0];
    uint64_t out[LANE_BYTES / 8];

    for (uint32_t k = 0; k < ROUNDS; k++) {
        if (self->rank == 0) {
            rig_write(out, LANE_BYTES, 3, k);
            if (comm_post_send(lane, 0, k, out, LANE_BYTES) != STATUS_OK ||
                comm_wait_sent(lane, &rig->cancel, rig->deadline_ns) != STATUS_OK) {
                return false;
            }
        } else {
            if (comm_wait_arrival(lane, 0, k, &rig->cancel, rig->deadline_ns) != STATUS_OK ||
                !rig_reads(comm_landing(lane, 0), LANE_BYTES, 3, k)) {
                return false;
            }
            comm_credit(lane, 0);
        }
    }
    return true;
}

static void work_twice(struct rig_rank *self)
{
    pthread_t thread;
    void *well = NULL;
    bool passed = false;
    bool combined = false;

    RIG_EXPECT(self, pthread_create(&thread, NULL, combine_aside, self) == 0);
    passed = pass_messages(self);
    combined = combine(self, OWNER, ROUNDS);
    (void)pthread_join(thread, &well);
    RIG_EXPECT(self, passed);
    RIG_EXPECT(self, combined);
    RIG_EXPECT(self, well == self);
    RIG_EXPECT(self, comm_group_traffic(self->groups[ASIDE], COMM_ALL_REDUCE).calls == ROUNDS);
    RIG_EXPECT(self, comm_group_traffic(self->groups[OWNER], COMM_ALL_REDUCE).calls == ROUNDS);
}

static void two_threads_of_each_rank_work_on_groups_of_their_own(void **state)
{
    (void)state;
    rig_run_on_two_kinds_of_hosts(2, connect_all, work_twice);
}

/* The first finds its landing buffer free, the second does not. */
static bool post_two(struct lane *lane, uint64_t out[2][LANE_BYTES / 8])
{
    for (uint32_t k = 0; k < 2; k++) {
        rig_write(out[k], LANE_BYTES, 3, k);
        if (comm_post_send(lane, 0, k, out[k], LANE_BYTES) != STATUS_OK ||
            comm_sent(lane) != (k == 0)) {
            return false;
        }
    }
    return true;
}

/* Rank 0 has a send pending whose landing buffer becomes free between two collectives that are aside: their
 * waits do not touch it. */
static void leave_sends_alone(struct rig_rank *self)
{
    struct lane *lane = self->lanes[0];
    uint64_t out[2][LANE_BYTES / 8];

    RIG_EXPECT(self, self->rank == 1 || post_two(lane, out));
    RIG_EXPECT(self, combine(self, ASIDE, 1));
    if (self->rank == 1) {
        RIG_EXPECT(self, comm_arrived(lane, 0, 0) == STATUS_OK);
        comm_credit(lane, 0);
    }
    RIG_EXPECT(self, combine(self, ASIDE, 2));
    RIG_EXPECT(self, self->rank == 1 || (!comm_sent(lane) && comm_progress(self->comm) == 0));
    RIG_EXPECT(self, self->rank == 1 || comm_sent(lane));
}

static void a_wait_aside_retries_no_sends(void **state)
{
    (void)state;
    rig_run_on_two_kinds_of_hosts(2, connect_all, leave_sends_alone);
}

/* ---- The doorbell of two sleepers. ---- */

#define SLEEP_MOST_NS (20 * CLOCK_SECOND)

struct sleeper {
    struct doorbell bell;
    int armed; /* atomic */
    int64_t slept_ns;
};

static void *sleep_once(void *argument)
{
    struct sleeper *sleeper = argument;
    uint32_t seen = doorbell_arm(&sleeper->bell);
    int64_t begin_ns = clock_now_ns();

    __atomic_store_n(&sleeper->armed, 1, __ATOMIC_RELEASE);
    doorbell_sleep(&sleeper->bell, seen, SLEEP_MOST_NS);
    doorbell_disarm(&sleeper->bell);
    sleeper->slept_ns = clock_now_ns() - begin_ns;
    return NULL;
}

/* Who disarms while another one sleeps does not take its ring away. */
static void a_ring_reaches_the_sleeper_that_is_left(void **state)
{
    struct sleeper sleeper = {.armed = 0};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, sleep_once, &sleeper), 0);
    while (__atomic_load_n(&sleeper.armed, __ATOMIC_ACQUIRE) == 0) {
        clock_sleep_ns(CLOCK_MS);
    }
    clock_sleep_ns(20 * CLOCK_MS); /* it sleeps by now, most likely; else the ring is not needed */
    (void)doorbell_arm(&sleeper.bell);
    doorbell_disarm(&sleeper.bell);
    doorbell_ring(&sleeper.bell);
    (void)pthread_join(thread, NULL);
    assert_true(sleeper.slept_ns < SLEEP_MOST_NS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_of_each_rank_work_on_groups_of_their_own),
        cmocka_unit_test(a_wait_aside_retries_no_sends),
        cmocka_unit_test(a_ring_reaches_the_sleeper_that_is_left),
    };

    return cmocka_run_group_tests_name("comm_group_aside", tests, NULL, NULL);
}
