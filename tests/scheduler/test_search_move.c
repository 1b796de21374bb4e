#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/generate.h"
#include "scheduler/search_clock.h"
#include "scheduler/search_move.h"
#include "search_fixture.h"

static const struct search_memory no_limit = {.limit = NULL};

/* An order of a schedule with a name, and all that moves need. */
struct rig {
    struct fixture_costs costs;
    struct search_space space;
    struct search_order order;
    struct search_order before;
    struct search_moves moves;
    struct search_clock clock;
};

static void make(struct rig *rig, enum schedule schedule, int32_t ranks, int32_t microbatches,
                 int32_t chunks)
{
    struct plan_shape shape = fixture_shape(schedule, ranks, microbatches, true);
    struct plan *compute = NULL;

    memset(rig, 0, sizeof(*rig));
    shape.virtual_stages = chunks;
    assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
    fixture_costs_even(&rig->costs, ranks, chunks, 3.0, 4.0, 2.0, 0.5);
    assert_int_equal(
        search_space_init(&rig->space, &shape, compute->rank_of, &rig->costs.costs, &no_limit),
        STATUS_OK);
    assert_int_equal(search_order_init(&rig->order, &rig->space), STATUS_OK);
    assert_int_equal(search_order_init(&rig->before, &rig->space), STATUS_OK);
    assert_int_equal(search_order_take(&rig->order, compute), STATUS_OK);
    assert_int_equal(search_moves_init(&rig->moves, &rig->order), STATUS_OK);
    assert_int_equal(search_clock_init(&rig->clock, &rig->space), STATUS_OK);
    plan_destroy(&compute);
}

static void release(struct rig *rig)
{
    search_clock_release(&rig->clock);
    search_moves_release(&rig->moves);
    search_order_release(&rig->before);
    search_order_release(&rig->order);
    search_space_release(&rig->space);
}

static bool is_as_before(const struct rig *rig)
{
    size_t count = (size_t)rig->space.ranks * (size_t)rig->space.length;

    return memcmp(rig->order.ops, rig->before.ops, count * sizeof(*rig->order.ops)) == 0;
}

/* Per rank: micro-batches of a type ascend, I comes behind F, W behind I. */
static void assert_lines(const struct rig *rig)
{
    int32_t next[FIXTURE_STAGES * SEARCH_KINDS] = {0};
    int32_t rank;
    int32_t i;

    for (rank = 0; rank < rig->space.ranks; rank++) {
        for (i = 0; i < rig->space.length; i++) {
            struct search_op op = search_order_line(&rig->order, rank)[i];

            assert_int_equal(rig->space.type[op.type].rank, rank);
            assert_int_equal(op.microbatch, next[op.type]++);
            if (rig->space.type[op.type].kind != SEARCH_F) {
                assert_true(next[op.type - 1] > op.microbatch);
            }
            assert_int_equal(rig->moves.place[search_op_number(&rig->space, op)], i);
        }
    }
}

/* The first action of that kind at or behind `at`, or the end of the line. */
static int32_t find_kind(const struct rig *rig, const struct search_op *line, int32_t at,
                         enum search_kind kind)
{
    while (at < rig->space.length && rig->space.type[line[at].type].kind != kind) {
        at++;
    }
    return at;
}

static void assert_same_sequence(const struct rig *rig, int32_t rank, enum search_kind kind)
{
    const struct search_op *first = search_order_line(&rig->order, 0);
    const struct search_op *other = search_order_line(&rig->order, rank);
    int32_t a = find_kind(rig, first, 0, kind);
    int32_t b = find_kind(rig, other, 0, kind);

    while (a < rig->space.length) {
        assert_true(b < rig->space.length);
        assert_int_equal(first[a].microbatch, other[b].microbatch);
        assert_int_equal(rig->space.chunk_of[rig->space.type[first[a].type].stage],
                         rig->space.chunk_of[rig->space.type[other[b].type].stage]);
        a = find_kind(rig, first, a + 1, kind);
        b = find_kind(rig, other, b + 1, kind);
    }
    assert_int_equal(b, rig->space.length);
}

/* Sequences of F and I of each rank, where chunks share lanes, are one on all ranks of a loop of two
 * chunks: a wave changes all of them or none. */
static void assert_waves(const struct rig *rig)
{
    for (int32_t rank = 1; rank < rig->space.ranks; rank++) {
        assert_same_sequence(rig, rank, SEARCH_F);
        assert_same_sequence(rig, rank, SEARCH_I);
    }
}

static void move_and_undo(struct rig *rig, struct fixture_draw *draw, bool loop, int32_t *moved,
                          int32_t *waves)
{
    int32_t rank = fixture_draw(draw, rig->space.ranks);
    int32_t from = fixture_draw(draw, rig->space.length);
    bool wave = fixture_draw(draw, 3) == 0;
    bool done;

    search_order_copy(&rig->before, &rig->order);
    done = wave ? search_move_wave(&rig->moves, rank, from)
                : search_move_shift(&rig->moves, rank, from, from + fixture_draw(draw, 11) - 5);
    assert_true(done != is_as_before(rig));
    if (!done) {
        return;
    }
    *moved += 1;
    *waves += wave ? 1 : 0;
    assert_lines(rig);
    if (loop) {
        assert_waves(rig);
    }
    /* Some are kept, so that orders wander. */
    if (fixture_draw(draw, 3) > 0 || search_clock_run(&rig->clock, &rig->order) >= SEARCH_NEVER) {
        search_move_undo(&rig->moves);
        assert_true(is_as_before(rig));
        assert_lines(rig);
    }
}

static void moves_keep_an_order_and_are_undone(void **state)
{
    static const struct {
        enum schedule schedule;
        int32_t chunks;
        bool loop;
    } kinds[] = {{SCHEDULE_1F1B, 1, false},
                 {SCHEDULE_ZB_H2, 1, false},
                 {SCHEDULE_IZB, 2, true},
                 {SCHEDULE_IZB, 3, false},
                 {SCHEDULE_ZB_V, 2, false}};
    struct fixture_draw draw = {.state = 31};
    size_t k;

    (void)state;
    for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct rig rig;
        int32_t moved = 0;
        int32_t waves = 0;
        int32_t n;

        make(&rig, kinds[k].schedule, 3, 6, kinds[k].chunks);
        for (n = 0; n < 3000; n++) {
            move_and_undo(&rig, &draw, kinds[k].loop, &moved, &waves);
        }
        assert_true(moved > 500);
        /* One chunk a rank has one message after the other in each lane, in one order. */
        assert_true(kinds[k].loop ? waves > 10 : waves >= 0);
        release(&rig);
    }
}

/* Two micro-batches on two ranks, 1F1B: F1 passes neither F0 nor I1, but I0 and W0. */
static void what_needs_the_other_is_not_passed(void **state)
{
    struct rig rig;
    int32_t at;

    (void)state;
    make(&rig, SCHEDULE_1F1B, 2, 2, 1);
    /* Rank 1: F0 I0 W0 F1 I1 W1 */
    assert_false(search_move_shift(&rig.moves, 1, 0, 1));
    assert_true(search_move_shift(&rig.moves, 1, 3, 0));
    at = rig.moves.place[search_op_number(
        &rig.space, (struct search_op){.type = search_type_of(1, SEARCH_F), .microbatch = 1})];
    assert_int_equal(at, 1);
    search_move_undo(&rig.moves);
    assert_false(search_move_shift(&rig.moves, 1, 3, 5));
    assert_false(search_move_wave(&rig.moves, 1, 0));
    release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_keep_an_order_and_are_undone),
        cmocka_unit_test(what_needs_the_other_is_not_passed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
