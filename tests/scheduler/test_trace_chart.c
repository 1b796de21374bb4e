/* The picture in characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/trace_chart.h"
#include "tests/scheduler/hand_run.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char *draw(const struct hand_span *spans, size_t count, int32_t stages, int32_t columns,
                  bool colours)
{
    struct trace_run run;
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);

    assert_non_null(memory);
    hand_run_make(spans, count, stages, &run);
    assert_int_equal(trace_chart_print(&run, columns, colours, memory), STATUS_OK);
    assert_int_equal(fclose(memory), 0);
    trace_run_release(&run);
    return text;
}

/* 20 columns for 20 us. */
static const struct hand_span two_stages[] = {
    HAND_F(0, 0, 0, 0, 4),
    HAND_SEND(0, 0, 0, LANE_F, 1, 4, 5),
    HAND_B(0, 0, 0, 14, 18),
    HAND_OTHER(0, OPTIMIZER, 18, 20),
    HAND_WAIT(1, 1, 0, LANE_F, 0, 0, 5),
    HAND_F(1, 1, 0, 5, 8),
    HAND_I(1, 1, 0, 8, 11),
    HAND_W(1, 1, 0, 11, 12),
    HAND_OTHER(1, STEP, 17, 20),
};

static void each_column_shows_what_took_most_of_it(void **state)
{
    char *text = draw(two_stages, COUNT(two_stages), 2, 34, false);

    (void)state;
    assert_string_equal(text, "stage 0     |F0- ..........B0- O |\n"
                              "stage 1     |.....F0 I0 W.....S- |\n"
                              "             step 1, 0.02 ms, 0.001 ms a column; dots are idle\n");
    free(text);
}

/* Half as many columns: W takes half of one, of which the rest is idle; a tie is drawn. */
static void what_is_narrower_than_a_column_gives_way(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 100),   HAND_I(0, 0, 0, 100, 101), HAND_W(0, 0, 0, 101, 200),
        HAND_F(0, 0, 1, 203, 204), HAND_F(0, 0, 2, 220, 320),
    };
    char *text = draw(spans, COUNT(spans), 1, 30, false);

    (void)state;
    /* 20 us a column: I is lost in the first of W, F1 in a column that is mostly idle. */
    assert_non_null(strstr(text, "|F0-- W0-- .F2-- |"));
    free(text);
}

static void second_chunks_have_small_letters(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 8),
        HAND_F(0, 2, 0, 8, 16),
    };
    char *text = draw(spans, COUNT(spans), 1, 30, false);

    (void)state;
    assert_non_null(strstr(text, "|F0----- f0----- |"));
    free(text);
}

static void colours_are_put_around_actions_alone(void **state)
{
    char *text = draw(two_stages, COUNT(two_stages), 2, 34, true);

    (void)state;
    assert_non_null(strstr(text, "|\033[30;48;5;111mF0- \033[0m..........\033[30;48;5;210mB0- "));
    free(text);
}

static void too_little_room_or_nothing_to_draw_draws_nothing(void **state)
{
    char *text = draw(two_stages, COUNT(two_stages), 2, 20, false);

    (void)state;
    assert_string_equal(text, "");
    free(text);
    text = draw(NULL, 0, 2, 80, false);
    assert_string_equal(text, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_column_shows_what_took_most_of_it),
        cmocka_unit_test(what_is_narrower_than_a_column_gives_way),
        cmocka_unit_test(second_chunks_have_small_letters),
        cmocka_unit_test(colours_are_put_around_actions_alone),
        cmocka_unit_test(too_little_room_or_nothing_to_draw_draws_nothing),
    };

    return cmocka_run_group_tests_name("trace_chart", tests, NULL, NULL);
}
