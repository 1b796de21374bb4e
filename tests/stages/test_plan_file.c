/* Training by a plan from a file: the bits of the same training by a generated one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/generate.h"
#include "scheduler/plan_text.h"
#include "tests/scheduler/scratch.h"
#include "tests/stages/engine_rig.h"
#include "tests/stages/random_text.h"

#define TEXT_BYTES     3000
#define OVERRIDES_MOST 10

static struct scratch scratch;

static const char base_yaml[] =
    "model: {num_layers: 4, hidden_size: 24, num_heads: 3, seq_len: 12, vocab_size: 256}\n"
    "train: {steps: 3, micro_batch_size: 2, num_microbatches: 4, run_dir: unused, eval_every: 2, "
    "eval_steps: 2}\n"
    "optimizer: {lr: 0.01, warmup_steps: 1, decay_steps: 10, grad_clip: 0.5}\n";

static int make_text(void **state)
{
    char path[SCRATCH_PATH_BYTES];

    (void)state;
    scratch_make(&scratch);
    scratch_path(&scratch, "text.txt", path);
    return random_text_write(path, 4711, TEXT_BYTES);
}

static int remove_text(void **state)
{
    (void)state;
    scratch_remove(&scratch);
    return 0;
}

/* Writes `text` as a plan file and gives the override that names it. */
static void write_plan(const char *text, char override[SCRATCH_PATH_BYTES + 32])
{
    char path[SCRATCH_PATH_BYTES];
    FILE *file = NULL;

    scratch_path(&scratch, "plan.csv", path);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    (void)snprintf(override, SCRATCH_PATH_BYTES + 32, "parallel.schedule=file:%s", path);
}

/* The orders of a schedule as text; the caller frees it. */
static char *print_schedule(enum schedule schedule, int32_t ranks, int32_t chunks,
                            int32_t microbatches)
{
    struct plan_shape shape = {.schedule = schedule,
                               .ranks = ranks,
                               .microbatches = microbatches,
                               .virtual_stages = chunks,
                               .lane_depth = 2};
    struct plan *plan = NULL;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    assert_int_equal(plan_generate(&shape, &plan), STATUS_OK);
    assert_int_equal(plan_text_print(plan, PLAN_TEXT_CSV, out), STATUS_OK);
    assert_int_equal(fclose(out), 0);
    plan_destroy(&plan);
    return text;
}

/* `words` are overrides, separated by blanks. */
static void run(const char *words, struct rig_result *result)
{
    char path[SCRATCH_PATH_BYTES];
    char data[SCRATCH_PATH_BYTES + 16];
    char line[1024];
    char *rest = NULL;
    const char *overrides[OVERRIDES_MOST] = {data};
    int count = 1;

    scratch_path(&scratch, "text.txt", path);
    (void)snprintf(data, sizeof(data), "data.train=%s", path);
    (void)snprintf(line, sizeof(line), "%s", words);
    for (char *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        assert_true(count < OVERRIDES_MOST);
        overrides[count++] = word;
    }
    rig_run(base_yaml, overrides, count, result);
    if (result->status < 0) {
        fail_msg("%s: %s", words, result->message);
    }
    assert_int_equal(result->ranks_disagree, 0);
    assert_int_equal(result->copies_disagree, 0);
    assert_int_equal(result->holes, 0);
    assert_true(result->valid_loss[1] > 1.0);
}

/* The run by the plan `text` has the bits of the run with `other`, evaluations included; both have
 * the layout `more` otherwise. */
static void check(const char *text, const char *layout, const char *other, const char *more)
{
    static struct rig_result read;
    static struct rig_result generated;
    char override[SCRATCH_PATH_BYTES + 32];
    char words[1024];
    char difference[256];

    write_plan(text, override);
    (void)snprintf(words, sizeof(words), "%s %s %s", override, layout, more);
    run(words, &read);
    (void)snprintf(words, sizeof(words), "%s %s", other, more);
    run(words, &generated);
    if (!rig_same(&read, &generated, difference, sizeof(difference))) {
        fail_msg("%s against %s: %s", layout, other, difference);
    }
    assert_true(rig_bits(read.valid_loss[1]) == rig_bits(generated.valid_loss[1]));
    rig_release(&read);
    rig_release(&generated);
}

static void test_1f1b_from_a_file_has_the_bits_of_1f1b(void **state)
{
    char *text = print_schedule(SCHEDULE_1F1B, 2, 1, 4);

    (void)state;
    check(text, "parallel.pp=2", "parallel.pp=2 parallel.schedule=1f1b", "");
    check(text, "parallel.pp=2", "parallel.pp=2 parallel.schedule=1f1b",
          "parallel.dp=2 parallel.early_send=false");
    free(text);
}

static void test_interleaved_from_a_file_has_the_bits_of_interleaved(void **state)
{
    static const char layout[] = "parallel.pp=2 parallel.virtual_stages=2";
    static const char other[] =
        "parallel.pp=2 parallel.virtual_stages=2 parallel.schedule=interleaved_1f1b";
    char *text = print_schedule(SCHEDULE_INTERLEAVED_1F1B, 2, 2, 4);

    (void)state;
    check(text, layout, other, "");
    free(text);
}

/* Rank 0 has the first and the last stage, and with them both ends of the tied embedding. */
static const char v_plan[] = "0F0,0F1,3F0,3I0,3F1,3W0,3I1,0I0,0F2,3W1,0W0,3F2,0I1,3I2,0F3,0W1,3F3,"
                             "3W2,3I3,3W3,0I2,0W2,0I3,0W3\n"
                             "1F0,2F0,1F1,2F1,2I0,1I0,2W0,2I1,1W0,1I1,1F2,2F2,2W1,1W1,2I2,1I2,1F3,"
                             "2F3,2W2,1W2,2I3,1I3,2W3,1W3\n";

static void test_a_v_of_separate_i_and_w_has_the_bits_of_one_process(void **state)
{
    (void)state;
    check(v_plan, "parallel.pp=2 parallel.virtual_stages=2", "parallel.pp=1", "");
    check(v_plan, "parallel.pp=2 parallel.virtual_stages=2", "parallel.pp=1", "parallel.dp=2");
}

/* The first stage of the model on the last rank: the embedding syncs the other way round. */
static void test_ranks_in_another_order_have_the_bits_of_one_process(void **state)
{
    (void)state;
    check("1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n", "parallel.pp=2",
          "parallel.pp=1", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1f1b_from_a_file_has_the_bits_of_1f1b),
        cmocka_unit_test(test_interleaved_from_a_file_has_the_bits_of_interleaved),
        cmocka_unit_test(test_a_v_of_separate_i_and_w_has_the_bits_of_one_process),
        cmocka_unit_test(test_ranks_in_another_order_have_the_bits_of_one_process),
    };

    return cmocka_run_group_tests_name("plan_file", tests, make_text, remove_text);
}
