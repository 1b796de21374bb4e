/*
 * Data that do not fill the last step of a pass (H13): every rank makes the same steps, nothing is
 * dropped or padded, and the step in which a pass ends goes on with the next one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "stages/checkpoint/safetensors.h"
#include "stages/engine.h"
#include "tests/stages/base_run.h"

#define ROW      (BASE_POSITIONS + 1)
#define UNROLLED 24 /* sequences of five or more steps of 4 */

static char directory[64];

/* `rows` sequences, of which row r is that of r mod `different`. */
static int write_samples(const char *path, int rows, int different)
{
    static int32_t tokens[UNROLLED * ROW];
    const struct safetensors_entry entry = {.name = "tokens",
                                            .dtype = SAFETENSORS_I32,
                                            .dims = 2,
                                            .shape = {rows, ROW},
                                            .bytes = (size_t)rows * ROW * sizeof(int32_t),
                                            .data = tokens};

    for (int r = 0; r < rows; r++) {
        for (int t = 0; t < ROW; t++) {
            /* Squares, so that no row looks like another. */
            tokens[r * ROW + t] = ((r % different + 3) * (t + 5) * (t + 5)) % BASE_VOCAB;
        }
    }
    return safetensors_write(path, &entry, 1, NULL, 0) < 0 ? -1 : 0;
}

static int make(void **state)
{
    (void)snprintf(directory, sizeof(directory), "/tmp/weir-layout-data-XXXXXX");
    return mkdtemp(directory) == NULL ? -1 : base_make(state);
}

static int remove_all(void **state)
{
    return rmdir(directory) != 0 ? -1 : base_remove(state);
}

/* A rank has ended a step, and so much of the run's data is gone. */
static void print_step(void *context, const struct engine *engine)
{
    base_put_print(context, engine->attempts - 1, 0, (uint64_t)engine->consumed);
}

static void check_sequences(int sequences, int steps)
{
    static struct rig_result expected;
    static struct rig_result run;
    static struct base_prints prints;
    static const int layouts[][3] = {{1, 1, 2}, {2, 1, 2}, {1, 2, 2}, {1, 1, 4}};
    const struct rig_hooks hooks = {.context = &prints, .on_step = print_step};
    char short_path[96];
    char long_path[96];
    char short_data[128];
    char long_data[128];

    (void)snprintf(short_path, sizeof(short_path), "%s/short.safetensors", directory);
    (void)snprintf(long_path, sizeof(long_path), "%s/long.safetensors", directory);
    (void)snprintf(short_data, sizeof(short_data), "data.train=%s", short_path);
    (void)snprintf(long_data, sizeof(long_data), "data.train=%s", long_path);
    assert_int_equal(write_samples(short_path, sequences, sequences), 0);
    assert_int_equal(write_samples(long_path, UNROLLED, sequences), 0);
    assert_true(steps * 4 > 2 * sequences && steps * 4 <= UNROLLED);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct base_run layout = {.pp = layouts[i][0],
                                  .tp = layouts[i][1],
                                  .dp = layouts[i][2],
                                  .batch = 4,
                                  .steps = steps,
                                  .more = {"data.shuffle=false", long_data}};

        base_train(&layout, &expected);
        prints = (struct base_prints){.different = 0};
        layout.more[1] = short_data;
        layout.hooks = &hooks;
        base_train(&layout, &run);
        base_assert_same(&layout, &run, &expected);
        assert_int_equal(prints.different, 0);
        for (int step = 0; step < steps; step++) {
            assert_int_equal(prints.count[step][0], layout.pp * layout.tp * layout.dp);
            assert_int_equal(prints.print[step][0], 4 * (step + 1));
        }
        rig_release(&expected);
        rig_release(&run);
    }
    assert_int_equal(unlink(short_path), 0);
    assert_int_equal(unlink(long_path), 0);
}

static void test_a_pass_that_ends_within_a_step_goes_on_with_the_next(void **state)
{
    (void)state;
    check_sequences(7, 4);
    check_sequences(9, 5);
}

/* More in a step than there is at all: a step of three passes. */
static void test_fewer_sequences_than_a_step_are_taken_again(void **state)
{
    (void)state;
    check_sequences(2, 3);
    check_sequences(3, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pass_that_ends_within_a_step_goes_on_with_the_next),
        cmocka_unit_test(test_fewer_sequences_than_a_step_are_taken_again),
    };

    return cmocka_run_group_tests_name("layout_data", tests, make, remove_all);
}
