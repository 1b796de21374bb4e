#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/plan_text.h"
#include "scheduler/validate.h"

#define MUTATIONS 20000

/* The caller frees it. */
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

static void expect_same_actions(const struct plan *a, const struct plan *b)
{
    int32_t rank;

    assert_int_equal(a->shape.ranks, b->shape.ranks);
    assert_int_equal(a->shape.microbatches, b->shape.microbatches);
    for (rank = 0; rank < a->shape.ranks; rank++) {
        assert_int_equal(a->lines[rank].count, b->lines[rank].count);
        assert_memory_equal(a->lines[rank].actions, b->lines[rank].actions,
                            (size_t)a->lines[rank].count * sizeof(struct action));
    }
}

static enum status parse(const char *text, struct plan **plan)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, 0, 0, true);

    shape.virtual_stages = 0;
    return plan_text_parse("a.csv", text, strlen(text), &shape, plan);
}

static void check_round_trip(const struct plan_shape *shape, enum plan_text_form form)
{
    struct plan *plan = NULL;
    struct plan *again = NULL;
    size_t table_bytes = (size_t)shape->ranks * (size_t)shape->virtual_stages * sizeof(int32_t);
    char *text = NULL;

    assert_int_equal(plan_generate(shape, &plan), STATUS_OK);
    text = print(plan, form);
    again = fixture_text(text);
    expect_same_actions(plan, again);
    assert_memory_equal(plan->rank_of, again->rank_of, table_bytes);
    assert_memory_equal(plan->chunk_of, again->chunk_of, table_bytes);
    free(text);
    plan_destroy(&again);
    plan_destroy(&plan);
}

static void a_plan_reads_back_from_both_forms_as_it_was(void **state)
{
    static const int32_t extents[][3] = {{3, 11, 1}, {3, 11, 4}, {1, 3, 2}, {2, 4, 2}, {4, 2, 2}};
    int schedule;
    size_t i;
    int form;

    (void)state;
    for (schedule = 0; schedule < SCHEDULE_FORWARD_ONLY; schedule++) {
        int tried = 0;

        for (i = 0; i < sizeof(extents) / sizeof(extents[0]); i++) {
            struct plan_shape shape = {.schedule = (enum schedule)schedule,
                                       .ranks = extents[i][0],
                                       .microbatches = extents[i][1],
                                       .virtual_stages = extents[i][2],
                                       .lane_depth = 2};

            for (form = PLAN_TEXT_LINES;
                 schedule_takes_chunks(shape.schedule, shape.virtual_stages) &&
                 form <= PLAN_TEXT_CSV;
                 form++) {
                check_round_trip(&shape, (enum plan_text_form)form);
                tried++;
            }
        }
        assert_true(tried > 0);
    }
}

/* The order of zb_v on two ranks as PyTorch's pipelining writes it: idle cells are empty, weights are
 * gathered and given back, gradients reduced. */
static void a_v_schedule_from_elsewhere_is_ours(void **state)
{
    static const char text[] =
        "0UNSHARD,0F0,0F1,0F2,3UNSHARD,,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,"
        "3F3,3I3,3W3,3RESHARD,3REDUCE_GRAD,0I2,0W2,,0I3,0W3,0RESHARD,0REDUCE_GRAD\r\n"
        "1UNSHARD,,1F0,2F0,1F1,,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1I2,"
        "2I3,1I3,1W2,2W3,,1W3,1RESHARD,2REDUCE_GRAD\r\n";
    struct plan_shape shape = fixture_shape(SCHEDULE_ZB_V, 2, 4, true);
    struct plan *read = NULL;
    struct plan *plan = NULL;

    (void)state;
    shape.virtual_stages = 2;
    assert_int_equal(plan_generate(&shape, &plan), STATUS_OK);
    assert_int_equal(parse(text, &read), STATUS_OK);
    expect_same_actions(plan, read);
    plan_destroy(&read);
    plan_destroy(&plan);
}

