#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/plan_chart.h"

/* The caller frees it. */
static char *draw(const struct plan *plan, double F, double I, double W, int32_t columns,
                  bool *drawn)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    struct plan_costs costs;
    struct simulation simulation;

    assert_non_null(out);
    assert_int_equal(plan_costs_uniform(plan, F, I, W, 0.0, &costs), STATUS_OK);
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    assert_int_equal(plan_chart_print(plan, &simulation, "# ", columns, out, drawn), STATUS_OK);
    assert_int_equal(fclose(out), 0);
    simulation_release(&simulation);
    plan_costs_release(&costs);
    return text;
}

static void expect_picture(double W, int32_t columns, const char *expected)
{
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 2, 2, true);
    bool drawn = false;
    char *text = draw(plan, 1.0, 1.0, W, columns, &drawn);

    assert_string_equal(text, expected);
    assert_int_equal(drawn, expected[0] != '\0');
    free(text);
    plan_destroy(&plan);
}

/* Two ranks, two micro-batches, F = I = 1: F1 of rank 1 waits for W0, so that the makespan is 8
 * with W = 1 and 10 with W = 2. */
static void a_row_shows_what_a_rank_does_when_and_dots_when_it_waits(void **state)
{
    (void)state;
    expect_picture(1.0, 100,
                   "# rank 0     |F0- F1- ....B0----- ....B1----- |\n"
                   "# rank 1     |....F0- I0- W0- F1- I1- W1- ....|\n");
}

static void narrow_pictures_keep_the_kind_and_drop_what_does_not_fit(void **state)
{
    (void)state;
    expect_picture(1.0, 34,
                   "# rank 0     |F0F1..B0- ..B1- |\n"
                   "# rank 1     |..F0I0W0F1I1W1..|\n");
    expect_picture(1.0, 23,
                   "# rank 0     |FF.B0.B1|\n"
                   "# rank 1     |.FIWFIW.|\n");
}

static void longer_actions_are_wider(void **state)
{
    (void)state;
    expect_picture(2.0, 25,
                   "# rank 0     |FF.B0 .B1 |\n"
                   "# rank 1     |.FIW0FIW1.|\n");
}

/* One rank, two chunks, one micro-batch: the second chunk has small letters. */
static void every_second_chunk_has_small_letters(void **state)
{
    struct plan *plan = fixture_chunks(SCHEDULE_INTERLEAVED_1F1B, 1, 1, 2, true);
    bool drawn = false;
    char *text = draw(plan, 1.0, 1.0, 1.0, 100, &drawn);

    (void)state;
    assert_true(drawn);
    assert_string_equal(text, "# rank 0     |F0- f0- b0----- B0----- |\n");
    free(text);
    plan_destroy(&plan);
}

static void nothing_is_drawn_where_an_action_has_no_column(void **state)
{
    (void)state;
    expect_picture(1.0, 22, "");
    expect_picture(1.0, 3, "");
    expect_picture(0.0, 100, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_shows_what_a_rank_does_when_and_dots_when_it_waits),
        cmocka_unit_test(narrow_pictures_keep_the_kind_and_drop_what_does_not_fit),
        cmocka_unit_test(longer_actions_are_wider),
        cmocka_unit_test(every_second_chunk_has_small_letters),
        cmocka_unit_test(nothing_is_drawn_where_an_action_has_no_column),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
