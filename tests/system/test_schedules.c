/* examples/schedules/run in a small form: its table, its pictures, what it refuses; and the table of the page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/job_assert.h"

#define CELLS 8

static struct job job;

/* Of two ranks and eight micro-batches, by hand: 1f1b holds p - r of them, interleaved_1f1b p + (p-1)/v, zb_h2 2p - 1,
 * v_half (p+2) div 2, v_min (p+4) div 3, seq1f1b 1 + (p-1)/k. And of four ranks with F = I = W = 1, where the closed
 * form holds, the bubble: 3 hops of F+I, F+I+W, max(F, I) or F, and of that the half of two chunks or slices. */
static const struct row {
    const char *name;
    const char *formula; /* how its cell begins */
    const char *picture;
    const char *words; /* for `weir plan` */
    double held;
    double bubble; /* 0: it has no closed form */
} rows[] = {
    {"gpipe", "`(p-1)(F+I)` = ", "gpipe", "gpipe", 8.0, 6.0},
    {"1f1b", "`(p-1)(F+I)` = ", "1f1b", "1f1b", 2.0, 6.0},
    {"1f1b, late send", "`(p-1)(F+I+W)` = ", "1f1b_late_send", "1f1b --early-send false", 2.0, 9.0},
    {"interleaved_1f1b, v 2", "`(p-1)(F+I)/v` ", "interleaved_1f1b_v_2",
     "interleaved_1f1b --virtual-stages 2", 2.5, 3.0},
    {"bfs, v 2", "`(p-1)(F+I)/v` = ", "bfs_v_2", "bfs --virtual-stages 2", 8.0, 3.0},
    {"zb_h1", "`(p-1)max(F, I+max(0, F-W))` = ", "zb_h1", "zb_h1", 2.0, 3.0},
    {"zb_h2", "`(p-1)max(F, I-F, F+I-2W)` = ", "zb_h2", "zb_h2", 3.0, 3.0},
    {"izb, v 2", "`(p-1)max(F, I+max(0, F-W))/v` = ", "izb_v_2", "izb --virtual-stages 2", 2.0,
     1.5},
    {"zb_v", "`(p-1)F/2` where F = I = W", "zb_v", "zb_v", 2.0, 1.5},
    {"v_half", "none", "v_half", "v_half", 2.0, 0.0},
    {"v_min", "none", "v_min", "v_min", 2.0, 0.0},
    {"seq1f1b, 2 slices", "`(p-1)(F+I)/k` = ", "seq1f1b_2_slices", "seq1f1b --sequence-slices 2",
     1.5, 3.0},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* Cuts a line of a table into its cells, in place. */
static size_t cut(char *line, char *cells[CELLS + 1])
{
    size_t count = 0;
    char *at = line + 2;

    while (count <= CELLS) {
        char *end = strstr(at, " |");

        if (end == NULL) {
            return count;
        }
        *end = '\0';
        cells[count++] = at;
        at = end + 2 + (end[2] == ' ' ? 1 : 0);
    }
    return count;
}

/* A number, and `unit` behind it. */
static double number(const char *cell, const char *unit)
{
    char *end = NULL;
    double value = strtod(cell, &end);

    if (end == cell || strcmp(end, unit) != 0 || !isfinite(value)) {
        fail_msg("\"%s\" is no number with \"%s\" behind it", cell, unit);
    }
    return value;
}

static void check_row(const struct row *row, char *line)
{
    char none[] = "";
    char *cells[CELLS + 1] = {none, none, none, none, none, none, none, none, none};
    const char *equals = NULL;
    double share = 0.0;

    assert_int_equal(cut(line, cells), CELLS);
    assert_string_equal(cells[0], row->name);
    assert_int_equal(strncmp(cells[1], row->formula, strlen(row->formula)), 0);
    equals = strstr(cells[1], "` = ");
    if (equals != NULL) {
        share = number(equals + 4, " %");
        assert_true(share > 0.0 && share < 60.0);
    }
    for (int column = 2; column <= 3; column++) {
        share = number(cells[column], " %");
        assert_true(share > 0.0 && share < 100.0);
    }
    assert_true(number(cells[4], "") == row->held);
    assert_true(number(cells[5], "") > 0.0);
    assert_string_equal(cells[6], cells[5]); /* what was planned is what was used */
    assert_true(number(cells[7], "") >= 0.0);
}

/* The only table in the text. */
static void check_table(char *text)
{
    char *line = strstr(text, "|---|");
    size_t count = 0;

    assert_non_null(line);
    line = strchr(line, '\n');
    while (line != NULL && line[1] == '|') {
        char *next = strchr(line + 1, '\n');

        if (next != NULL) {
            *next = '\0';
        }
        assert_true(count < ROWS);
        check_row(&rows[count++], line + 1);
        line = next;
    }
    assert_int_equal(count, ROWS);
}

#define RUN_ALL "exec \"$(dirname \"$LAUNCH\")\"/examples/schedules/run "

static void test_every_schedule_has_its_row_and_its_picture(void **state)
{
    char name[96];

    (void)state;
    job_run(&job, RUN_ALL "--rounds 1 --steps 2 --dir \"$DIR/all\" --model.hidden_size=32 "
                          "--model.num_heads=2 --model.seq_len=16");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "2 ranks of one thread on ");
    job_assert_says(&job, "round 1 of 1, 12 of 12, seq1f1b, 2 slices: ");
    check_table(job.out);
    for (size_t i = 0; i < ROWS; i++) {
        (void)snprintf(name, sizeof(name), "all/%s.svg", rows[i].picture);
        assert_true(job_has(&job, name));
    }
    assert_true(job_has(&job, "all/1f1b_measured.svg"));
    assert_true(job_has(&job, "all/zb_v_measured.svg"));
    job_assert_nothing_left(&job);
}

