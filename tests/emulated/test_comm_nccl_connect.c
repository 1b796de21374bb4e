/* How the communicators of the plane over NCCL come, and when they do not. */
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

#define BYTES ((size_t)256)

static void assert_says(const struct comm_rig *rig, int32_t rank, const char *words)
{
    if (strstr(rig->ranks[rank].failure.message, words) == NULL) {
        fail_msg("rank %d says \"%s\", without \"%s\"", rank, rig->ranks[rank].failure.message,
                 words);
    }
}

/* What has failed somewhere reaches the others as in a job. */
static void connect_and_tell(struct rig_rank *self)
{
    if (rig_connect(self) < 0) {
        cancel_request(&self->rig->cancel);
    }
}

/* ---- A grid: two pipelines of three ranks, replicas beside one another, and lanes back from the last to the first. ---- */

#define PIPELINE 3
#define WAVES    3

/* Of the lane to the next stage, or from the one before. 0-1, 1-2, and 2-0, which closes the ring. */
static enum status open_ring_lane(struct rig_rank *self, bool sends)
{
    int32_t replica = self->rank % 2;
    int32_t stage = self->rank / 2;
    int32_t other = (stage + (sends ? 1 : PIPELINE - 1)) % PIPELINE;
    int32_t low = stage < other ? stage : other;
    const struct lane_config config = {
        .peer = replica + 2 * other,
        .direction = 0,
        .sends = sends,
        .landings = 2,
        .landing_bytes = BYTES,
        .wave = stage + other == 2 ? 2 : low,
    };

    return comm_lane_open(self->comm, &config, &self->lanes[sends ? 1 : 0]);
}

/* Rank = replica + 2 · stage, as of grid.h at dp 2. */
static enum status connect_grid(struct rig_rank *self)
{
    int32_t replica = self->rank % 2;

    TRY(rig_open(self));
    TRY(comm_share(self->comm, 1024));
    TRY(rig_group(self, 0, self->rank - replica, 1, 2));
    TRY(rig_group(self, 1, replica, 2, PIPELINE));
    TRY(open_ring_lane(self, false));
    TRY(open_ring_lane(self, true));
    return rig_connect(self);
}

static enum status pass_around(struct rig_rank *self, uint64_t *message)
{
    void *out = rig_memory(self, 0, BYTES);

    TRY(rig_put(self, out, message, BYTES));
    TRY(comm_post_receive(self->lanes[0], 0, 0));
    TRY(comm_post_send(self->lanes[1], 0, 0, out, BYTES));
    TRY(comm_wait_arrival(self->lanes[0], 0, 0, NULL, CLOCK_NEVER));
    TRY(comm_wait_sent(self->lanes[1], NULL, CLOCK_NEVER));
    return rig_get(self, message, comm_landing(self->lanes[0], 0), BYTES);
}

static enum status sum_pipeline(struct rig_rank *self, float *numbers, size_t elems)
{
    float *block = comm_shared(self->comm);

    TRY(rig_put(self, block, numbers, elems * sizeof(float)));
    TRY(comm_all_reduce(self->groups[1], block, elems, COMM_SUM, NULL, self->rig->deadline_ns));
    return rig_get(self, numbers, block, elems * sizeof(float));
}

static void talk_around(struct rig_rank *self)
{
    int32_t pipeline[] = {self->rank % 2, self->rank % 2 + 2, self->rank % 2 + 4};
    uint64_t message[BYTES / 8];
    float numbers[3];

    RIG_EXPECT(self, connect_grid(self) == STATUS_OK);
    rig_write(message, BYTES, (uint32_t)self->rank, 0);
    RIG_EXPECT(self, pass_around(self, message) == STATUS_OK);
    RIG_EXPECT(self, rig_reads(message, BYTES, (uint32_t)((self->rank + 4) % 6), 0));
    rig_write_floats(numbers, 0, 3, self->rank, 1);
    RIG_EXPECT(self, sum_pipeline(self, numbers, 3) == STATUS_OK);
    RIG_EXPECT(self, rig_reads_sum(numbers, 0, 3, pipeline, 3, 1));
}