static void lines_are_aligned_and_csv_has_a_cell_an_action(void **state)
{
    struct plan *plan = fixture_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    char *lines = print(plan, PLAN_TEXT_LINES);
    char *csv = print(plan, PLAN_TEXT_CSV);
    struct plan *wide = fixture_compute(SCHEDULE_GPIPE, 1, 11);
    char *wide_lines = print(wide, PLAN_TEXT_LINES);

    (void)state;
    assert_string_equal(lines, "rank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F0 1B0 1F1 1B1\n");
    assert_string_equal(csv, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    assert_non_null(strstr(wide_lines, "0F9  0F10 0B0  0B1 "));
    free(lines);
    free(csv);
    free(wide_lines);
    plan_destroy(&plan);
    plan_destroy(&wide);
}

static void idle_cells_comments_blank_lines_and_carriage_returns_are_skipped(void **state)
{
    struct plan *plan = fixture_text("# made elsewhere\r\n\r\n0F0,0F1,,,0B0,,0B1,\r\n"
                                     ",1F0,1B0,1F1,1B1,,\r\n# end");

    (void)state;
    assert_int_equal(plan->shape.ranks, 2);
    assert_int_equal(plan->shape.schedule, SCHEDULE_FILE);
    assert_string_equal(fixture_line(plan, 0), "0F0 0F1 0B0 0B1");
    assert_string_equal(fixture_line(plan, 1), "1F0 1B0 1F1 1B1");
    plan_destroy(&plan);
}

static void communication_is_stripped_and_lowered_again_to_the_same_plan(void **state)
{
    struct plan *lowered = fixture_lowered(SCHEDULE_1F1B, 3, 5, false);
    char *text = print(lowered, PLAN_TEXT_CSV);
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, 3, 5, false);
    struct plan *compute = NULL;
    struct plan *again = NULL;

    (void)state;
    assert_int_equal(plan_text_parse("x", text, strlen(text), &shape, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &again), STATUS_OK);
    expect_same_actions(lowered, again);
    plan_destroy(&compute);
    compute = fixture_text("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
                           "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n");
    assert_string_equal(fixture_line(compute, 0), "0F0 0B0");
    free(text);
    plan_destroy(&compute);
    plan_destroy(&again);
    plan_destroy(&lowered);
}

static void a_v_placement_comes_from_the_file_and_validates(void **state)
{
    struct plan *plan = fixture_text("0F0 3F0 3I0 3W0 0I0 0W0\n1F0 2F0 2B0 1B0\n");
    struct plan *lowered = NULL;

    (void)state;
    assert_int_equal(plan->shape.virtual_stages, 2);
    assert_int_equal(plan->rank_of[0], 0);
    assert_int_equal(plan->rank_of[1], 1);
    assert_int_equal(plan->rank_of[2], 1);
    assert_int_equal(plan->rank_of[3], 0);
    assert_int_equal(plan->chunk_of[2], 1);
    assert_int_equal(plan_lower(plan, &lowered), STATUS_OK);
    assert_int_equal(plan_validate(lowered), STATUS_OK);
    assert_string_equal(fixture_line(lowered, 1),
                        "1RECV_F0 1F0 2F0 2SEND_F0 2RECV_B0 2B0 1I0 1SEND_B0 1W0 STEP");
    plan_destroy(&lowered);
    plan_destroy(&plan);
}

static void what_is_wrong_is_named_with_line_column_and_text(void **state)
{
    static const struct {
        const char *text;
        const char *expected;
    } cases[] = {
        {"0F0,0B0\n1F0,1Q0\n", "plan a.csv, line 2, column 5: \"1Q0\" is not an action"},
        {"0F0,(0F1;0B0)OVERLAP_F_B\n", "column 5: \"(0F1;0B0)OVERLAP_F_B\" is two actions"},
        {"rank 1: 0F0 0B0\n", "line 1, column 1: \"rank 1: 0F0 0B0\" does not begin"},
        {"", "holds no rank"},
        {"\n# nothing\n", "holds no rank"},
        {",,,\n", "0 virtual stages on 1 ranks"},
        {"0F0\n1F0\n2F0 0B0\n2F0", "3 virtual stages on 4 ranks"},
        {"0F999999999,0B999999999\n", "1 F for 1 virtual stages and 1000000000 micro-batches"},
        {"999999999F0\n", "1 F for 1000000000 virtual stages and 1 micro-batches"},
        {"0F0 0B0\n0F0 0B0\n", "1 virtual stages on 2 ranks"},
        {"0F0 1F0 2F0\n3F0\n", "rank 0 holds more than 2 virtual stages"},
        {"0F0\x01\x02\n", "\"0F0??\" is not an action"},
    };
    int saved = fixture_mute();
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan *plan = NULL;

        assert_int_equal(parse(cases[i].text, &plan), STATUS_ERR_REFUSED);
        assert_null(plan);
        assert_non_null(strstr(status_last()->message, cases[i].expected));
    }
    fixture_unmute(saved);
}

