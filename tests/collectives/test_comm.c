/* Messages, credits and waits, one at a time. Once connected, a comm may be driven by any one thread, so most of
 * these tests drive both ends from the test's own thread, and nothing depends on timing. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "collectives/comm_shm.h"
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

static void pair_init(struct comm_rig *rig, bool crowded)
{
    rig_init(rig, 2, crowded);
    rig_run(rig, connect_pair);
    rig_assert_no_notes(rig);
}

static void a_message_lands_in_the_buffer_that_was_named(void **state)
{
    struct comm_rig rig;
    uint64_t out[BYTES / 8];
    struct lane *from;
    struct lane *to;

    (void)state;
    pair_init(&rig, false);
    from = rig.ranks[0].lanes[F_OUT];
    to = rig.ranks[1].lanes[F_IN];
    for (int32_t landing = 1; landing >= 0; landing--) {
        rig_write(out, BYTES, 7, (uint32_t)landing);
        assert_int_equal(comm_arrived(to, landing, 40 + (uint64_t)landing), STATUS_IN_PROGRESS);
        assert_int_equal(comm_post_send(from, landing, 40 + (uint64_t)landing, out, BYTES),
                         STATUS_OK);
        assert_true(comm_sent(from));
    }
    for (int32_t landing = 0; landing < 2; landing++) {
        assert_int_equal(comm_arrived(to, landing, 40 + (uint64_t)landing), STATUS_OK);
        assert_true(rig_reads(comm_landing(to, landing), BYTES, 7, (uint32_t)landing));
    }
    rig_release(&rig);
}

static void landing_buffers_are_aligned_and_do_not_move(void **state)
{
    struct comm_rig rig;
    struct lane *to;
    uint64_t out[BYTES / 8] = {0};
    void *first;

    (void)state;
    pair_init(&rig, false);
    to = rig.ranks[1].lanes[B_IN];
    first = comm_landing(to, 2);
    for (int32_t landing = 0; landing < 3; landing++) {
        assert_int_equal((uintptr_t)comm_landing(to, landing) % 128, 0);
    }
    assert_int_equal(comm_post_send(rig.ranks[0].lanes[B_OUT], 2, 1, out, BYTES), STATUS_OK);
    assert_ptr_equal(comm_landing(to, 2), first);
    rig_release(&rig);
}

static void a_rank_reserves_the_sum_of_its_landing_buffers(void **state)
{
    struct comm_rig rig;

    (void)state;
    pair_init(&rig, false);
    assert_int_equal(comm_reserved_bytes(rig.ranks[0].comm), (2 + 3) * BYTES);
    rig_release(&rig);
}

static void a_send_to_a_full_landing_buffer_is_pending_until_the_credit(void **state)
{
    struct comm_rig rig;
    uint64_t first[BYTES / 8];
    uint64_t second[BYTES / 8];
    struct lane *from;
    struct lane *to;
    int64_t begin_ns = -1;
    int64_t end_ns = -1;

    (void)state;
    pair_init(&rig, false);
    from = rig.ranks[0].lanes[F_OUT];
    to = rig.ranks[1].lanes[F_IN];
    rig_write(first, BYTES, 0, 1);
    rig_write(second, BYTES, 0, 2);
    comm_last_copy(from, &begin_ns, &end_ns);
    assert_true(begin_ns == 0 && end_ns == 0);
    assert_int_equal(comm_post_send(from, 0, 1, first, BYTES), STATUS_OK);
    assert_int_equal(comm_post_send(from, 0, 2, second, BYTES), STATUS_OK);
    assert_false(comm_sent(from));
    assert_int_equal(comm_progress(rig.ranks[0].comm), 1);
    assert_false(comm_sent(from));
    assert_true(rig_reads(comm_landing(to, 0), BYTES, 0, 1));

    comm_credit(to, 0);
    assert_false(comm_sent(from)); /* a look is no retry */
    assert_int_equal(comm_arrived(to, 0, 2), STATUS_IN_PROGRESS);
    assert_int_equal(comm_progress(rig.ranks[0].comm), 0);
    assert_true(comm_sent(from));
    assert_int_equal(comm_arrived(to, 0, 2), STATUS_OK);
    assert_true(rig_reads(comm_landing(to, 0), BYTES, 0, 2));
    comm_last_copy(from, &begin_ns, &end_ns);
    assert_true(begin_ns > 0 && end_ns >= begin_ns && end_ns <= clock_now_ns());
    rig_release(&rig);
}

static void another_tag_than_the_expected_is_an_error_that_names_both(void **state)
{
    struct comm_rig rig;
    uint64_t out[BYTES / 8] = {0};
    struct lane *to;

    (void)state;
    pair_init(&rig, false);
    to = rig.ranks[1].lanes[F_IN];
    assert_int_equal(comm_post_send(rig.ranks[0].lanes[F_OUT], 1, 0xabc, out, BYTES), STATUS_OK);
    assert_int_equal(comm_arrived(to, 1, 0xdef), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "0xabc"));
    assert_non_null(strstr(status_last()->message, "0xdef"));
    assert_non_null(strstr(status_last()->message, "F from rank 0 to rank 1"));
    assert_int_equal(comm_wait_arrival(to, 1, 0xdef, NULL, CLOCK_NEVER), STATUS_ERR_FORMAT);
    assert_int_equal(comm_arrived(to, 1, 0xabc), STATUS_OK);
    rig_release(&rig);
}

