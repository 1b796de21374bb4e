/* The data plane over NCCL where something goes wrong: who is told, when, and with which words. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm_rig.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/fake_nccl.h"

#define RANKS    3
#define ALL      0 /* the group of all ranks */
#define LANDINGS 2
#define BYTES    ((size_t)256)

enum {
    IN, /* lane F from the rank before */
    OUT
};

/* A chain with one direction, and one group. */
static void connect_chain(struct rig_rank *self)
{
    int32_t last = self->rig->world - 1;

    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, comm_share(self->comm, 4096) == STATUS_OK);
    RIG_EXPECT(self, rig_group(self, ALL, 0, 1, self->rig->world) == STATUS_OK);
    if (self->rank > 0) {
        RIG_EXPECT(self,
                   rig_lane(self, IN, self->rank - 1, 0, false, LANDINGS, BYTES) == STATUS_OK);
    }
    if (self->rank < last) {
        RIG_EXPECT(self,
                   rig_lane(self, OUT, self->rank + 1, 0, true, LANDINGS, BYTES) == STATUS_OK);
    }
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* Message k of the chain, from the first rank to the last. */
static enum status pass_on(struct rig_rank *self, uint64_t k)
{
    int32_t landing = (int32_t)(k % LANDINGS);
    void *out = rig_memory(self, OUT, BYTES);

    if (self->lanes[IN] != NULL) {
        TRY(comm_post_receive(self->lanes[IN], landing, k));
        TRY(comm_wait_arrival(self->lanes[IN], landing, k, NULL, CLOCK_NEVER));
    }
    if (self->lanes[OUT] != NULL) {
        TRY(comm_wait_sent(self->lanes[OUT], NULL, CLOCK_NEVER));
        TRY(comm_post_send(self->lanes[OUT], landing, k, out, BYTES));
    }
    if (self->lanes[IN] != NULL) {
        comm_credit(self->lanes[IN], landing);
    }
    return STATUS_OK;
}

static enum status sum(struct rig_rank *self)
{
    return comm_all_reduce(self->groups[ALL], comm_shared(self->comm), 100, COMM_SUM, NULL,
                           CLOCK_NEVER);
}

/* Five messages and a sum, all enqueued, then the step's one wait; what comes of it is the test's. */
static enum status step(struct rig_rank *self)
{
    struct comm_rig *rig = self->rig;

    for (uint64_t k = 0; k < 5; k++) {
        TRY(pass_on(self, k));
    }
    TRY(sum(self));
    return device_wait(self->device, &rig->cancel, rig->deadline_ns);
}

static void run_step(struct rig_rank *self)
{
    self->connected = step(self);
}

static void init(struct comm_rig *rig)
{
    rig_init(rig, RANKS, false);
    rig_run(rig, connect_chain);
    rig_assert_no_notes(rig);
}

/* The control plane does it in a job. */
static void abort_all(struct comm_rig *rig)
{
    for (int32_t rank = 0; rank < RANKS; rank++) {
        comm_abort(rig->ranks[rank].comm);
    }
}

static void assert_says(const struct comm_rig *rig, int32_t rank, const char *words)
{
    if (strstr(rig->ranks[rank].failure.message, words) == NULL) {
        fail_msg("rank %d says \"%s\", without \"%s\"", rank, rig->ranks[rank].failure.message,
                 words);
    }
}

/* ---- Deadlines: who waits for whom. ---- */

static void a_message_that_hangs_is_named_at_both_ends(void **state)
{
    struct comm_rig rig;

    (void)state;
    init(&rig);
    fake_nccl_hang(0, 3); /* its third send */
    rig.deadline_ns = clock_deadline(2.0);
    rig_run(&rig, run_step);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_PEER);
    }
    assert_says(
        &rig, 0,
        "rank 0 waits for rank 1: message 3 of the lane F from rank 0 to rank 1 (256 bytes)");
    assert_says(
        &rig, 1,
        "rank 1 waits for rank 0: message 3 of the lane F from rank 0 to rank 1 (256 bytes)");
    assert_says(
        &rig, 2,
        "rank 2 waits for rank 1: message 3 of the lane F from rank 1 to rank 2 (256 bytes)");
    assert_says(&rig, 2, "behind it 2 more");
    assert_says(&rig, 2, "timed out");
    abort_all(&rig);
    rig_release(&rig);
}

