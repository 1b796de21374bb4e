/* What an independent simulator made of the published orders: makespans, peaks, messages.
 * test_simulate.c has more of the same from a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/plan_report.h"
#include "scheduler/simulate.h"
#include "scheduler/validate.h"

#define MOST_RANKS 8

struct row {
    int32_t p, m;
    enum schedule schedule;
    int32_t v;
    int32_t extra;
    bool early;
    double T[3]; /* makespan at costs_of[] */
    double peak[MOST_RANKS];
    double wall[MOST_RANKS];
    int64_t messages;
};

#define SAME(x)                \
    {                          \
        x, x, x, x, x, x, x, x \
    }
#define DOWN8                  \
    {                          \
        8, 7, 6, 5, 4, 3, 2, 1 \
    }

static const double costs_of[3][4] = {{1, 1, 1, 0}, {10, 14, 7, 0}, {10, 14, 7, 2}};

/* p, m, schedule, chunks, extra in flight, early send; makespans; peaks with W holding nothing and
 * everything; messages. */
static const struct row rows[] = {
    {2, 4, SCHEDULE_GPIPE, 1, 0, false, {15, 155, 159}, {4, 4}, {4, 4}, 8},
    {2, 4, SCHEDULE_1F1B, 1, 0, false, {15, 155, 163}, {2, 1}, {2, 1}, 8},
    {2, 4, SCHEDULE_1F1B, 1, 0, true, {14, 148, 152}, {2, 1}, {2, 1}, 8},
    {2,
     4,
     SCHEDULE_INTERLEAVED_1F1B,
     2,
     0,
     false,
     {13.5, 139.5, 151.5},
     {2.5, 1.5},
     {2.5, 1.5},
     24},
    {2, 4, SCHEDULE_ZB_H1, 1, 0, true, {13, 141, 149}, {2, 1}, {2, 2}, 8},
    {2, 4, SCHEDULE_ZB_H2, 1, 0, true, {13, 134, 138}, {3, 1}, {3, 3}, 8},
    {2, 4, SCHEDULE_IZB, 2, 0, true, {12.5, 132.5, 145}, {2, 1.5}, {2, 2}, 24},
    {2, 4, SCHEDULE_ZB_V, 2, 0, true, {12.5, 131, 139.5}, {2, 2}, {2, 2}, 16},
    {3, 5, SCHEDULE_1F1B, 1, 0, false, {21, 217, 233}, {3, 2, 1}, {3, 2, 1}, 20},
    {3, 5, SCHEDULE_INTERLEAVED_1F1B, 2, 0, false, {18, 186, 194}, {5, 4, 3}, {5, 4, 3}, 50},
    {3, 5, SCHEDULE_ZB_H1, 1, 0, true, {17, 189, 205}, {3, 2, 1}, {3, 3, 3}, 20},
    {3, 5, SCHEDULE_IZB, 2, 0, true, {16, 172, 188}, {4, 3.5, 3}, {4, 4, 4}, 50},
    {3, 5, SCHEDULE_ZB_V, 2, 0, true, {16, 169, 189.5}, {3, 3, 3}, {3, 3, 3}, 40},
    {4, 8, SCHEDULE_GPIPE, 1, 0, false, {33, 341, 353}, SAME(8), SAME(8), 48},
    {4, 8, SCHEDULE_1F1B, 1, 0, false, {33, 341, 373}, {4, 3, 2, 1}, {4, 3, 2, 1}, 48},
    {4, 8, SCHEDULE_1F1B, 1, 0, true, {30, 320, 332}, {4, 3, 2, 1}, {4, 3, 2, 1}, 48},
    {4, 8, SCHEDULE_1F1B, 1, 3, false, {33, 341, 353}, {7, 5, 3, 1}, {7, 5, 3, 1}, 48},
    {4,
     8,
     SCHEDULE_INTERLEAVED_1F1B,
     2,
     0,
     false,
     {28.5, 294.5, 322.5},
     {5.5, 4.5, 3.5, 2.5},
     {5.5, 4.5, 3.5, 2.5},
     112},
    {4,
     8,
     SCHEDULE_INTERLEAVED_1F1B,
     4,
     0,
     false,
     {26.25, 271.25, 331.25},
     {4.75, 4.25, 3.75, 3.25},
     {4.75, 4.25, 3.75, 3.25},
     240},
    {4, 8, SCHEDULE_BFS, 2, 0, false, {28.5, 294.5, 306.5}, SAME(8), SAME(8), 112},
    {4, 8, SCHEDULE_ZB_H1, 1, 0, true, {27, 299, 323}, {4, 3, 2, 1}, SAME(4), 48},
    {4, 8, SCHEDULE_ZB_H2, 1, 0, true, {27, 278, 290}, {7, 5, 3, 1}, SAME(7), 48},
    {4, 8, SCHEDULE_IZB, 2, 0, true, {25.5, 273.5, 308}, {4, 3.5, 3, 2.5}, SAME(4), 112},
    {4, 8, SCHEDULE_IZB, 4, 0, true, {24.75, 260.75, 336.5}, {4, 3.75, 3.5, 3.25}, SAME(4), 240},
    {4, 8, SCHEDULE_ZB_V, 2, 0, true, {25.5, 269, 301.5}, SAME(4), SAME(4), 96},
    {8, 16, SCHEDULE_1F1B, 1, 0, false, {69, 713, 793}, DOWN8, DOWN8, 224},
    {8, 16, SCHEDULE_1F1B, 1, 0, true, {62, 664, 692}, DOWN8, DOWN8, 224},
    {8,
     16,
     SCHEDULE_INTERLEAVED_1F1B,
     2,
     0,
     false,
     {58.5, 604.5, 664.5},
     {11.5, 10.5, 9.5, 8.5, 7.5, 6.5, 5.5, 4.5},
     {11.5, 10.5, 9.5, 8.5, 7.5, 6.5, 5.5, 4.5},
     480},
    {8, 16, SCHEDULE_ZB_H1, 1, 0, true, {55, 615, 671}, DOWN8, SAME(8), 224},
    {8, 16, SCHEDULE_ZB_H2, 1, 0, true, {55, 566, 594}, {15, 13, 11, 9, 7, 5, 3, 1}, SAME(15), 224},
    {8,
     16,
     SCHEDULE_IZB,
     4,
     0,
     true,
     {49.75, 525.75, 696.5},
     {8, 7.75, 7.5, 7.25, 7, 6.75, 6.5, 6.25},
     SAME(8),
     992},
    {8, 16, SCHEDULE_ZB_V, 2, 0, true, {51.5, 545, 625.5}, SAME(8), SAME(8), 448},
};

