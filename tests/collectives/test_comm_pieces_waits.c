/* Collectives of many pieces that do not end well: disagreements, deadlines and deaths. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm_job.h"
#include "comm_pieces_rig.h"

#define ALL 0 /* the group of all ranks */

/* ---- Members that disagree. ---- */

struct place {
    size_t byte; /* of the shared block */
    size_t elems;
    size_t elem_bytes;
};

struct disagreement {
    int32_t counts[2]; /* of ranks 0 and 1 */
    struct place places[2][3];
    const char *words[2];
};

static const struct disagreement disagreements[] = {
    {.counts = {3, 2},
     .places = {{{0, 10, 4}, {64, 10, 4}, {256, 0, 4}}, {{0, 10, 4}, {64, 10, 4}}},
     .words = {"of 3 pieces", "of 2 pieces"}},
    {.counts = {1, 1},
     .places = {{{0, 20, 4}}, {{0, 20, 2}}},
     .words = {"of 20 floats", "of 20 elements in 40 bytes"}},
    {.counts = {2, 2},
     .places = {{{0, 10, 4}, {64, 10, 4}}, {{4, 10, 4}, {64, 10, 4}}},
     .words = {"at byte 0", "at byte 4"}},
    /* The same sums, and the same first piece. */
    {.counts = {3, 3},
     .places = {{{0, 10, 4}, {64, 10, 4}, {128, 20, 4}}, {{0, 10, 4}, {64, 20, 4}, {256, 10, 4}}},
     .words = {"piece by piece they differ", "of 3 pieces with 40 elements"}},
    {.counts = {3, 3},
     .places = {{{0, 10, 4}, {64, 10, 4}, {128, 10, 4}}, {{0, 10, 4}, {64, 10, 4}, {132, 10, 4}}},
     .words = {"piece by piece they differ", "of 3 pieces with 30 elements"}},
    {.counts = {3, 3},
     .places = {{{0, 10, 4}, {64, 10, 4}, {128, 10, 2}}, {{0, 10, 4}, {64, 10, 2}, {128, 10, 4}}},
     .words = {"piece by piece they differ", "30 elements in 100 bytes"}},
};

static void gather_differently(struct rig_rank *self, const struct disagreement *disagreement)
{
    const struct comm_rig *rig = self->rig;
    unsigned char *block = comm_shared(self->comm);
    struct comm_piece pieces[3] = {{.data = NULL}};
    int32_t count = disagreement->counts[self->rank];

    for (int32_t i = 0; i < count; i++) {
        const struct place *place = &disagreement->places[self->rank][i];

        pieces[i] = (struct comm_piece){
            .data = block + place->byte, .elems = place->elems, .elem_bytes = place->elem_bytes};
    }
    self->connected =
        comm_all_gather_pieces(self->groups[ALL], pieces, count, &rig->cancel, rig->deadline_ns);
}

#define CASE(number)                                               \
    static void gather_differently_##number(struct rig_rank *self) \
    {                                                              \
        gather_differently(self, &disagreements[number]);          \
    }
CASE(0)
CASE(1)
CASE(2)
CASE(3)
CASE(4)
CASE(5)

static void expect_both(rig_fn call, const struct disagreement *disagreement)
{
    struct comm_rig rig;

    rig_init(&rig, 2, false);
    rig_run(&rig, pieces_connect);
    rig_assert_no_notes(&rig);
    rig_run(&rig, call);
    for (int32_t rank = 0; rank < 2; rank++) {
        const char *message = rig.ranks[rank].failure.message;

        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_FORMAT);
        assert_non_null(strstr(message, "0, 1"));
        assert_non_null(strstr(message, disagreement->words[0]));
        assert_non_null(strstr(message, disagreement->words[1]));
    }
    rig_release(&rig);
}

static void lists_that_differ_anywhere_fail_at_every_member_with_both(void **state)
{
    static const rig_fn calls[] = {gather_differently_0, gather_differently_1,
                                   gather_differently_2, gather_differently_3,
                                   gather_differently_4, gather_differently_5};

    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        expect_both(calls[i], &disagreements[i]);
    }
}

static void call_other_kinds(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;
    const struct comm_piece piece = {.data = comm_shared(self->comm), .elems = 10, .elem_bytes = 4};

    self->connected = self->rank == 0 ? comm_all_gather_pieces(self->groups[ALL], &piece, 1,
                                                               &rig->cancel, rig->deadline_ns)
                                      : comm_reduce_scatter_pieces(self->groups[ALL], &piece, 1,
                                                                   &rig->cancel, rig->deadline_ns);
}

static void a_gather_against_a_scatter_fails_with_both(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, pieces_connect);
    rig_assert_no_notes(&rig);
    rig_run(&rig, call_other_kinds);
    for (int32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_FORMAT);
        assert_non_null(strstr(rig.ranks[rank].failure.message, "all_gather of 10 floats"));
        assert_non_null(strstr(rig.ranks[rank].failure.message, "reduce_scatter of 10 floats"));
    }
    rig_release(&rig);
}

