/* Bubbles and peaks of the schedules that put W off or take chunk after chunk, against their closed
 * forms over a grid of shapes and costs. gpipe and 1f1b: test_simulate.c; interleaved_1f1b:
 * test_interleaved.c; v_half and v_min, which have none: test_pattern.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/simulate.h"
#include "scheduler/validate.h"

#define MOST_RANKS  8
#define MOST_CHUNKS 4

static const double triples[3][3] = {{1.0, 1.0, 1.0}, {10.0, 14.0, 7.0}, {3.0, 2.0, 5.0}};

struct shape {
    enum schedule schedule;
    int32_t p, m, v;
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static void expect_close(const struct shape *shape, const char *what, double found, double expected)
{
    double slack = 1e-9 * (1.0 + expected);

    if (!(found - expected < slack && expected - found < slack)) {
        fail_msg("%s, p %d, m %d, v %d: %s is %.12f, expected %.12f",
                 schedule_text(shape->schedule), shape->p, shape->m, shape->v, what, found,
                 expected);
    }
}

static struct simulation simulate(const struct plan *plan, const double *c)
{
    struct plan_costs costs;
    struct simulation simulation;

    assert_int_equal(plan_costs_uniform(plan, c[0], c[1], c[2], 0.0, &costs), STATUS_OK);
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    plan_costs_release(&costs);
    return simulation;
}

typedef void (*shape_check_fn)(const struct shape *shape, const struct plan *plan, const double *c);

static void check_shape(const struct shape *shape, bool early, shape_check_fn check)
{
    struct plan *plan = fixture_chunks(shape->schedule, shape->p, shape->m, shape->v, early);
    int i;

    assert_int_equal(plan_validate(plan), STATUS_OK);
    for (i = 0; i < 3; i++) {
        check(shape, plan, triples[i]);
    }
    plan_destroy(&plan);
}

/* Every p, every number of chunks that the schedule takes, every m, with their landing buffers. */
static void for_all(enum schedule schedule, bool early, shape_check_fn check)
{
    struct shape shape = {.schedule = schedule};

    for (shape.p = 2; shape.p <= MOST_RANKS; shape.p++) {
        for (shape.v = 1; shape.v <= MOST_CHUNKS; shape.v++) {
            for (shape.m = 1;
                 schedule_takes_chunks(schedule, shape.v) && shape.m <= 4 * shape.p + 2;
                 shape.m++) {
                check_shape(&shape, early, check);
            }
        }
    }
}

static void expect_bubble(const struct shape *shape, const struct plan *plan, const double *c,
                          double bubble)
{
    struct simulation simulation = simulate(plan, c);

    expect_close(shape, "ideal", simulation.ideal, shape->m * (c[0] + c[1] + c[2]));
    expect_close(shape, "bubble", simulation.bubble, bubble);
    simulation_release(&simulation);
}

static void expect_peaks(const struct shape *shape, const struct plan *plan, bool w_holds,
                         double (*peak)(const struct shape *shape, int32_t rank))
{
    double peaks[MOST_RANKS];
    int32_t rank;

    assert_int_equal(plan_peaks(plan, w_holds, peaks), STATUS_OK);
    for (rank = 0; rank < shape->p; rank++) {
        expect_close(shape, w_holds ? "peak to W" : "peak to I", peaks[rank], peak(shape, rank));
    }
}

/* A rank waits for p - 1 others to work on a chunk, and with fewer micro-batches than ranks every
 * round but the first waits for those that are lacking. */
static double rounds(const struct shape *shape)
{
    int32_t lacking = shape->m < shape->p ? (shape->v - 1) * (shape->p - shape->m) : 0;

    return (shape->p - 1 + lacking) / (double)shape->v;
}

static double all_micro_batches(const struct shape *shape, int32_t rank)
{
    (void)rank;
    return shape->m;
}

static void check_bfs(const struct shape *shape, const struct plan *plan, const double *c)
{
    expect_bubble(shape, plan, c, rounds(shape) * (c[0] + c[1] + c[2]));
    expect_peaks(shape, plan, true, all_micro_batches);
    expect_peaks(shape, plan, false, all_micro_batches);
}

/* W is hidden where it is no longer than the I of the next rank. */
static void check_early_bfs(const struct shape *shape, const struct plan *plan, const double *c)
{
    const double hidden[3] = {c[0], c[1], c[2] < c[1] ? c[2] : c[1]};

    if (shape->m >= shape->p) {
        expect_bubble(shape, plan, hidden, rounds(shape) * (c[0] + c[1]));
    }
}

static void bfs_waits_as_interleaved_does(void **state)
{
    (void)state;
    for_all(SCHEDULE_BFS, false, check_bfs);
    for_all(SCHEDULE_BFS, true, check_early_bfs);
}

/* A rank holds what it began before its first I: p - r; with the W that are late, p. */
static double below(const struct shape *shape, int32_t rank)
{
    return smaller(shape->m, shape->p - rank);
}

static double as_many_as_ranks(const struct shape *shape, int32_t rank)
{
    (void)rank;
    return smaller(shape->m, shape->p);
}

/* A hop back takes I, and F as far as the W of a micro-batch before does not hide it. The last rank
 * begins p - 1 forwards late whatever comes. */
static void expect_waits(const struct shape *shape, const struct plan *plan, const double *c)
{
    struct simulation simulation = simulate(plan, c);
    double hop = c[1] + larger(0.0, c[0] - c[2]);

    if (shape->m >= shape->p) {
        expect_close(shape, "bubble", simulation.bubble,
                     (shape->p - 1) * larger(c[0], hop) / (double)shape->v);
        expect_close(shape, "span bubble", simulation.span_bubble,
                     (shape->p - 1) * hop / (double)shape->v);
    }
    simulation_release(&simulation);
}

