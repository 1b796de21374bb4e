/* Plans of slices of sequences: orders, numbers, text, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/plan_report.h"
#include "scheduler/plan_text.h"
#include "scheduler/prove.h"
#include "scheduler/sequences.h"

static struct plan_shape shape_of(int32_t p, int32_t m, int32_t k, bool early_send)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_SEQ1F1B, p, m * k, early_send);

    shape.sequence_slices = k;
    return shape;
}

static struct plan *compute(int32_t p, int32_t m, int32_t k)
{
    struct plan_shape shape = shape_of(p, m, k, false);
    struct plan *plan = NULL;

    assert_int_equal(plan_generate(&shape, &plan), STATUS_OK);
    return plan;
}

static struct plan *lower(struct plan *plan)
{
    struct plan *lowered = NULL;

    assert_int_equal(plan_lower(plan, &lowered), STATUS_OK);
    plan_destroy(&plan);
    return lowered;
}

static void expect_line(int32_t p, int32_t m, int32_t k, int32_t rank, const char *expected)
{
    struct plan *plan = compute(p, m, k);

    assert_string_equal(fixture_line(plan, rank), expected);
    plan_destroy(&plan);
}

/* By hand: w = p-2-r+k forwards, then in turn. */
static void slices_go_forward_in_ascending_and_back_in_descending_order(void **state)
{
    (void)state;
    expect_line(2, 2, 2, 0, "0F0.0 0F0.1 0F1.0 0B0.1 0F1.1 0B0.0 0B1.1 0B1.0");
    expect_line(2, 2, 2, 1, "1F0.0 1F0.1 1B0.1 1F1.0 1B0.0 1F1.1 1B1.1 1B1.0");
    expect_line(1, 1, 3, 0, "0F0.0 0F0.1 0F0.2 0B0.2 0B0.1 0B0.0");
    expect_line(3, 1, 2, 0, "0F0.0 0F0.1 0B0.1 0B0.0");
    expect_line(3, 1, 2, 2, "2F0.0 2F0.1 2B0.1 2B0.0");
}

static void one_slice_is_1f1b(void **state)
{
    int32_t p;
    int32_t m;
    int32_t r;

    (void)state;
    for (p = 1; p <= 5; p++) {
        for (m = 1; m <= 11; m++) {
            struct plan *plan = compute(p, m, 1);
            struct plan *plain = fixture_compute(SCHEDULE_1F1B, p, m);

            for (r = 0; r < p; r++) {
                assert_int_equal(plan->lines[r].count, plain->lines[r].count);
                assert_memory_equal(plan->lines[r].actions, plain->lines[r].actions,
                                    (size_t)plan->lines[r].count * sizeof(struct action));
            }
            plan_destroy(&plan);
            plan_destroy(&plain);
        }
    }
}

static struct plan_report report_of(int32_t p, int32_t m, int32_t k, bool early, const double *c)
{
    struct plan_shape shape = shape_of(p, m, k, early);
    struct plan *plan = NULL;
    struct plan_costs costs;
    struct plan_report report;

    assert_int_equal(plan_prove(&shape, NULL, &plan), STATUS_OK);
    assert_int_equal(plan_costs_uniform(plan, c[0], c[1], c[2], 0.0, &costs), STATUS_OK);
    assert_int_equal(plan_report_make(plan, &costs, &report), STATUS_OK);
    plan_costs_release(&costs);
    plan_destroy(&plan);
    return report;
}

static void expect_close(double found, double expected)
{
    if (!(found - expected < 1e-9 && expected - found < 1e-9)) {
        fail_msg("found %.9f, expected %.9f", found, expected);
    }
}

/* p 4, m 8, F 1, B 2, of an independent simulation. */
static void bubbles_and_peaks_are_those_of_the_literature(void **state)
{
    static const double costs[] = {1.0, 1.0, 1.0};
    static const double peaks[2][4] = {{2.5, 2.0, 1.5, 1.0}, {1.75, 1.5, 1.25, 1.0}};
    static const double bubbles[2] = {4.5, 2.25};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct plan_report report = report_of(4, 8, 2 << i, false, costs);

        expect_close(report.simulation.bubble, bubbles[i]);
        expect_close(report.simulation.ideal, 24.0);
        assert_int_equal(report.messages, 2 * 8 * (2 << i) * 3);
        for (int r = 0; r < 4; r++) {
            expect_close(report.peak_wall[r], peaks[i][r]);
            expect_close(report.peak_w0[r], peaks[i][r]);
        }
        plan_report_release(&report);
    }
}