static void a_member_that_hangs_in_a_group_is_waited_for_by_name_of_the_call(void **state)
{
    struct comm_rig rig;

    (void)state;
    init(&rig);
    fake_nccl_hang(1, 11); /* behind five receives and five sends */
    rig.deadline_ns = clock_deadline(2.0);
    rig_run(&rig, run_step);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_PEER);
        assert_says(&rig, rank,
                    "waits for the other members of the group of ranks 0, 1, 2: call 1, "
                    "all_reduce (sum) of 100");
    }
    abort_all(&rig);
    rig_release(&rig);
}

/* More messages ahead than are recorded one by one. */
static void send_many(struct rig_rank *self)
{
    struct comm_rig *rig = self->rig;

    if (self->rank != 0) {
        return;
    }
    for (uint64_t k = 0; k < 400; k++) {
        RIG_EXPECT(self, comm_wait_sent(self->lanes[OUT], NULL, CLOCK_NEVER) == STATUS_OK);
        RIG_EXPECT(self, comm_post_send(self->lanes[OUT], (int32_t)(k % LANDINGS), k,
                                        rig_memory(self, OUT, BYTES), BYTES) == STATUS_OK);
    }
    self->connected = device_wait(self->device, &rig->cancel, rig->deadline_ns);
}

static void messages_far_ahead_are_still_named_from_the_first_on(void **state)
{
    struct comm_rig rig;

    (void)state;
    init(&rig);
    rig.deadline_ns = clock_deadline(2.0);
    rig_run(&rig, send_many);
    rig_assert_no_notes(&rig);
    assert_int_equal(rig.ranks[0].connected, STATUS_ERR_PEER);
    assert_says(&rig, 0, "rank 0 waits for rank 1: message 1 of the lane F from rank 0 to rank 1");
    assert_says(&rig, 0, "behind it 399 more");
    abort_all(&rig);
    rig_release(&rig);
}

static void send_far_ahead(struct rig_rank *self)
{
    for (uint64_t k = 0; k < 400 && self->rank == 0; k++) {
        RIG_EXPECT(self, pass_on(self, k) == STATUS_OK);
    }
}

static enum status receive_many(struct rig_rank *self)
{
    struct lane *lane = self->lanes[IN];

    for (uint64_t k = 0; k < 400; k++) {
        int32_t landing = (int32_t)(k % LANDINGS);

        TRY(comm_post_receive(lane, landing, k));
        TRY(comm_wait_arrival(lane, landing, k, NULL, CLOCK_NEVER));
        comm_credit(lane, landing);
    }
    return STATUS_OK;
}

static void receive_and_wait(struct rig_rank *self)
{
    struct comm_rig *rig = self->rig;

    RIG_EXPECT(self, self->rank != 1 || receive_many(self) == STATUS_OK);
    self->connected = device_wait(self->device, &rig->cancel, rig->deadline_ns);
}

/* All sends stand in their stream before the first receive is there; the last record has all that found no room. */
static void messages_beyond_the_record_are_named_together(void **state)
{
    struct comm_rig rig;

    (void)state;
    init(&rig);
    rig_run(&rig, send_far_ahead);
    fake_nccl_hang(1, 300);
    rig.deadline_ns = clock_deadline(3.0);
    rig_run(&rig, receive_and_wait);
    rig_assert_no_notes(&rig);
    assert_int_equal(rig.ranks[0].connected, STATUS_ERR_PEER);
    assert_says(&rig, 0, "rank 0 waits for rank 1: message 256 to 400 of the lane F");
    abort_all(&rig);
    rig_release(&rig);
}

