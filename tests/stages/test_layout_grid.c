/*
 * The same training in every layout: pp × tp × dp × virtual stages × micro-batch size × schedule,
 * tied or not, masked or not, early send or not.
 *
 * Each run follows the oracle where there is one for its model, and else the run of one process with
 * the whole batch as one micro-batch. And each has the bits of the run with the same tp, dp and
 * micro-batch size on one pipeline stage. `--full` runs the whole grid, otherwise a set that covers
 * all pairs of settings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stages/layout_grid.h"
#include "tests/stages/oracle.h"

#define OVERRIDES 11

static bool whole_grid;

/* Models that no oracle has: heads that 4 divides with masked data, and untied heads. A learning
 * rate at which they train: what diverges tells rounding errors and faults apart no more. */
static const char own_plain[] =
    "model: {num_layers: 4, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
    "train: {steps: 10, micro_batch_size: 8, global_batch_size: 8, run_dir: unused}\n"
    "optimizer: {lr: 0.001, warmup_steps: 3, decay_steps: 10, grad_clip: 1.0}\n"
    "data: {train: " TEST_REFERENCE_DIR "/gpt2_a.safetensors, shuffle: false}\n";
static const char own_masked[] =
    "model: {num_layers: 3, hidden_size: 48, num_heads: 4, seq_len: 20, vocab_size: 131}\n"
    "train: {steps: 10, micro_batch_size: 8, global_batch_size: 8, run_dir: unused}\n"
    "optimizer: {lr: 0.001, warmup_steps: 3, decay_steps: 10, grad_clip: 0.25}\n"
    "data: {train: " TEST_REFERENCE_DIR "/gpt2_b_masked.safetensors, shuffle: false}\n";

/* The oracle that knows this layout's model, or NULL. */
static const struct oracle *oracle_of(const struct layout_point *point)
{
    if (point->level[FACTOR_TIED] == 0) {
        return NULL;
    }
    if (point->level[FACTOR_MASKED] == 0) {
        return &oracle_plain;
    }
    return point->level[FACTOR_TP] <= 2 ? &oracle_masked : NULL;
}

static const char *yaml_of(const struct layout_point *point)
{
    const struct oracle *oracle = oracle_of(point);

    if (oracle != NULL) {
        return oracle->yaml;
    }
    return point->level[FACTOR_MASKED] != 0 ? own_masked : own_plain;
}

static void name_layout(const struct layout_point *point, char *text, size_t text_bytes)
{
    const int *level = point->level;

    (void)snprintf(text, text_bytes,
                   "pp %d, tp %d, dp %d, virtual stages %d, micro-batch %d, %s, %s, %s, early send "
                   "%d",
                   level[FACTOR_PP], level[FACTOR_TP], level[FACTOR_DP],
                   level[FACTOR_VIRTUAL_STAGES], level[FACTOR_MICRO_BATCH],
                   layout_schedules[level[FACTOR_SCHEDULE]],
                   level[FACTOR_TIED] != 0 ? "tied" : "untied",
                   level[FACTOR_MASKED] != 0 ? "masked" : "not masked", level[FACTOR_EARLY_SEND]);
}

static void run_point(const struct layout_point *point, const char *yaml, struct rig_result *run)
{
    static const char *const keys[OVERRIDES] = {
        [FACTOR_PP] = "parallel.pp",
        [FACTOR_TP] = "parallel.tp",
        [FACTOR_DP] = "parallel.dp",
        [FACTOR_VIRTUAL_STAGES] = "parallel.virtual_stages",
        [FACTOR_MICRO_BATCH] = "train.micro_batch_size",
    };
    char text[OVERRIDES][64];
    const char *overrides[OVERRIDES];
    int count = FACTOR_MICRO_BATCH + 1;
    char name[256];

    for (int i = 0; i < count; i++) {
        (void)snprintf(text[i], sizeof(text[i]), "%s=%d", keys[i], point->level[i]);
    }
    (void)snprintf(text[count++], sizeof(text[0]), "parallel.schedule=%s",
                   layout_schedules[point->level[FACTOR_SCHEDULE]]);
    (void)snprintf(text[count++], sizeof(text[0]), "model.tied_embeddings=%s",
                   point->level[FACTOR_TIED] != 0 ? "true" : "false");
    (void)snprintf(text[count++], sizeof(text[0]), "parallel.early_send=%s",
                   point->level[FACTOR_EARLY_SEND] != 0 ? "true" : "false");
    (void)snprintf(text[count++], sizeof(text[0]), "train.steps=%d", whole_grid ? 2 : 6);
    (void)snprintf(text[count++], sizeof(text[0]), "train.threads=1");
    for (int i = 0; i < count; i++) {
        overrides[i] = text[i];
    }
    rig_run(yaml, overrides, count, run);
    name_layout(point, name, sizeof(name));
    if (run->status < 0) {
        fail_msg("%s: %s", name, run->message);
    }
    if (run->ranks_disagree != 0 || run->copies_disagree != 0 || run->holes != 0) {
        fail_msg("%s: %d steps differ between ranks, %d elements between copies, %d are nowhere",
                 name, run->ranks_disagree, run->copies_disagree, run->holes);
    }
}

/* DESIGN 5.3: what may lie between two layouts that are not bit-equal. */
static void assert_close(const struct rig_result *run, const struct rig_result *alone,
                         const char *name)
{
    for (int64_t step = 0; step < run->steps; step++) {
        double allowed = step == 0 ? ORACLE_FIRST_NORM_TOLERANCE : ORACLE_NORM_TOLERANCE;

        if (!(oracle_relative(run->loss[step], alone->loss[step]) <= ORACLE_LOSS_TOLERANCE) ||
            !(oracle_relative(run->norm[step], alone->norm[step]) <= allowed)) {
            fail_msg("%s: step %d: loss %.12g, norm %.12g; one process has %.12g, %.12g", name,
                     (int)step + 1, run->loss[step], run->norm[step], alone->loss[step],
                     alone->norm[step]);
        }
    }
}