static struct plan *lowered_of(const struct row *row)
{
    struct plan_shape shape = fixture_shape(row->schedule, row->p, row->m, row->early);
    struct plan *compute = NULL;
    struct plan *lowered = NULL;

    shape.virtual_stages = row->v;
    shape.extra_in_flight = row->extra;
    assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    return lowered;
}

static void expect_close(const char *what, const struct row *row, double found, double expected)
{
    if (!(found - expected < 1e-9 && expected - found < 1e-9)) {
        fail_msg("%s, p %d, m %d, v %d: %s is %.9f, expected %.9f", schedule_text(row->schedule),
                 row->p, row->m, row->v, what, found, expected);
    }
}

/* Without bounds, as the vectors are, and with the landing buffers that the plan has: they are
 * enough that nothing is lost. */
static void check_makespan(const struct row *row, const struct plan *plan, const double *c,
                           double expected)
{
    int unbounded;

    for (unbounded = 0; unbounded < 2; unbounded++) {
        struct plan_costs costs;
        struct simulation simulation;

        assert_int_equal(plan_costs_uniform(plan, c[0], c[1], c[2], c[3], &costs), STATUS_OK);
        costs.unbounded = unbounded == 1;
        assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
        expect_close("makespan", row, simulation.makespan, expected);
        simulation_release(&simulation);
        plan_costs_release(&costs);
    }
}

static void check_row(const struct row *row)
{
    struct plan *plan = lowered_of(row);
    double peaks[2][MOST_RANKS];
    struct plan_costs costs;
    struct plan_report report;
    int i;

    for (i = 0; i < 3; i++) {
        check_makespan(row, plan, costs_of[i], row->T[i]);
    }
    assert_int_equal(plan_peaks(plan, false, peaks[0]), STATUS_OK);
    assert_int_equal(plan_peaks(plan, true, peaks[1]), STATUS_OK);
    for (i = 0; i < row->p; i++) {
        expect_close("peak to I", row, peaks[0][i], row->peak[i]);
        expect_close("peak to W", row, peaks[1][i], row->wall[i]);
    }
    assert_int_equal(plan_costs_uniform(plan, 1.0, 1.0, 1.0, 0.0, &costs), STATUS_OK);
    assert_int_equal(plan_report_make(plan, &costs, &report), STATUS_OK);
    assert_int_equal(report.messages, row->messages);
    plan_report_release(&report);
    plan_costs_release(&costs);
    plan_destroy(&plan);
}