static void wait_for_nobody(struct rig_rank *self)
{
    self->connected = device_wait(self->device, NULL, self->rig->deadline_ns);
}

static void a_plane_without_work_says_nothing_of_a_wait(void **state)
{
    struct comm_rig rig;

    (void)state;
    init(&rig);
    rig_run(&rig, wait_for_nobody);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(rig.ranks[rank].connected, STATUS_OK);
    }
    rig_release(&rig);
}

/* ---- Errors. ---- */

static void run_step_and_tell(struct rig_rank *self)
{
    self->connected = step(self);
    if (self->connected == STATUS_ERR_CUDA) {
        cancel_request(&self->rig->cancel); /* as the control plane tells the others */
    }
}

/* Rank 1 fails in its sixth operation: a message of one of its lanes, so that the other end of this one knows too. */
static void an_error_of_one_rank_ends_all_and_names_it(void **state)
{
    struct comm_rig rig;
    int64_t begin_ns;

    (void)state;
    init(&rig);
    fake_nccl_fail(1, 6);
    begin_ns = clock_now_ns();
    rig_run(&rig, run_step_and_tell);
    assert_true(clock_now_ns() - begin_ns < 10 * CLOCK_SECOND); /* the deadline is a minute away */
    assert_int_equal(rig.ranks[0].connected, STATUS_ERR_CANCELLED);
    assert_int_equal(rig.ranks[1].connected, STATUS_ERR_CUDA);
    assert_true(rig.ranks[2].connected == STATUS_ERR_PEER || /* by itself, */
                rig.ranks[2].connected == STATUS_ERR_CANCELLED /* or told first */);
    assert_says(&rig, 1, "of the lane F from rank 1 to rank 2: NCCL: unhandled system error");
    assert_says(&rig, 1, "rank 1: send of 256 bytes: made to fail");
    rig_release(&rig);
}

/* An error that its own rank tells nobody: the other end sees it by itself. */
static void the_other_end_of_an_error_knows_that_its_peer_has_failed(void **state)
{
    struct comm_rig rig;

    (void)state;
    init(&rig);
    fake_nccl_fail(1, 11); /* in the group of all */
    rig_run(&rig, run_step);
    assert_int_equal(rig.ranks[0].connected, STATUS_ERR_PEER);
    assert_int_equal(rig.ranks[1].connected, STATUS_ERR_CUDA);
    assert_int_equal(rig.ranks[2].connected, STATUS_ERR_PEER);
    assert_says(&rig, 0, "rank 0, work of the group of ranks 0, 1, 2: NCCL: remote process exited");
    assert_says(&rig, 2, "rank 1 has failed");
    rig_release(&rig);
}

static void call_differently(struct rig_rank *self)
{
    struct comm_rig *rig = self->rig;

    self->connected = comm_all_reduce(self->groups[ALL], comm_shared(self->comm),
                                      self->rank == 2 ? 7 : 100, COMM_SUM, NULL, CLOCK_NEVER);
    if (self->connected == STATUS_OK) {
        self->connected = device_wait(self->device, &rig->cancel, rig->deadline_ns);
    }
}

static void members_that_call_differently_do_not_get_a_number(void **state)
{
    struct comm_rig rig;

    (void)state;
    init(&rig);
    rig_run(&rig, call_differently);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_CUDA);
        assert_says(&rig, rank, "rank 2: all_reduce of 7 floats, sum");
    }
    rig_release(&rig);
}

/* The GPU itself is lost. */
static void lose_the_gpu(struct rig_rank *self)
{
    if (self->rank == 1) {
        fake_cuda_abort(self->gpu);
        self->connected = step(self);
        RIG_EXPECT(self, self->connected == STATUS_ERR_CUDA);
        RIG_EXPECT(self, comm_check(self->comm) == STATUS_OK); /* NCCL knows nothing */
    }
}