/* ---- Waits. ---- */

/* Rank 1 never comes. */
static void call_without_rank_one(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;
    struct comm_piece pieces[PIECES_MOST];
    int32_t count = pieces_lay(comm_shared(self->comm), false, pieces);

    if (self->rank != 1) {
        self->connected = comm_reduce_scatter_pieces(self->groups[ALL], pieces, count, &rig->cancel,
                                                     rig->deadline_ns);
    }
}

static void a_deadline_names_the_group_the_pieces_and_who_has_not_come(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 3, true);
    rig_run(&rig, pieces_connect);
    rig_assert_no_notes(&rig);
    /* Time for the others to come, however busy the machine is. */
    rig.deadline_ns = clock_now_ns() + 500 * CLOCK_MS;
    rig_run(&rig, call_without_rank_one);
    for (int32_t rank = 0; rank < 3; rank += 2) {
        const char *message = rig.ranks[rank].failure.message;

        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_TIMEOUT);
        assert_non_null(strstr(message, "group of ranks 0, 1, 2"));
        assert_non_null(strstr(message, "reduce_scatter of 12 pieces with 75281 elements"));
        assert_non_null(strstr(message, "for rank 1:"));
    }
    rig_release(&rig);
}

/* ---- Processes. ---- */

#define PROCESS_TURNS 300
#define MIDDLE        100

static enum status combine_pieces(struct child *child)
{
    struct rig_rank *self = child->self;
    const int64_t until_ns = self->rig->deadline_ns;
    struct comm_piece pieces[PIECES_MOST];
    int32_t count;

    self->rig->ranks[self->rank].rig = self->rig;
    pieces_connect(self);
    TRY(self->connected);
    count = pieces_lay(comm_shared(self->comm), false, pieces);
    for (uint32_t k = 0; k < child->messages; k++) {
        pieces_fill(pieces, count, self->rank);
        TRY(comm_reduce_scatter_pieces(self->groups[ALL], pieces, count, child->job->cancel,
                                       until_ns));
        if (!pieces_are_scattered(self, pieces, count)) {
            return status_fail(STATUS_ERR_FORMAT, "call %u scatters other numbers", k);
        }
        pieces_fill(pieces, count, self->rank);
        TRY(comm_all_gather_pieces(self->groups[ALL], pieces, count, child->job->cancel, until_ns));
        if (!pieces_are_gathered(self, pieces, count)) {
            return status_fail(STATUS_ERR_FORMAT, "call %u gathers other bytes", k);
        }
        if (k == MIDDLE) {
            job_report_middle(child);
        }
    }
    return STATUS_OK;
}

static int combine_to_the_end(struct child *child)
{
    enum status status = combine_pieces(child);

    comm_close(&child->self->comm);
    return status == STATUS_OK ? JOB_GOOD : JOB_BAD;
}

static int combine_until_cancelled(struct child *child)
{
    enum status status = combine_pieces(child);
    const char *message = status_last()->message;
    bool named = strstr(message, "of 12 pieces with 75281 elements") != NULL &&
                 strstr(message, "group of ranks 0, 1, 2, for rank 2 when the job") != NULL;

    comm_close(&child->self->comm);
    return status == STATUS_ERR_CANCELLED && named ? JOB_GOOD : JOB_BAD;
}

static void processes_have_every_sum_and_every_slice(void **state)
{
    const int32_t worlds[] = {2, 4};

    (void)state;
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        struct job job;

        job_init(&job, worlds[i]);
        job_start(&job, combine_to_the_end, PROCESS_TURNS / (uint32_t)worlds[i], 0);
        for (int32_t rank = 0; rank < worlds[i]; rank++) {
            job_assert_good_end(job_end_of(&job, rank));
        }
        job_release(&job);
    }
}

static void when_a_process_is_killed_the_others_say_which_group_waited_for_it(void **state)
{
    struct job job;

    (void)state;
    job_init(&job, 3);
    job_start(&job, combine_until_cancelled, JOB_ENDLESS, 0);
    job_await_middle(&job, 2);
    assert_int_equal(kill(job.children[2], SIGKILL), 0);
    job_assert_killed(job_end_of(&job, 2));
    job_await_asleep(&job, 0, 1); /* each other may make the other wait, but not both: for rank 2 */
    cancel_request(job.cancel);
    job_assert_good_end(job_end_of(&job, 0));
    job_assert_good_end(job_end_of(&job, 1));
    job_release(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_that_differ_anywhere_fail_at_every_member_with_both),
        cmocka_unit_test(a_gather_against_a_scatter_fails_with_both),
        cmocka_unit_test(a_deadline_names_the_group_the_pieces_and_who_has_not_come),
        cmocka_unit_test(processes_have_every_sum_and_every_slice),
        cmocka_unit_test(when_a_process_is_killed_the_others_say_which_group_waited_for_it),
    };

    return cmocka_run_group_tests_name("comm_pieces_waits", tests, NULL, NULL);
}