static void groups_and_lanes_of_a_grid_have_the_right_members(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2 * PIPELINE, false);
    rig.waves = WAVES;
    rig_run(&rig, talk_around);
    rig_assert_no_notes(&rig);
    rig_release(&rig);
}

/* ---- Refusals. ---- */

static void connect_unlike_lanes(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, 0, 1 - self->rank, 0, self->rank == 0, 2,
                              self->rank == 0 ? BYTES : 2 * BYTES) == STATUS_OK);
    connect_and_tell(self);
}

static void ends_of_a_lane_that_disagree_are_refused_with_both(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, connect_unlike_lanes);
    rig_assert_no_notes(&rig);
    assert_int_equal(rig.ranks[1].connected, STATUS_ERR_REFUSED);
    assert_says(&rig, 1,
                "lane F from rank 0 to rank 1: rank 1 has 2 landing buffers of 512 bytes, where "
                "rank 0 would send to 2 of 256");
    comm_abort(rig.ranks[0].comm); /* it has connected well, and would end together with rank 1 */
    rig_release(&rig);
}

static void connect_unlike_groups(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, self->rank == 0 || rig_group(self, 0, 1, 1, 2) == STATUS_OK);
    connect_and_tell(self);
}

static void a_rank_without_the_group_that_others_have_is_refused(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 3, false);
    rig_run(&rig, connect_unlike_groups);
    rig_assert_no_notes(&rig);
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_true(rig.ranks[rank].connected < 0);
        assert_says(&rig, rank, "groups of the data plane");
    }
    rig_release(&rig);
}

/* Rank 2 believes in a group of its own with rank 1 alone. */
static void connect_unlike_members(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, (self->rank == 2 ? rig_group(self, 0, 1, 1, 2)
                                      : rig_group(self, 0, 0, 1, 3)) == STATUS_OK);
    connect_and_tell(self);
}

static void members_that_disagree_on_a_group_are_refused(void **state)
{
    struct comm_rig rig;
    int refused = 0;

    (void)state;
    rig_init(&rig, 3, false);
    rig_run(&rig, connect_unlike_members);
    rig_assert_no_notes(&rig);
    for (int32_t rank = 0; rank < 3; rank++) {
        if (rig.ranks[rank].connected == STATUS_ERR_REFUSED) {
            assert_says(&rig, rank,
                        rank == 2 ? "rank 2, the group of ranks 1, 2: it has 1 members, of which "
                                    "this is number 0, but 2 and number 1"
                                  : "the group of ranks 0, 1, 2: it has 2 members");
            refused++;
        } else { /* by the first that was */
            assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_CANCELLED);
        }
    }
    assert_true(refused > 0);
    rig_release(&rig);
}

static void open_wrongly(struct rig_rank *self)
{
    struct lane_config wave = {
        .peer = 1 - self->rank, .landings = 1, .landing_bytes = 8, .wave = 2};
    struct lane *lane = NULL;

    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, comm_lane_open(self->comm, &wave, &lane) == STATUS_ERR_INVALID);
    wave.wave = -1;
    RIG_EXPECT(self, comm_lane_open(self->comm, &wave, &lane) == STATUS_ERR_INVALID);
}

static void waves_that_are_none_are_refused(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, open_wrongly);
    rig_assert_no_notes(&rig);
    rig_release(&rig);
}

/* ---- Ranks that cannot be joined, or do not come. ---- */

static void only_open(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
}

/* Both on the GPU of rank 0. */
static void connect_on_one_gpu(struct rig_rank *self)
{
    fake_cuda_use(self->rig->ranks[0].gpu);
    (void)rig_connect(self);
    fake_cuda_use(self->gpu);
}