static void a_lost_gpu_is_an_error_of_the_first_call(void **state)
{
    struct comm_rig rig;

    (void)state;
    init(&rig);
    rig_run(&rig, lose_the_gpu);
    rig_assert_no_notes(&rig);
    assert_says(&rig, 1, "unspecified launch failure");
    abort_all(&rig);
    rig_release(&rig);
}

/* ---- The end from outside. ---- */

struct ender {
    struct comm_rig *rig;
    bool cancels;
    int64_t at_ns;
};

static void *end_the_job(void *context)
{
    struct ender *ender = context;

    clock_sleep_ns(100 * CLOCK_MS);
    ender->at_ns = clock_now_ns();
    if (ender->cancels) {
        cancel_request(&ender->rig->cancel);
    } else {
        abort_all(ender->rig);
        abort_all(ender->rig); /* a second time is fine */
    }
    return NULL;
}

static void check_frees(bool cancels)
{
    struct comm_rig rig;
    struct ender ender = {.rig = &rig, .cancels = cancels};
    size_t aborted = fake_nccl_aborted();
    pthread_t thread;

    init(&rig);
    fake_nccl_hang(0, 3);
    assert_int_equal(pthread_create(&thread, NULL, end_the_job, &ender), 0);
    rig_run(&rig, run_step);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(clock_now_ns() - ender.at_ns < 10 * CLOCK_SECOND);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_CANCELLED);
        if (!cancels) {
            assert_says(&rig, rank, "has been aborted");
        }
    }
    rig_release(&rig);
    /* Each rank: the world, the group, and its lanes. */
    assert_int_equal(fake_nccl_aborted() - aborted, 2 * RANKS + 4);
}

static void an_abort_frees_every_rank_long_before_its_deadline(void **state)
{
    (void)state;
    check_frees(false);
}

static void a_cancel_frees_every_rank_and_the_end_aborts(void **state)
{
    (void)state;
    check_frees(true);
}

/* A stream comes to its end because its communicator has gone: nobody takes that for a result. */
static void wait_twice(struct rig_rank *self)
{
    self->connected = step(self);
    RIG_EXPECT(self, self->connected == STATUS_ERR_CANCELLED);
    RIG_EXPECT(self, device_wait(self->device, NULL, CLOCK_NEVER) == STATUS_ERR_CANCELLED);
    RIG_EXPECT(self, comm_check(self->comm) == STATUS_ERR_CANCELLED);
    RIG_EXPECT(self, sum(self) == STATUS_ERR_CANCELLED);
    RIG_EXPECT(self, pass_on(self, 5) == STATUS_ERR_CANCELLED);
}

static void what_comes_behind_an_abort_is_cancelled_too(void **state)
{
    struct comm_rig rig;

    (void)state;
    init(&rig);
    abort_all(&rig);
    rig_run(&rig, wait_twice);
    rig_assert_no_notes(&rig);
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_that_hangs_is_named_at_both_ends),
        cmocka_unit_test(a_member_that_hangs_in_a_group_is_waited_for_by_name_of_the_call),
        cmocka_unit_test(messages_far_ahead_are_still_named_from_the_first_on),
        cmocka_unit_test(messages_beyond_the_record_are_named_together),
        cmocka_unit_test(a_plane_without_work_says_nothing_of_a_wait),
        cmocka_unit_test(an_error_of_one_rank_ends_all_and_names_it),
        cmocka_unit_test(the_other_end_of_an_error_knows_that_its_peer_has_failed),
        cmocka_unit_test(members_that_call_differently_do_not_get_a_number),
        cmocka_unit_test(a_lost_gpu_is_an_error_of_the_first_call),
        cmocka_unit_test(an_abort_frees_every_rank_long_before_its_deadline),
        cmocka_unit_test(a_cancel_frees_every_rank_and_the_end_aborts),
        cmocka_unit_test(what_comes_behind_an_abort_is_cancelled_too),
    };

    return cmocka_run_group_tests_name("comm_nccl_failures", tests, NULL, NULL);
}