static void a_wait_for_one_lane_retries_the_sends_of_all(void **state)
{
    struct comm_rig rig;
    uint64_t out[BYTES / 8] = {0};
    struct rig_rank *zero = &rig.ranks[0];
    struct rig_rank *one = &rig.ranks[1];

    (void)state;
    pair_init(&rig, true);
    for (int lane = F_OUT; lane <= B_OUT; lane += B_OUT - F_OUT) {
        assert_int_equal(comm_post_send(zero->lanes[lane], 0, 1, out, BYTES), STATUS_OK);
        assert_int_equal(comm_post_send(zero->lanes[lane], 0, 2, out, BYTES), STATUS_OK);
    }
    comm_credit(one->lanes[F_IN], 0);
    comm_credit(one->lanes[B_IN], 0);
    /* The deadline is over, so the wait looks once and retries all the same. */
    assert_int_equal(comm_wait_arrival(zero->lanes[B_IN], 0, 9, NULL, 0), STATUS_ERR_TIMEOUT);
    assert_true(comm_sent(zero->lanes[F_OUT]));
    assert_true(comm_sent(zero->lanes[B_OUT]));
    assert_int_equal(comm_arrived(one->lanes[F_IN], 0, 2), STATUS_OK);
    assert_int_equal(comm_arrived(one->lanes[B_IN], 0, 2), STATUS_OK);
    rig_release(&rig);
}

static void waiting_for_a_send_ends_when_it_has_been_copied(void **state)
{
    struct comm_rig rig;
    uint64_t out[BYTES / 8] = {0};
    struct lane *from;

    (void)state;
    pair_init(&rig, false);
    from = rig.ranks[0].lanes[F_OUT];
    assert_int_equal(comm_wait_sent(from, NULL, 0), STATUS_OK); /* nothing is pending */
    assert_int_equal(comm_post_send(from, 0, 1, out, BYTES), STATUS_OK);
    assert_int_equal(comm_post_send(from, 0, 2, out, BYTES), STATUS_OK);
    assert_int_equal(comm_wait_sent(from, NULL, 0), STATUS_ERR_TIMEOUT);
    assert_non_null(strstr(status_last()->message, "F from rank 0 to rank 1"));
    comm_credit(rig.ranks[1].lanes[F_IN], 0);
    assert_int_equal(comm_wait_sent(from, NULL, 0), STATUS_OK);
    rig_release(&rig);
}

static void a_message_may_be_empty_or_as_large_as_the_landing_buffer(void **state)
{
    struct comm_rig rig;
    uint64_t out[BYTES / 8];

    (void)state;
    pair_init(&rig, false);
    rig_write(out, BYTES, 1, 1);
    assert_int_equal(comm_post_send(rig.ranks[0].lanes[F_OUT], 0, 5, NULL, 0), STATUS_OK);
    assert_int_equal(comm_post_send(rig.ranks[0].lanes[F_OUT], 1, 6, out, BYTES), STATUS_OK);
    assert_int_equal(comm_arrived(rig.ranks[1].lanes[F_IN], 0, 5), STATUS_OK);
    assert_int_equal(comm_arrived(rig.ranks[1].lanes[F_IN], 1, 6), STATUS_OK);
    assert_true(rig_reads(comm_landing(rig.ranks[1].lanes[F_IN], 1), BYTES, 1, 1));
    rig_release(&rig);
}

static uint32_t rings_of(const struct rig_rank *rank)
{
    return ((const struct comm_shm *)(const void *)rank->comm)->page->doorbell.rings;
}

/* A ring that is missing costs time and no message, as waits look again anyway: so it is counted.
 */
static void a_message_rings_the_receiver_and_a_credit_the_sender(void **state)
{
    struct comm_rig rig;
    uint64_t out[BYTES / 8] = {0};

    (void)state;
    pair_init(&rig, false);
    assert_int_equal(comm_post_send(rig.ranks[0].lanes[F_OUT], 0, 1, out, BYTES), STATUS_OK);
    assert_int_equal(rings_of(&rig.ranks[0]), 0);
    assert_int_equal(rings_of(&rig.ranks[1]), 1);
    comm_credit(rig.ranks[1].lanes[F_IN], 0);
    assert_int_equal(rings_of(&rig.ranks[0]), 1);
    assert_int_equal(rings_of(&rig.ranks[1]), 1);
    rig_release(&rig);
}

/* ---- Waits that end without what they waited for. ---- */

static void wait_for_ever(struct rig_rank *self)
{
    /* The rank's own deadline would end the test in a failure, not in a hang. */
    self->connected =
        comm_wait_arrival(self->lanes[F_IN], 0, 1, &self->rig->cancel, self->rig->deadline_ns);
}