static void times_peaks_and_messages_are_those_of_the_table(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_row(&rows[i]);
    }
}

static double bubble_of(const struct row *row, double c)
{
    struct plan *plan = lowered_of(row);
    struct plan_costs costs;
    struct simulation simulation;
    double bubble;

    assert_int_equal(plan_validate(plan), STATUS_OK);
    assert_int_equal(plan_costs_uniform(plan, 1.0, 1.0, 1.0, c, &costs), STATUS_OK);
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    bubble = simulation.bubble;
    simulation_release(&simulation);
    plan_costs_release(&costs);
    plan_destroy(&plan);
    return bubble;
}

/* F = I = W = 1. */
static void fewer_micro_batches_than_ranks_have_the_bubbles_of_the_table(void **state)
{
    static const struct {
        enum schedule schedule;
        int32_t v;
        double bubbles[3]; /* m = 1, 2, 3 */
    } cases[] = {{SCHEDULE_1F1B, 1, {9, 9, 9}},
                 {SCHEDULE_ZB_H1, 1, {6, 5, 4}},
                 {SCHEDULE_IZB, 2, {5.5, 3.5, 2.5}},
                 {SCHEDULE_INTERLEAVED_1F1B, 2, {9, 7.5, 6}}};
    size_t i;
    int32_t m;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (m = 1; m <= 3; m++) {
            const struct row row = {.p = 4, .m = m, .schedule = cases[i].schedule, .v = cases[i].v};

            expect_close("bubble", &row, bubble_of(&row, 0.0), cases[i].bubbles[m - 1]);
        }
    }
}

/* p 4, m 16, F = I = W = 1, latency 0, 0.1, 0.5. */
static void latency_costs_what_the_table_says(void **state)
{
    static const struct {
        enum schedule schedule;
        int32_t v;
        int32_t extra;
        double bubbles[3];
    } cases[] = {{SCHEDULE_1F1B, 1, 0, {9, 11.8, 23}},
                 {SCHEDULE_1F1B, 1, 3, {9, 9.6, 12}},
                 {SCHEDULE_INTERLEAVED_1F1B, 2, 0, {4.5, 5.9, 11.5}},
                 {SCHEDULE_ZB_H1, 1, 0, {3, 4.2, 9}},
                 {SCHEDULE_ZB_V, 2, 0, {1.5, 2.8, 8.5}},
                 {SCHEDULE_IZB, 2, 0, {1.5, 3.1, 18}}};
    static const double latencies[3] = {0.0, 0.1, 0.5};
    size_t i;
    int c;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (c = 0; c < 3; c++) {
            const struct row row = {.p = 4,
                                    .m = 16,
                                    .schedule = cases[i].schedule,
                                    .v = cases[i].v,
                                    .extra = cases[i].extra};

            expect_close("bubble", &row, bubble_of(&row, latencies[c]), cases[i].bubbles[c]);
        }
    }
}

/* With e more in flight less of the latency shows. */
static void extra_micro_batches_hide_latency_as_the_table_says(void **state)
{
    static const struct {
        int32_t p, m, extra;
        double c, bubble;
    } cases[] = {
        {4, 16, 0, 0.1, 11.8}, {4, 16, 1, 0.1, 9.6},  {4, 16, 2, 0.1, 9.6},  {4, 16, 0, 0.2, 14.6},
        {4, 16, 1, 0.2, 11.4}, {4, 16, 2, 0.2, 10.2}, {8, 32, 0, 0.2, 34.6}, {8, 32, 1, 0.2, 31.4},
        {8, 32, 2, 0.2, 28.6}, {8, 32, 3, 0.2, 25.8}, {8, 32, 7, 0.2, 23.8},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct row row = {.p = cases[i].p,
                                .m = cases[i].m,
                                .schedule = SCHEDULE_1F1B,
                                .v = 1,
                                .extra = cases[i].extra};

        expect_close("bubble", &row, bubble_of(&row, cases[i].c), cases[i].bubble);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_peaks_and_messages_are_those_of_the_table),
        cmocka_unit_test(fewer_micro_batches_than_ranks_have_the_bubbles_of_the_table),
        cmocka_unit_test(latency_costs_what_the_table_says),
        cmocka_unit_test(extra_micro_batches_hide_latency_as_the_table_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
