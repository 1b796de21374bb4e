/* Whole runs in layouts of shards, replicas and stages: what the console says, what is exported,
 * and that an export is a model wherever it is loaded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/checkpoint/safetensors.h"
#include "tests/system/job_assert.h"

#define STEPS 5

/* Relative, between runs that are close; and what of it a console line with four decimals shows. */
#define CLOSE      2e-6
#define HALF_DIGIT (0.5e-4 + 1e-9)

static struct job job;

/* Both streams come through one pipe. */
static void train(const char *run, const char *more)
{
    job_run(&job, "{ RUN=\"$DIR/%s\" ./train %s; echo $? > code; } 2>&1 | cat; exit $(cat code)",
            run, more);
    if (job.code != 0) {
        fail_msg("%s %s: exit code %d\n%s", run, more, job.code, job.out);
    }
}

/* The losses of a run's metrics.jsonl, by step from 1; fails where it has not `steps` of them. */
static void read_losses(const char *run, int steps, double *losses)
{
    const char *at = job.out;
    int count = 0;

    job_run(&job, "cat \"$DIR/%s/metrics.jsonl\"", run);
    while ((at = strstr(at, "\"loss\":")) != NULL) {
        at += strlen("\"loss\":");
        if (count < steps) {
            losses[count] = strtod(at, NULL);
        }
        count++;
    }
    assert_int_equal(count, steps);
}

static void assert_close(const char *what, double got, double expected)
{
    if (!(fabs(got - expected) <= CLOSE * fabs(expected))) {
        fail_msg("%s: %.12g, expected %.12g", what, got, expected);
    }
}

/* H32: every line is whole: a step's, in order, with its loss, or a rank's own talk. */
static void assert_whole_lines(const char *console, const double *losses)
{
    const char *line = console;
    char begin[32];
    int steps = 0;

    while (*line != '\0') {
        const char *end = strchr(line, '\n');

        assert_non_null(end);
        (void)snprintf(begin, sizeof(begin), "step %d/%d ", steps + 1, STEPS);
        if (strncmp(line, begin, strlen(begin)) == 0) {
            const char *loss = strstr(line, " | loss");
            double said = loss != NULL && loss < end ? strtod(loss + 8, NULL) : 0.0;

            assert_true(steps < STEPS && fabs(said - losses[steps]) < HALF_DIGIT);
            steps++;
        } else {
            assert_int_equal(strncmp(line, "[rank ", 6), 0);
            assert_true(memmem(line, (size_t)(end - line), "step 1/", 7) == NULL);
            assert_true(memmem(line, (size_t)(end - line), " | loss ", 8) == NULL);
        }
        line = end + 1;
    }
    assert_int_equal(steps, STEPS);
}

static void check_console(const char *layout, const double *expected)
{
    static char console[JOB_OUTPUT_BYTES];
    double losses[STEPS] = {0.0};

    train("run", layout);
    memcpy(console, job.out, sizeof(console));
    read_losses("run", STEPS, losses);
    for (int i = 0; i < STEPS; i++) {
        assert_close(layout, losses[i], expected[i]);
    }
    assert_whole_lines(console, losses);
}

static void test_the_console_has_one_whole_line_a_step_with_the_global_loss(void **state)
{
    static const char *const layouts[] = {
        "--parallel.pp=4 --overwrite",
        "--parallel.pp=4 --parallel.dp=2 --train.num_microbatches=2 --overwrite",
        "--parallel.pp=4 --parallel.dp=2 --train.num_microbatches=2 --overwrite "
        "--parallel.schedule=gpipe",
        "--parallel.pp=2 --parallel.dp=2 --train.num_microbatches=2 --overwrite "
        "--parallel.schedule=interleaved_1f1b --parallel.virtual_stages=2",
        "--parallel.pp=4 --parallel.dp=2 --train.num_microbatches=2 --overwrite "
        "--parallel.schedule=interleaved_1f1b --parallel.virtual_stages=2",
        "--parallel.pp=3 --overwrite --parallel.schedule=zb_v --parallel.virtual_stages=2",
        "--parallel.pp=2 --parallel.dp=2 --train.num_microbatches=2 --overwrite "
        "--parallel.schedule=v_half --parallel.virtual_stages=2",
        "--parallel.pp=3 --overwrite --parallel.schedule=zb_h2",
        "--parallel.tp=2 --overwrite",
        "--parallel.pp=2 --parallel.tp=2 --parallel.dp=2 --train.num_microbatches=2 --overwrite",
    };
    double expected[STEPS] = {0.0};

    (void)state;
    train("one", "");
    read_losses("one", STEPS, expected);
    /* Of untrained weights over 256 tokens: all are about equally likely. */
    assert_true(fabs(expected[0] - log(256.0)) < 0.05);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        check_console(layouts[i], expected);
    }
}