static void test_the_page_has_the_same_table(void **state)
{
    (void)state;
    job_run(&job, "cat \"$(dirname \"$LAUNCH\")/SCHEDULES.md\"");
    job_assert_exit(&job, 0);
    check_table(job.out);
    for (size_t i = 0; i < ROWS; i++) {
        char name[96];

        (void)snprintf(name, sizeof(name),
                       "test -s \"$(dirname \"$LAUNCH\")\"/examples/schedules/%s.svg",
                       rows[i].picture);
        job_run(&job, "%s", name);
        job_assert_exit(&job, 0);
    }
}

static double number_behind(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    if (at == NULL) {
        fail_msg("no %s in %s", key, text);
    }
    return at == NULL ? 0.0 : strtod(at + strlen(key), NULL);
}

static void test_formula_and_simulation_agree_where_costs_are_uniform(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        job_run(&job, "exec \"$WEIR\" plan --pp 4 --num-microbatches 8 --format json --schedule %s",
                rows[i].words);
        job_assert_exit(&job, 0);
        if (rows[i].bubble == 0.0) {
            job_assert_prints(&job, "\"formula\":{\"text\":null,");
            continue;
        }
        assert_true(number_behind(job.out, "\"limit\":null,\"bubble\":") == rows[i].bubble);
        assert_true(fabs(number_behind(job.out, "\"bubble\":") - rows[i].bubble) < 1e-9);
    }
}

static void test_what_cannot_be_meant_is_refused(void **state)
{
    static const struct {
        const char *words;
        const char *says;
    } cases[] = {
        {"--rounds 0", "--rounds: expected a number from 1, found '0'"},
        {"--steps 1", "--steps: expected a number from 2, found '1'"},
        {"--pp", "--pp: expected a number from 2, found ''"},
        {"--nothing", "unknown argument '--nothing'"},
        {"--model.hidden_size=33", "examples/schedules/job.yaml: refused"},
        {"--train.memory_limit=16K", "gpipe: the run failed; all it said is in "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        job_run(&job, RUN_ALL "--dir \"$DIR/all\" %s", cases[i].words);
        job_assert_exit(&job, 1);
        job_assert_says(&job, cases[i].says);
    }
    job_run(&job, "WEIR=\"$DIR/weir\" " RUN_ALL);
    job_assert_exit(&job, 1);
    job_assert_says(&job, "/weir is not there; build it: cmake --preset release");
    job_run(&job, RUN_ALL "--help");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "examples/schedules/run [--rounds N]");
    assert_null(strstr(job.out, "set -u"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_every_schedule_has_its_row_and_its_picture, &job),
        JOB_TEST(test_the_page_has_the_same_table, &job),
        JOB_TEST(test_formula_and_simulation_agree_where_costs_are_uniform, &job),
        JOB_TEST(test_what_cannot_be_meant_is_refused, &job),
    };

    return cmocka_run_group_tests_name("system_schedules", tests, NULL, NULL);
}