/* Bubble (p-1)(F+B)/k, with early send (p-1)(F+I)/k; stashes of rank r min(m·k, p-1-r+k)/k; no lane needs more
 * than it has at depth 1. */
static void bubbles_and_peaks_have_closed_forms(void **state)
{
    static const double costs[][3] = {{1.0, 1.0, 1.0}, {10.0, 14.0, 7.0}, {3.0, 5.0, 2.0}};

    (void)state;
    for (int i = 0; i < 3 * 5 * 4 * 6 * 2; i++) {
        const double *c = costs[i % 3];
        int32_t p = 1 + i / 3 % 5;
        int32_t k = 1 + i / 15 % 4;
        int32_t m = 1 + i / 60 % 6;
        bool early = i / 360 % 2 == 1;
        struct plan_report report = report_of(p, m, k, early, c);

        expect_close(report.simulation.bubble, (p - 1) * (c[0] + c[1] + (early ? 0.0 : c[2])) / k);
        assert_int_equal(report.min_depth, 1);
        for (int32_t r = 0; r < p; r++) {
            int32_t held = p - 1 - r + k < m * k ? p - 1 - r + k : m * k;

            expect_close(report.peak_wall[r], (double)held / k);
        }
        plan_report_release(&report);
    }
}

/* Rank 0 of 4 goes forward with 0.0 0.1 1.0 1.1 and 2.0 before B0.1: three micro-batches; rank 3 with 0.0 0.1,
 * then 1.0 before B0.0. */
static void keys_stay_while_a_slice_of_their_micro_batch_does(void **state)
{
    struct plan *plan = lower(compute(4, 8, 2));
    struct plan *evaluation = NULL;

    (void)state;
    assert_int_equal(plan_sequences(plan, 0, 0), 3);
    assert_int_equal(plan_sequences(plan, 3, 0), 2);
    /* F0.0 to F1.0 are asked for when B0.0 begins, and 0.0 is the oldest of them. */
    assert_int_equal(plan_landing_window(plan, 3, 0), 3);
    assert_int_equal(plan_buffers_of(plan, 3, 0)->slots, 2);
    assert_int_equal(plan_buffers_of(plan, 3, 0)->landing_f, 3 + 2);
    assert_int_equal(plan_prove_evaluation(plan, &evaluation), STATUS_OK);
    assert_int_equal(plan_sequences(evaluation, 0, 0), 1);
    plan_destroy(&plan);
    plan_destroy(&evaluation);
    plan = fixture_lowered(SCHEDULE_1F1B, 4, 8, true);
    assert_int_equal(plan_sequences(plan, 0, 0), 0);
    assert_int_equal(plan_landing_window(plan, 3, 0), 0);
    plan_destroy(&plan);
}

static char *print(const struct plan *plan, enum plan_text_form form)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    assert_int_equal(plan_text_print(plan, form, out), STATUS_OK);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void check_round_trip(const struct plan *plan, const struct plan *expected, int form)
{
    struct plan_shape wanted = shape_of(3, 5, 4, false);
    char *text = print(plan, (enum plan_text_form)form);
    struct plan *read = NULL;

    wanted.schedule = SCHEDULE_FILE;
    assert_int_equal(plan_text_parse("a.csv", text, strlen(text), &wanted, &read), STATUS_OK);
    assert_int_equal(read->shape.sequence_slices, 4);
    assert_int_equal(read->shape.microbatches, 20);
    for (int32_t r = 0; r < 3; r++) {
        assert_int_equal(read->lines[r].count, expected->lines[r].count);
        assert_memory_equal(read->lines[r].actions, expected->lines[r].actions,
                            (size_t)read->lines[r].count * sizeof(struct action));
    }
    plan_destroy(&read);
    free(text);
}

/* Of a lowered one what lowering has added is left out; early send off, every B stands as it was. */
static void a_plan_of_slices_reads_back_from_text(void **state)
{
    struct plan *plan = compute(3, 5, 4);
    struct plan *lowered = NULL;

    (void)state;
    assert_int_equal(plan_lower(plan, &lowered), STATUS_OK);
    for (int form = PLAN_TEXT_LINES; form <= PLAN_TEXT_CSV; form++) {
        check_round_trip(plan, plan, form);
        check_round_trip(lowered, plan, form);
    }
    plan_destroy(&plan);
    plan_destroy(&lowered);
}