static void assert_told_once(const char *text)
{
    const char *first = strstr(job.out, text);

    if (first == NULL || strstr(first + 1, text) != NULL) {
        fail_msg("\"%s\" is not told once:\n%s", text, job.out);
    }
}

/* H13: 95 % of 4000 bytes in sequences of 16 are 237; 29 steps of 8 are 232. H16: 5 layers of
 * 12 C² + 13 C, and (V + T) C + 2 C, where C = 32, V = 256, T = 16. */
static void test_what_becomes_of_sequences_and_layers_is_told_once(void **state)
{
    (void)state;
    train("run", "--parallel.dp=2 --train.num_microbatches=2");
    assert_told_once("data.train: 237 sequences, 8 a step: each pass over the data ends within a "
                     "step, which goes on with the next pass");
    train("run", "--parallel.pp=3 --model.num_layers=5 --overwrite");
    assert_told_once("model: 72288 parameters, 5 layers; layers by virtual stage: 2 2 1\n");
    train("run", "--parallel.pp=2 --parallel.tp=2 --model.num_layers=5 --overwrite "
                 "--parallel.schedule=interleaved_1f1b --parallel.virtual_stages=2");
    assert_told_once("model: 72288 parameters, 5 layers; layers by virtual stage: 2 1 1 1\n");
}

/* The files of a run's model, which of them has a tensor, and how many tensors there are. */
struct model {
    struct safetensors *files[2];
    int count;
};

static void open_model(const char *run, int files, struct model *model)
{
    char path[256];

    *model = (struct model){.count = files};
    for (int i = 0; i < files; i++) {
        if (files == 1) {
            (void)snprintf(path, sizeof(path), "%s/%s/model/model.safetensors", job.directory, run);
        } else {
            (void)snprintf(path, sizeof(path), "%s/%s/model/model-%05d-of-%05d.safetensors",
                           job.directory, run, i + 1, files);
        }
        assert_int_equal(safetensors_open(path, &model->files[i]), STATUS_OK);
    }
}

static void close_model(struct model *model)
{
    for (int i = 0; i < model->count; i++) {
        safetensors_close(&model->files[i]);
    }
}

static size_t count_tensors(const struct model *model)
{
    size_t count = 0;

    for (int i = 0; i < model->count; i++) {
        count += safetensors_count(model->files[i]);
    }
    return count;
}

static const struct safetensors_entry *find_tensor(const struct model *model, const char *name)
{
    const struct safetensors_entry *entry = NULL;

    for (int i = 0; i < model->count && entry == NULL; i++) {
        entry = safetensors_find(model->files[i], name);
    }
    return entry;
}

/* Elements may lie a few roundings of the largest weights apart. */
static void assert_close_tensors(const struct safetensors_entry *got,
                                 const struct safetensors_entry *expected)
{
    assert_int_equal(got->dims, expected->dims);
    assert_memory_equal(got->shape, expected->shape, (size_t)got->dims * sizeof(got->shape[0]));
    assert_int_equal(got->bytes, expected->bytes);
    for (size_t i = 0; i < got->bytes / sizeof(float); i++) {
        float a = 0.0F;
        float b = 0.0F;

        memcpy(&a, (const char *)got->data + i * sizeof(a), sizeof(a));
        memcpy(&b, (const char *)expected->data + i * sizeof(b), sizeof(b));
        if (!(fabsf(a - b) <= 1e-6F)) {
            fail_msg("%s: element %zu is %.9g, expected %.9g", got->name, i, (double)a, (double)b);
        }
    }
}