static void a_file_that_does_not_fit_the_job_is_refused(void **state)
{
    static const char text[] = "0F0 0B0\n1F0 1B0\n";
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, 4, 1, true);
    struct plan *plan = NULL;
    int saved = fixture_mute();

    (void)state;
    assert_int_equal(plan_text_parse("x", text, strlen(text), &shape, &plan), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message,
                           "plan x, line 2: pp, the number of ranks, is 2, expected 4"));
    shape = fixture_shape(SCHEDULE_FILE, 2, 8, true);
    assert_int_equal(plan_text_parse("x", text, strlen(text), &shape, &plan), STATUS_ERR_REFUSED);
    assert_non_null(
        strstr(status_last()->message, "plan x, line 1: num_microbatches is 1, expected 8"));
    fixture_unmute(saved);
}

static void a_file_is_read_and_a_missing_one_is_refused(void **state)
{
    static const char text[] = "0F0 0B0\n1F0 1B0\n";
    char path[] = "/tmp/weir-plan-XXXXXX";
    int file = mkstemp(path);
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, 2, 1, true);
    struct plan *plan = NULL;
    int saved;

    (void)state;
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    (void)close(file);
    assert_int_equal(plan_text_read(path, &shape, &plan), STATUS_OK);
    assert_string_equal(fixture_line(plan, 1), "1F0 1B0");
    plan_destroy(&plan);
    assert_int_equal(unlink(path), 0);
    saved = fixture_mute();
    assert_int_equal(plan_text_read(path, &shape, &plan), STATUS_ERR_REFUSED);
    assert_int_equal(plan_text_read("/tmp", &shape, &plan), STATUS_ERR_REFUSED);
    fixture_unmute(saved);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Overwrites, deletes, doubles or swaps a few bytes. */
static size_t mutate(char *text, size_t bytes, uint32_t *seed)
{
    static const char letters[] = "0123456789FIWB,\n #:;_SENDRCV\x00\xff\t-";
    uint32_t times = 1 + next_random(seed) % 3;

    while (times-- > 0 && bytes > 2) {
        size_t at = next_random(seed) % (bytes - 1);

        switch (next_random(seed) % 4) {
        case 0:
            text[at] = letters[next_random(seed) % (sizeof(letters) - 1)];
            break;
        case 1:
            memmove(text + at, text + at + 1, bytes - at - 1);
            bytes--;
            break;
        case 2:
            memmove(text + at + 1, text + at, bytes - at);
            bytes++;
            break;
        default:
            text[at] = text[at + 1];
            break;
        }
    }
    return bytes;
}

/* Whatever the text says, it is refused or it becomes a plan that lowering and validation answer
 * for; an accepted one prints and reads back. */
static void hostile_text_is_refused_or_answered_for(void **state)
{
    struct plan *plan = fixture_compute(SCHEDULE_1F1B, 3, 4);
    char *text = print(plan, PLAN_TEXT_LINES);
    size_t text_bytes = strlen(text);
    char *mutant = malloc(text_bytes + 8);
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, 0, 0, true);
    uint32_t seed = 1;
    int refused = 0;
    int accepted = 0;
    int saved = fixture_mute();
    int i;

    (void)state;
    shape.virtual_stages = 0;
    assert_non_null(mutant);
    for (i = 0; i < MUTATIONS; i++) {
        struct plan *read = NULL;
        struct plan *lowered = NULL;
        size_t bytes;

        memcpy(mutant, text, text_bytes + 1);
        bytes = mutate(mutant, text_bytes, &seed);
        if (plan_text_parse("mutant", mutant, bytes, &shape, &read) == STATUS_OK &&
            plan_lower(read, &lowered) == STATUS_OK && plan_validate(lowered) == STATUS_OK) {
            accepted++;
        } else {
            assert_int_equal(status_last()->code, STATUS_ERR_REFUSED);
            refused++;
        }
        plan_destroy(&read);
        plan_destroy(&lowered);
    }
    fixture_unmute(saved);
    assert_true(refused > MUTATIONS / 10);
    assert_true(accepted > 0);
    free(mutant);
    free(text);
    plan_destroy(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_reads_back_from_both_forms_as_it_was),
        cmocka_unit_test(a_v_schedule_from_elsewhere_is_ours),
        cmocka_unit_test(lines_are_aligned_and_csv_has_a_cell_an_action),
        cmocka_unit_test(idle_cells_comments_blank_lines_and_carriage_returns_are_skipped),
        cmocka_unit_test(communication_is_stripped_and_lowered_again_to_the_same_plan),
        cmocka_unit_test(a_v_placement_comes_from_the_file_and_validates),
        cmocka_unit_test(what_is_wrong_is_named_with_line_column_and_text),
        cmocka_unit_test(a_file_that_does_not_fit_the_job_is_refused),
        cmocka_unit_test(a_file_is_read_and_a_missing_one_is_refused),
        cmocka_unit_test(hostile_text_is_refused_or_answered_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