static void expect_text_refused(const char *text, int32_t slices, const char *expected)
{
    struct plan_shape wanted = fixture_shape(SCHEDULE_FILE, 0, 0, false);
    struct plan *plan = NULL;
    int saved = fixture_mute();
    enum status status;

    wanted.virtual_stages = 0;
    wanted.sequence_slices = slices;
    status = plan_text_parse("a.csv", text, strlen(text), &wanted, &plan);
    fixture_unmute(saved);
    assert_int_equal(status, STATUS_ERR_REFUSED);
    if (strstr(status_last()->message, expected) == NULL) {
        fail_msg("expected \"%s\" in \"%s\"", expected, status_last()->message);
    }
}

static void texts_that_cannot_be_are_refused_by_place(void **state)
{
    (void)state;
    expect_text_refused("0F0.0 0F0.1 0B0.1 0B0", 0, "\"0B0\" names no slice");
    expect_text_refused("0F0 0B0 0F1.0", 0, "\"0F1.0\" names a slice");
    expect_text_refused("0F0.0 0F0.1 0B0.1 0B0.0", 3, "sequence_slices is 2, expected 3");
    expect_text_refused("0F0.0 0F0.1 0B0.1 0B0.0", 1, "sequence_slices is 2, expected 1");
    expect_text_refused("0F0 0B0", 2, "sequence_slices is 1, expected 2");
    expect_text_refused("0F0.0 0F1.1 0B1.1 0B0.0", 0,
                        "2 F for 1 virtual stages and 4 micro-batches in slices");
    expect_text_refused("0F0.", 0, "is not an action");
    expect_text_refused("0F0.1024", 0, "is not an action");
    expect_text_refused("0F999999999.9", 0, "is not an action");
}

/* One rank, so that nothing but the order can be wrong. */
static void expect_order_refused(const char *text, const char *expected)
{
    fixture_refused(lower(fixture_text(text)), expected);
}

static void slices_out_of_order_are_refused(void **state)
{
    (void)state;
    expect_order_refused("0F0.1 0F0.0 0B0.1 0B0.0",
                         "comes before slice 0 of micro-batch 0: slices go forward");
    expect_order_refused("0F0.0 0F0.1 0B0.0 0B0.1",
                         "comes before slice 1 of micro-batch 0: slices go backward");
    expect_order_refused("0F0.0 0F1.0 0F0.1 0F1.1 0B0.1 0B0.0 0B1.1 0B1.0",
                         "comes before slice 1 of micro-batch 0: slices go forward");
    expect_order_refused("0F0.0 0F0.1 0F1.0 0F1.1 0B0.1 0B1.1 0B0.0 0B1.0",
                         "comes before slice 0 of micro-batch 0: slices go backward");
    expect_order_refused("0F0.0 0F0.1 0I0.1 0I0.0 0W0.0 0W0.1",
                         "comes before slice 1 of micro-batch 0: slices go backward");
}

static void expect_shape_refused(const struct plan_shape *shape, const char *expected)
{
    struct plan *plan = NULL;
    int saved = fixture_mute();
    enum status status = plan_generate(shape, &plan);

    fixture_unmute(saved);
    assert_int_equal(status, STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, expected));
}

static void shapes_that_cannot_be_are_refused_by_name(void **state)
{
    struct plan_shape shape = shape_of(2, 3, 2, true);

    (void)state;
    shape.schedule = SCHEDULE_1F1B;
    expect_shape_refused(&shape, "schedule 1f1b takes whole sequences, found sequence_slices 2");
    shape = shape_of(2, 3, 2, true);
    shape.microbatches = 5;
    expect_shape_refused(&shape, "5 pieces are no whole micro-batches of 2 slices");
    shape.sequence_slices = -1;
    expect_shape_refused(&shape, "sequence_slices is -1, expected 1 to 1024");
    shape = shape_of(2, 3, 2, true);
    shape.virtual_stages = 2;
    expect_shape_refused(&shape, "seq1f1b has one chunk a rank");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_go_forward_in_ascending_and_back_in_descending_order),
        cmocka_unit_test(one_slice_is_1f1b),
        cmocka_unit_test(bubbles_and_peaks_are_those_of_the_literature),
        cmocka_unit_test(bubbles_and_peaks_have_closed_forms),
        cmocka_unit_test(keys_stay_while_a_slice_of_their_micro_batch_does),
        cmocka_unit_test(a_plan_of_slices_reads_back_from_text),
        cmocka_unit_test(texts_that_cannot_be_are_refused_by_place),
        cmocka_unit_test(slices_out_of_order_are_refused),
        cmocka_unit_test(shapes_that_cannot_be_are_refused_by_name),
    };

    return cmocka_run_group_tests_name("sequences", tests, NULL, NULL);
}