static void two_ranks_on_one_gpu_hear_it_from_nccl(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, only_open);
    rig_assert_no_notes(&rig);
    rig_run(&rig, connect_on_one_gpu);
    rig_assert_no_notes(&rig);
    for (int32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_CUDA);
        assert_says(&rig, rank, "Duplicate GPU detected");
    }
    rig_release(&rig);
}

/* Rank 1 has a lane that rank 0 does not know, and waits for it. */
static void connect_with_a_lane_too_many(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    if (self->rank == 1) {
        RIG_EXPECT(self, rig_lane(self, 0, 0, 0, false, 1, BYTES) == STATUS_OK);
    }
    connect_and_tell(self);
}

static void a_lane_that_one_end_alone_has_is_refused(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, connect_with_a_lane_too_many);
    rig_assert_no_notes(&rig);
    assert_int_equal(rig.ranks[1].connected, STATUS_ERR_REFUSED);
    assert_says(&rig, 1, "lane F from rank 0 to rank 1: it has 1 members");
    comm_abort(rig.ranks[0].comm);
    rig_release(&rig);
}

/* The control round takes all; then rank 1 leaves. */
static void leave_in_the_middle(struct rig_rank *self)
{
    struct control_key keys[] = {{"groups of the data plane", CONTROL_SAME},
                                 {"waves of lanes", CONTROL_SAME}};
    struct control_value values[] = {{.key = 0}, {.key = 1, .bits = RIG_WAVES}};
    struct control_round round = {.name = "NCCL",
                                  .keys = keys,
                                  .key_count = 2,
                                  .values = values,
                                  .value_count = 2,
                                  .note = ""};
    double numbers[2];
    struct control_answer answer = {.numbers = numbers};

    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    if (self->rank == 1) {
        RIG_EXPECT(self, control_reduce(self->control, &round, &answer, self->rig->deadline_ns) ==
                             STATUS_OK);
        RIG_EXPECT(self, answer.note_rank == 0 && strlen(answer.note) == 256);
    } else {
        (void)rig_connect(self);
    }
}

static void a_rank_that_does_not_come_is_a_deadline_of_the_creation(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig.deadline_ns = clock_deadline(2.0);
    rig_run(&rig, leave_in_the_middle);
    rig_assert_no_notes(&rig);
    assert_int_equal(rig.ranks[0].connected, STATUS_ERR_TIMEOUT);
    assert_says(&rig, 0, "rank 0, the creation of the communicator of all ranks");
    rig_release(&rig);
}

static void a_first_use_that_hangs_is_a_deadline_of_it(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig.deadline_ns = clock_deadline(2.0);
    fake_nccl_hang(0, 1);
    rig_run(&rig, connect_unlike_lanes);
    rig_assert_no_notes(&rig);
    for (int32_t rank = 0; rank < 2; rank++) {
        assert_true(rig.ranks[rank].connected == STATUS_ERR_TIMEOUT ||
                    rig.ranks[rank].connected == STATUS_ERR_CANCELLED);
        assert_says(&rig, rank, "lane F from rank 0 to rank 1");
    }
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_and_lanes_of_a_grid_have_the_right_members),
        cmocka_unit_test(ends_of_a_lane_that_disagree_are_refused_with_both),
        cmocka_unit_test(a_rank_without_the_group_that_others_have_is_refused),
        cmocka_unit_test(members_that_disagree_on_a_group_are_refused),
        cmocka_unit_test(waves_that_are_none_are_refused),
        cmocka_unit_test(two_ranks_on_one_gpu_hear_it_from_nccl),
        cmocka_unit_test(a_lane_that_one_end_alone_has_is_refused),
        cmocka_unit_test(a_rank_that_does_not_come_is_a_deadline_of_the_creation),
        cmocka_unit_test(a_first_use_that_hangs_is_a_deadline_of_it),
    };

    return cmocka_run_group_tests_name("comm_nccl_connect", tests, NULL, NULL);
}