static void assert_close_models(const struct model *got, const struct model *expected)
{
    assert_int_equal(count_tensors(got), count_tensors(expected));
    for (int file = 0; file < expected->count; file++) {
        for (size_t i = 0; i < safetensors_count(expected->files[file]); i++) {
            const struct safetensors_entry *entry = safetensors_at(expected->files[file], i);
            const struct safetensors_entry *other = find_tensor(got, entry->name);

            assert_non_null(other);
            assert_close_tensors(other, entry);
        }
    }
}

/* All tensors of a model as one file. */
static void write_whole(const struct model *model, const char *name)
{
    static struct safetensors_entry entries[64];
    char path[256];
    size_t count = 0;

    assert_true(count_tensors(model) <= sizeof(entries) / sizeof(entries[0]));
    for (int file = 0; file < model->count; file++) {
        for (size_t i = 0; i < safetensors_count(model->files[file]); i++) {
            entries[count++] = *safetensors_at(model->files[file], i);
        }
    }
    (void)snprintf(path, sizeof(path), "%s/%s", job.directory, name);
    assert_int_equal(safetensors_write(path, entries, count, NULL, 0), STATUS_OK);
}

/* The first loss of weights that are loaded from `file`. */
static double loss_of(const char *file, const char *model, const char *layout)
{
    char more[512];
    double loss = 0.0;

    (void)snprintf(more, sizeof(more),
                   "%s %s --checkpoint.import=\"$DIR/%s\" --train.steps=1 "
                   "--optimizer.warmup_steps=0 --overwrite",
                   model, layout, file);
    train("loaded", more);
    read_losses("loaded", 1, &loss);
    return loss;
}

/* With an eps that rounding errors of a gradient that is 0 are far below, as that of the keys'
 * biases is: Adam would blow them up to whole steps. */
static void check_export(const char *tied)
{
    struct model one;
    struct model shards;
    struct model grid;
    char model[256];
    char more[512];
    double expected = 0.0;

    (void)snprintf(model, sizeof(model),
                   "--model.vocab_size=257 --optimizer.eps=1.0e-3 --model.tied_embeddings=%s",
                   tied);
    (void)snprintf(more, sizeof(more), "%s --overwrite", model);
    train("one", more);
    (void)snprintf(more, sizeof(more), "%s --parallel.tp=2 --overwrite", model);
    train("shards", more);
    (void)snprintf(more, sizeof(more), "%s --parallel.tp=2 --parallel.pp=2 --overwrite", model);
    train("grid", more);
    open_model("one", 1, &one);
    open_model("shards", 1, &shards);
    open_model("grid", 2, &grid);
    /* Nothing is padded: H17, H25. */
    assert_int_equal(find_tensor(&grid, "wte.weight")->shape[0], 257);
    assert_true(find_tensor(&grid, "lm_head.weight") == NULL ||
                find_tensor(&grid, "lm_head.weight")->shape[0] == 257);
    assert_close_models(&shards, &one);
    assert_close_models(&grid, &one);
    write_whole(&grid, "grid.safetensors");
    expected = loss_of("one/model/model.safetensors", model, "");
    assert_true(expected < log(257.0) - 0.1);
    assert_close("tp 2 loaded alone", loss_of("shards/model/model.safetensors", model, ""),
                 expected);
    assert_close("tp 2 · pp 2 loaded alone", loss_of("grid.safetensors", model, ""), expected);
    assert_close("one process loaded by tp 2 · pp 2",
                 loss_of("one/model/model.safetensors", model, "--parallel.tp=2 --parallel.pp=2"),
                 expected);
    close_model(&one);
    close_model(&shards);
    close_model(&grid);
}

static void test_shards_export_the_model_of_one_process_and_any_layout_loads_it(void **state)
{
    (void)state;
    check_export("true");
    check_export("false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_the_console_has_one_whole_line_a_step_with_the_global_loss, &job),
        JOB_TEST(test_what_becomes_of_sequences_and_layers_is_told_once, &job),
        JOB_TEST(test_shards_export_the_model_of_one_process_and_any_layout_loads_it, &job),
    };

    return cmocka_run_group_tests_name("run_layouts", tests, NULL, NULL);
}