/* What a layout is measured against is run once for all layouts that share it. */
struct yardstick {
    struct layout_point point;
    const char *yaml; /* NULL: none yet */
    struct rig_result run;
};

static const struct rig_result *measure(struct yardstick *yardstick,
                                        const struct layout_point *point, const char *yaml)
{
    if (yardstick->yaml != yaml || memcmp(&yardstick->point, point, sizeof(*point)) != 0) {
        rig_release(&yardstick->run);
        yardstick->point = *point;
        yardstick->yaml = yaml;
        run_point(point, yaml, &yardstick->run);
    }
    return &yardstick->run;
}

/* One stage, the same shards, replicas and micro-batches: has the same bits. */
static struct layout_point one_stage(const struct layout_point *point)
{
    struct layout_point one = *point;

    one.level[FACTOR_PP] = 1;
    one.level[FACTOR_VIRTUAL_STAGES] = 1;
    one.level[FACTOR_SCHEDULE] = 0;
    one.level[FACTOR_EARLY_SEND] = 0;
    return one;
}

/* One process and one micro-batch: is close. */
static struct layout_point one_process(const struct layout_point *point)
{
    struct layout_point one = one_stage(point);

    one.level[FACTOR_TP] = 1;
    one.level[FACTOR_DP] = 1;
    one.level[FACTOR_MICRO_BATCH] = LAYOUT_GLOBAL_BATCH;
    return one;
}

static void check_point(const struct layout_point *point)
{
    static struct yardstick stage;
    static struct yardstick process;
    static struct rig_result run;
    const struct oracle *oracle = oracle_of(point);
    const char *yaml = yaml_of(point);
    struct layout_point same = one_stage(point);
    struct layout_point close = one_process(point);
    char name[256];
    char text[256];

    name_layout(point, name, sizeof(name));
    run_point(point, yaml, &run);
    if (oracle != NULL) {
        oracle_check(oracle, &run, name);
    } else {
        assert_close(&run, measure(&process, &close, yaml), name);
    }
    if (!rig_same(measure(&stage, &same, yaml), &run, text, sizeof(text))) {
        fail_msg("%s is not what one stage has: %s", name, text);
    }
    assert_int_equal(run.copy_count, point->level[FACTOR_TIED] != 0 &&
                                         point->level[FACTOR_PP] > 1 && !layout_is_v(point));
    if (run.copy_count > 0) {
        const struct rig_tensor *wte = rig_find(run.models, run.model_count, "wte.weight");

        assert_non_null(wte);
        assert_int_equal(run.copies[0].elems, wte->elems);
        assert_memory_equal(run.copies[0].data, wte->data, wte->elems * sizeof(float));
    }
    rig_release(&run);
}

/* Layouts that share a yardstick stand together. */
static int compare_points(const void *left, const void *right)
{
    static const int order[FACTORS] = {FACTOR_TIED, FACTOR_MASKED,         FACTOR_TP,
                                       FACTOR_DP,   FACTOR_MICRO_BATCH,    FACTOR_SCHEDULE,
                                       FACTOR_PP,   FACTOR_VIRTUAL_STAGES, FACTOR_EARLY_SEND};
    const struct layout_point *a = left;
    const struct layout_point *b = right;

    for (int i = 0; i < FACTORS; i++) {
        int difference = a->level[order[i]] - b->level[order[i]];

        if (difference != 0) {
            return difference;
        }
    }
    return 0;
}

static void test_every_layout_has_the_same_training(void **state)
{
    struct layout_point *points = NULL;
    size_t count = layout_grid_all(&points);
    bool *chosen = calloc(count, sizeof(*chosen));
    size_t kept = 0;

    (void)state;
    assert_non_null(points);
    assert_non_null(chosen);
    if (!whole_grid) {
        assert_true(layout_grid_cover(points, count, chosen) >= 16);
        for (size_t i = 0; i < count; i++) {
            if (chosen[i]) {
                points[kept++] = points[i];
            }
        }
        count = kept;
    }
    qsort(points, count, sizeof(*points), compare_points);
    for (size_t i = 0; i < count; i++) {
        check_point(&points[i]);
        if (i % 50 == 49 || i + 1 == count) {
            print_message("%zu of %zu layouts\n", i + 1, count);
        }
    }
    free(chosen);
    free(points);
}

/* Untied, masked and tied models must differ, or the grid would compare less than it says. */
static void test_the_models_of_the_grid_are_different(void **state)
{
    static struct rig_result tied;
    static struct rig_result untied;
    struct layout_point point = {.level = {1, 1, 1, 1, 8, 0, 1, 0, 0}};

    (void)state;
    run_point(&point, yaml_of(&point), &tied);
    point.level[FACTOR_TIED] = 0;
    run_point(&point, yaml_of(&point), &untied);
    assert_null(rig_find(tied.weights, tied.tensors, "lm_head.weight"));
    assert_non_null(rig_find(untied.weights, untied.tensors, "lm_head.weight"));
    assert_true(fabs(tied.loss[1] - untied.loss[1]) > 1e-4);
    rig_release(&tied);
    rig_release(&untied);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_models_of_the_grid_are_different),
        cmocka_unit_test(test_every_layout_has_the_same_training),
    };

    whole_grid = argc > 1 && strcmp(argv[1], "--full") == 0;
    return cmocka_run_group_tests_name(whole_grid ? "layout_grid_full" : "layout_grid", tests, NULL,
                                       NULL);
}