static void check_deadline_ends_a_wait(bool crowded)
{
    struct comm_rig rig;
    int64_t deadline_ns;

    pair_init(&rig, crowded);
    deadline_ns = clock_now_ns() + 20 * CLOCK_MS;
    assert_int_equal(comm_wait_arrival(rig.ranks[0].lanes[B_IN], 2, 0x77, NULL, deadline_ns),
                     STATUS_ERR_TIMEOUT);
    assert_true(clock_now_ns() >= deadline_ns);
    assert_non_null(strstr(status_last()->message, "B from rank 1 to rank 0"));
    assert_non_null(strstr(status_last()->message, "0x77"));
    rig_release(&rig);
}

static void a_deadline_ends_a_wait_and_names_what_was_missing(void **state)
{
    (void)state;
    check_deadline_ends_a_wait(false);
    check_deadline_ends_a_wait(true);
}

static void *cancel_job(void *context)
{
    struct comm_rig *rig = context;

    cancel_request(&rig->cancel);
    return NULL;
}

static void *abort_rank_zero(void *context)
{
    struct comm_rig *rig = context;

    comm_abort(rig->ranks[0].comm);
    return NULL;
}

/* Both ranks wait for messages that nobody sends, in threads of their own, until `end` runs. */
static void check_waits_end_by(void *(*end)(void *), bool crowded)
{
    struct comm_rig rig;
    pthread_t thread;

    pair_init(&rig, crowded);
    assert_int_equal(pthread_create(&thread, NULL, end, &rig), 0);
    rig_run(&rig, wait_for_ever);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(rig.ranks[0].connected, STATUS_ERR_CANCELLED);
    assert_int_equal(rig.ranks[1].connected, STATUS_ERR_CANCELLED);
    /* And so does every later wait. */
    assert_int_equal(comm_wait_arrival(rig.ranks[1].lanes[B_IN], 1, 1, &rig.cancel, CLOCK_NEVER),
                     STATUS_ERR_CANCELLED);
    rig_release(&rig);
}

static void cancel_ends_every_wait(void **state)
{
    (void)state;
    check_waits_end_by(cancel_job, false);
    check_waits_end_by(cancel_job, true);
}

static void an_abort_ends_the_waits_of_this_rank_and_of_its_peer(void **state)
{
    (void)state;
    check_waits_end_by(abort_rank_zero, false);
    check_waits_end_by(abort_rank_zero, true);
}

static void an_abort_ends_the_wait_for_a_pending_send(void **state)
{
    struct comm_rig rig;
    uint64_t out[BYTES / 8] = {0};
    struct lane *from;

    (void)state;
    pair_init(&rig, true);
    from = rig.ranks[0].lanes[F_OUT];
    assert_int_equal(comm_post_send(from, 0, 1, out, BYTES), STATUS_OK);
    assert_int_equal(comm_post_send(from, 0, 2, out, BYTES), STATUS_OK);
    comm_abort(rig.ranks[1].comm);
    assert_int_equal(comm_wait_sent(from, NULL, CLOCK_NEVER), STATUS_ERR_CANCELLED);
    rig_release(&rig);
}

static void what_a_rank_sent_before_it_closed_is_still_there(void **state)
{
    struct comm_rig rig;
    uint64_t out[BYTES / 8];
    struct lane *to;

    (void)state;
    pair_init(&rig, false);
    to = rig.ranks[1].lanes[F_IN];
    rig_write(out, BYTES, 3, 4);
    assert_int_equal(comm_post_send(rig.ranks[0].lanes[F_OUT], 0, 1, out, BYTES), STATUS_OK);
    comm_close(&rig.ranks[0].comm);
    assert_null(rig.ranks[0].comm);
    comm_close(&rig.ranks[0].comm);
    assert_int_equal(comm_wait_arrival(to, 0, 1, NULL, 0), STATUS_OK);
    assert_true(rig_reads(comm_landing(to, 0), BYTES, 3, 4));
    comm_credit(to, 0); /* rings a rank that is gone */
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_lands_in_the_buffer_that_was_named),
        cmocka_unit_test(landing_buffers_are_aligned_and_do_not_move),
        cmocka_unit_test(a_rank_reserves_the_sum_of_its_landing_buffers),
        cmocka_unit_test(a_send_to_a_full_landing_buffer_is_pending_until_the_credit),
        cmocka_unit_test(another_tag_than_the_expected_is_an_error_that_names_both),
        cmocka_unit_test(a_wait_for_one_lane_retries_the_sends_of_all),
        cmocka_unit_test(waiting_for_a_send_ends_when_it_has_been_copied),
        cmocka_unit_test(a_message_may_be_empty_or_as_large_as_the_landing_buffer),
        cmocka_unit_test(a_message_rings_the_receiver_and_a_credit_the_sender),
        cmocka_unit_test(a_deadline_ends_a_wait_and_names_what_was_missing),
        cmocka_unit_test(cancel_ends_every_wait),
        cmocka_unit_test(an_abort_ends_the_waits_of_this_rank_and_of_its_peer),
        cmocka_unit_test(an_abort_ends_the_wait_for_a_pending_send),
        cmocka_unit_test(what_a_rank_sent_before_it_closed_is_still_there),
    };

    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}
