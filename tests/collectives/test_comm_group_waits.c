/* Collectives that wait: for peers that send meanwhile, that do something else, and that never come. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm_rig.h"

#define BLOCK_BYTES 4096
#define ALL         0 /* the group of all ranks */

static const int32_t all_ranks[RIG_RANKS_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};

/* All ranks are one group, and no rank has a lane. */
static void connect_all(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, comm_share(self->comm, BLOCK_BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_group(self, ALL, 0, 1, self->rig->world) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* ---- Together with lanes. ---- */

#define LANE_BYTES 64

static void connect_lane_and_group(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, comm_share(self->comm, BLOCK_BYTES) == STATUS_OK);
    RIG_EXPECT(self,
               rig_lane(self, 0, 1 - self->rank, 0, self->rank == 0, 1, LANE_BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_group(self, ALL, 0, 1, 2) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* Message k of rank 0 to rank 1, which takes its time. */
static bool pass_message(struct rig_rank *self, uint64_t k, uint64_t out[LANE_BYTES / 8])
{
    const struct comm_rig *rig = self->rig;
    struct lane *lane = self->lanes[0];

    if (self->rank == 0) {
        rig_write(out, LANE_BYTES, 3, (uint32_t)k);
        return comm_post_send(lane, 0, k, out, LANE_BYTES) == STATUS_OK;
    }
    clock_sleep_ns(20 * CLOCK_MS);
    if (comm_wait_arrival(lane, 0, k, &rig->cancel, rig->deadline_ns) != STATUS_OK ||
        !rig_reads(comm_landing(lane, 0), LANE_BYTES, 3, (uint32_t)k)) {
        return false;
    }
    comm_credit(lane, 0);
    return true;
}

/* Rank 0 goes into the collective with a send that finds its landing buffer full. Rank 1 comes to
 * the collective only when that message is there: unless rank 0 retries in its wait, both hang. */
static void send_inside_a_collective(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;
    uint64_t out[2][LANE_BYTES / 8];
    float *data = comm_shared(self->comm);
    struct comm_traffic traffic;

    rig_write_floats(data, 0, 100, self->rank, 5);
    RIG_EXPECT(self, pass_message(self, 0, out[0]));
    RIG_EXPECT(self, pass_message(self, 1, out[1]));
    RIG_EXPECT(self, comm_all_reduce(self->groups[ALL], data, 100, COMM_SUM, &rig->cancel,
                                     rig->deadline_ns) == STATUS_OK);
    RIG_EXPECT(self, rig_reads_sum(data, 0, 100, all_ranks, 2, 5));
    RIG_EXPECT(self, self->rank == 1 || comm_sent(self->lanes[0]));
    traffic = comm_lane_traffic(self->lanes[0]);
    RIG_EXPECT(self, traffic.calls == 2 && traffic.bytes == (uint64_t)2 * LANE_BYTES);
}

static void a_collective_retries_pending_sends_while_it_waits(void **state)
{
    (void)state;
    rig_run_on_two_kinds_of_hosts(2, connect_lane_and_group, send_inside_a_collective);
}

/* ---- Calls that do not end well. ---- */

static void call_differently(struct rig_rank *self)
{
    float *data = comm_shared(self->comm);
    const struct comm_rig *rig = self->rig;

    if (self->rank == 2) {
        self->connected =
            comm_all_gather(self->groups[ALL], data + 32, 200, &rig->cancel, rig->deadline_ns);
    } else {
        self->connected =
            comm_all_reduce(self->groups[ALL], data, 100, COMM_SUM, &rig->cancel, rig->deadline_ns);
    }
}

static void members_that_call_differently_all_fail_with_both_calls(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 3, false);
    rig_run(&rig, connect_all);
    rig_assert_no_notes(&rig);
    rig_run(&rig, call_differently);
    for (int32_t rank = 0; rank < 3; rank++) {
        const char *message = rig.ranks[rank].failure.message;

        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_FORMAT);
        assert_non_null(strstr(message, "0, 1, 2"));
        assert_non_null(strstr(message, "all_gather of 200"));
        assert_non_null(strstr(message, "byte 128"));
        assert_true(strstr(message, "all_reduce (sum) of 100") != NULL);
    }
    /* The group is broken, and says so at once. */
    assert_int_equal(comm_all_reduce(rig.ranks[0].groups[ALL], comm_shared(rig.ranks[0].comm), 1,
                                     COMM_SUM, NULL, CLOCK_NEVER),
                     STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "broken"));
    rig_release(&rig);
}

/* Rank 1 never comes. */
static void call_without_rank_one(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;

    if (self->rank != 1) {
        self->connected = comm_all_reduce(self->groups[ALL], comm_shared(self->comm), 100, COMM_SUM,
                                          &rig->cancel, rig->deadline_ns);
    }
}

static void a_deadline_names_the_group_and_who_has_not_come(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        struct comm_rig rig;
        struct rig_rank *zero = &rig.ranks[0];

        rig_init(&rig, 3, crowded == 1);
        rig_run(&rig, connect_all);
        rig_assert_no_notes(&rig);
        /* Time for the others to come, however busy the machine is. */
        rig.deadline_ns = clock_now_ns() + 500 * CLOCK_MS;
        rig_run(&rig, call_without_rank_one);
        assert_int_equal(zero->connected, STATUS_ERR_TIMEOUT);
        assert_int_equal(rig.ranks[2].connected, STATUS_ERR_TIMEOUT);
        assert_non_null(strstr(zero->failure.message, "group of ranks 0, 1, 2"));
        assert_non_null(strstr(zero->failure.message, "all_reduce (sum) of 100 floats"));
        assert_non_null(strstr(rig.ranks[2].failure.message, "for rank 1:"));
        rig_release(&rig);
    }
}

struct ender {
    struct comm_rig *rig;
    bool aborts;
    int64_t at_ns;
};

static void *end_the_job(void *context)
{
    struct ender *ender = context;

    clock_sleep_ns(30 * CLOCK_MS);
    ender->at_ns = clock_now_ns();
    if (ender->aborts) {
        comm_abort(ender->rig->ranks[1].comm);
    } else {
        cancel_request(&ender->rig->cancel);
    }
    return NULL;
}

static void check_frees(bool aborts, bool crowded)
{
    struct comm_rig rig;
    struct ender ender = {.rig = &rig, .aborts = aborts};
    pthread_t thread;

    rig_init(&rig, 3, crowded);
    rig_run(&rig, connect_all);
    rig_assert_no_notes(&rig);
    assert_int_equal(pthread_create(&thread, NULL, end_the_job, &ender), 0);
    rig_run(&rig, call_without_rank_one);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(clock_now_ns() - ender.at_ns < 10 * CLOCK_SECOND);
    assert_int_equal(rig.ranks[0].connected, STATUS_ERR_CANCELLED);
    assert_int_equal(rig.ranks[2].connected, STATUS_ERR_CANCELLED);
    rig_release(&rig);
}

/* The rig's deadline is a minute away. */
static void
cancel_and_the_abort_of_a_member_free_the_others_long_before_their_deadline(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        check_frees(i % 2 == 1, i / 2 == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_collective_retries_pending_sends_while_it_waits),
        cmocka_unit_test(members_that_call_differently_all_fail_with_both_calls),
        cmocka_unit_test(a_deadline_names_the_group_and_who_has_not_come),
        cmocka_unit_test(
            cancel_and_the_abort_of_a_member_free_the_others_long_before_their_deadline),
    };

    return cmocka_run_group_tests_name("comm_group_waits", tests, NULL, NULL);
}
