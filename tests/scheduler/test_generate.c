#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/generate.h"
#include "scheduler/simulate.h"

static void expect_line(enum schedule schedule, int32_t p, int32_t m, int32_t rank,
                        const char *expected)
{
    struct plan *plan = fixture_compute(schedule, p, m);

    assert_string_equal(fixture_line(plan, rank), expected);
    plan_destroy(&plan);
}

static void gpipe_runs_all_forwards_then_all_backwards(void **state)
{
    (void)state;
    expect_line(SCHEDULE_GPIPE, 2, 4, 0, "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3");
    expect_line(SCHEDULE_GPIPE, 2, 4, 1, "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3");
}

static void one_f_one_b_is_the_published_order(void **state)
{
    (void)state;
    expect_line(SCHEDULE_1F1B, 2, 4, 0, "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3");
    expect_line(SCHEDULE_1F1B, 2, 4, 1, "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3");
    expect_line(SCHEDULE_1F1B, 4, 8, 1,
                "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7");
}

static void one_f_one_b_takes_fewer_micro_batches_than_ranks(void **state)
{
    (void)state;
    expect_line(SCHEDULE_1F1B, 4, 1, 0, "0F0 0B0");
    expect_line(SCHEDULE_1F1B, 4, 2, 0, "0F0 0F1 0B0 0B1");
    expect_line(SCHEDULE_1F1B, 4, 2, 2, "2F0 2F1 2B0 2B1");
    expect_line(SCHEDULE_1F1B, 4, 2, 3, "3F0 3B0 3F1 3B1");
    expect_line(SCHEDULE_1F1B, 1, 3, 0, "0F0 0B0 0F1 0B1 0F2 0B2");
}

static void forward_only_has_no_backward(void **state)
{
    (void)state;
    expect_line(SCHEDULE_FORWARD_ONLY, 2, 3, 1, "1F0 1F1 1F2");
}

static void peaks_are_m_for_gpipe_and_at_most_p_minus_r_for_1f1b(void **state)
{
    double peaks[8];
    int32_t p;
    int32_t m;
    int32_t r;

    (void)state;
    for (p = 1; p <= 8; p++) {
        for (m = 1; m <= 17; m++) {
            struct plan *gpipe = fixture_compute(SCHEDULE_GPIPE, p, m);
            struct plan *one = fixture_compute(SCHEDULE_1F1B, p, m);

            assert_int_equal(plan_peaks(gpipe, true, peaks), STATUS_OK);
            for (r = 0; r < p; r++) {
                assert_true(peaks[r] == m);
            }
            assert_int_equal(plan_peaks(one, true, peaks), STATUS_OK);
            for (r = 0; r < p; r++) {
                assert_true(peaks[r] == (m < p - r ? m : p - r));
            }
            plan_destroy(&gpipe);
            plan_destroy(&one);
        }
    }
}

static void shapes_that_cannot_be_are_refused_by_name(void **state)
{
    static const struct {
        int32_t p, m, v, d;
        const char *key;
    } cases[] = {{0, 1, 1, 2, "pp is 0"},
                 {-1, 1, 1, 2, "pp is -1"},
                 {2, 0, 1, 2, "num_microbatches is 0"},
                 {2, 2000000000, 1, 2, "num_microbatches is 2000000000"},
                 {2, 4, 0, 2, "virtual_stages is 0"},
                 {2, 4, 2, 2, "virtual_stages 2"},
                 {2, 4, 1, 0, "lane_depth is 0"},
                 {65536, 1048576, 1, 2, "at most"}};
    int saved = fixture_mute();
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan_shape shape = fixture_shape(SCHEDULE_1F1B, cases[i].p, cases[i].m, true);
        struct plan *plan = NULL;

        shape.virtual_stages = cases[i].v;
        shape.lane_depth = cases[i].d;
        assert_int_equal(plan_generate(&shape, &plan), STATUS_ERR_REFUSED);
        assert_null(plan);
        assert_non_null(strstr(status_last()->message, cases[i].key));
    }
    fixture_unmute(saved);
}

static void a_schedule_is_known_by_its_name(void **state)
{
    enum schedule schedule = SCHEDULE_GPIPE;
    int saved;

    (void)state;
    assert_int_equal(schedule_parse("1f1b", &schedule), STATUS_OK);
    assert_int_equal(schedule, SCHEDULE_1F1B);
    assert_int_equal(schedule_parse("file:a/b.csv", &schedule), STATUS_OK);
    assert_int_equal(schedule, SCHEDULE_FILE);
    assert_string_equal(schedule_text(SCHEDULE_FORWARD_ONLY), "forward_only");
    saved = fixture_mute();
    assert_int_equal(schedule_parse("1F1B", &schedule), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "gpipe, 1f1b"));
    assert_int_equal(schedule_parse("file", &schedule), STATUS_ERR_REFUSED);
    assert_int_equal(schedule_parse("file:", &schedule), STATUS_ERR_REFUSED);
    fixture_unmute(saved);
    assert_int_equal(schedule, SCHEDULE_FILE);
}

static void the_hash_of_a_line_sees_every_field(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 2, 4, true);
    struct plan *again = fixture_lowered(SCHEDULE_1F1B, 2, 4, true);
    uint64_t hash = plan_line_hash(plan, 0);
    unsigned char *bytes = (unsigned char *)&plan->lines[0].actions[3];
    size_t i;

    (void)state;
    assert_true(hash == plan_line_hash(again, 0));
    assert_true(hash != plan_line_hash(plan, 1));
    for (i = 0; i < sizeof(struct action); i++) {
        bytes[i] ^= 1;
        assert_true(hash != plan_line_hash(plan, 0));
        bytes[i] ^= 1;
    }
    assert_true(hash == plan_line_hash(plan, 0));
    plan_destroy(&plan);
    plan_destroy(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpipe_runs_all_forwards_then_all_backwards),
        cmocka_unit_test(one_f_one_b_is_the_published_order),
        cmocka_unit_test(one_f_one_b_takes_fewer_micro_batches_than_ranks),
        cmocka_unit_test(forward_only_has_no_backward),
        cmocka_unit_test(peaks_are_m_for_gpipe_and_at_most_p_minus_r_for_1f1b),
        cmocka_unit_test(shapes_that_cannot_be_are_refused_by_name),
        cmocka_unit_test(a_schedule_is_known_by_its_name),
        cmocka_unit_test(the_hash_of_a_line_sees_every_field),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