static void check_h1(const struct shape *shape, const struct plan *plan, const double *c)
{
    expect_waits(shape, plan, c);
    expect_peaks(shape, plan, false, below);
    expect_peaks(shape, plan, true, as_many_as_ranks);
}

static void zb_h1_waits_for_i_alone_and_for_what_w_does_not_fill(void **state)
{
    (void)state;
    for_all(SCHEDULE_ZB_H1, true, check_h1);
}

static double twice_below(const struct shape *shape, int32_t rank)
{
    return smaller(shape->m, 2 * (shape->p - 1 - rank) + 1);
}

static double twice_the_ranks(const struct shape *shape, int32_t rank)
{
    (void)rank;
    return smaller(shape->m, 2 * shape->p - 1);
}

static void check_h2(const struct shape *shape, const struct plan *plan, const double *c)
{
    struct simulation simulation = simulate(plan, c);
    double span = (shape->p - 1) * larger(0.0, larger(c[1] - c[0], c[0] + c[1] - 2.0 * c[2]));

    if (shape->m >= 2 * shape->p - 1) {
        expect_close(shape, "span bubble", simulation.span_bubble, span);
        assert_true(simulation.bubble > (shape->p - 1) * c[0] - 1e-9);
    }
    simulation_release(&simulation);
    expect_peaks(shape, plan, false, twice_below);
    expect_peaks(shape, plan, true, twice_the_ranks);
}

static void zb_h2_waits_between_its_ends_only_where_costs_differ(void **state)
{
    (void)state;
    for_all(SCHEDULE_ZB_H2, true, check_h2);
}

static int32_t first_group(const struct shape *shape)
{
    int32_t groups = shape->m < shape->p ? 1 : shape->m / shape->p;

    return (shape->m + groups - 1) / groups;
}

/* All but one chunk of a group, and one of p; where m is small, all there are. */
static double group_and_ranks(const struct shape *shape, int32_t rank)
{
    (void)rank;
    return smaller(shape->m * shape->v, (shape->v - 1) * first_group(shape) + shape->p) /
           (double)shape->v;
}

static double group_and_below(const struct shape *shape, int32_t rank)
{
    return smaller(shape->m * shape->v, (shape->v - 1) * first_group(shape) + shape->p - rank) /
           (double)shape->v;
}

static void check_izb(const struct shape *shape, const struct plan *plan, const double *c)
{
    expect_waits(shape, plan, c);
    expect_peaks(shape, plan, false, group_and_below);
    expect_peaks(shape, plan, true, group_and_ranks);
}

static void izb_waits_a_chunk_s_share_of_what_zb_h1_does(void **state)
{
    (void)state;
    for_all(SCHEDULE_IZB, true, check_izb);
}

/* Two chunks of each micro-batch, and never more than p micro-batches. */
static void check_v(const struct shape *shape, const struct plan *plan, const double *c)
{
    struct simulation simulation = simulate(plan, c);
    double peaks[MOST_RANKS];
    int32_t rank;

    if (c[0] == c[1] && c[1] == c[2] && shape->m >= 2 * shape->p - 1) {
        expect_close(shape, "span bubble", simulation.span_bubble, 0.0);
        expect_close(shape, "bubble", simulation.bubble, (shape->p - 1) * c[0] / 2.0);
    }
    simulation_release(&simulation);
    assert_int_equal(plan_peaks(plan, true, peaks), STATUS_OK);
    for (rank = 0; rank < shape->p; rank++) {
        assert_true(peaks[rank] <= smaller(shape->m, shape->p));
        if (shape->m >= 2 * shape->p - 1) {
            expect_close(shape, "peak to W", peaks[rank], shape->p);
        }
    }
}

static void zb_v_waits_only_at_its_ends_and_holds_as_many_as_ranks(void **state)
{
    (void)state;
    for_all(SCHEDULE_ZB_V, true, check_v);
}

static void expect_same(enum schedule left, enum schedule right, int32_t p, int32_t m)
{
    struct plan *a = fixture_lowered(left, p, m, true);
    struct plan *b = fixture_lowered(right, p, m, true);
    int32_t rank;

    for (rank = 0; rank < p; rank++) {
        assert_true(plan_line_hash(a, rank) == plan_line_hash(b, rank));
    }
    plan_destroy(&a);
    plan_destroy(&b);
}

/* One chunk of izb is zb_h1, and of bfs gpipe. */
static void one_chunk_is_the_schedule_of_one(void **state)
{
    int32_t p;
    int32_t m;

    (void)state;
    for (p = 1; p <= 5; p++) {
        for (m = 1; m <= 11; m++) {
            expect_same(SCHEDULE_IZB, SCHEDULE_ZB_H1, p, m);
            expect_same(SCHEDULE_BFS, SCHEDULE_GPIPE, p, m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bfs_waits_as_interleaved_does),
        cmocka_unit_test(zb_h1_waits_for_i_alone_and_for_what_w_does_not_fill),
        cmocka_unit_test(zb_h2_waits_between_its_ends_only_where_costs_differ),
        cmocka_unit_test(izb_waits_a_chunk_s_share_of_what_zb_h1_does),
        cmocka_unit_test(zb_v_waits_only_at_its_ends_and_holds_as_many_as_ranks),
        cmocka_unit_test(one_chunk_is_the_schedule_of_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
