#include "tests/stages/base_run.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/stages/oracle.h"
#include "tests/stages/random_text.h"

/* 50 steps of 8 sequences of 32 read each byte about once. */
#define TEXT_BYTES 14000
#define OVERRIDES  9

static char text_path[64];

static const char base_yaml[] =
    "model: {num_layers: 4, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
    "train: {steps: 10, run_dir: unused, threads: 1}\n"
    "optimizer: {lr: 0.001, lr_schedule: constant, weight_decay: 0.1, beta1: 0.9, beta2: 0.95,\n"
    "            eps: 1.0e-8, grad_clip: 1.0}\n";

int base_make(void **state)
{
    int descriptor = 0;

    (void)state;
    (void)snprintf(text_path, sizeof(text_path), "/tmp/weir-base-XXXXXX");
    descriptor = mkstemp(text_path);
    if (descriptor < 0 || close(descriptor) != 0) {
        return -1;
    }
    return random_text_write(text_path, 4711, TEXT_BYTES);
}

int base_remove(void **state)
{
    (void)state;
    return unlink(text_path);
}

void base_turn_text(long at)
{
    FILE *file = fopen(text_path, "r+b");
    int byte = EOF;

    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    byte = fgetc(file);
    assert_true(byte != EOF && fseek(file, at, SEEK_SET) == 0);
    assert_true(fputc(byte ^ 1, file) != EOF && fclose(file) == 0);
}

static int or_else(int value, int otherwise)
{
    return value != 0 ? value : otherwise;
}

static const char *schedule_of(const struct base_run *base)
{
    if (base->schedule != NULL) {
        return base->schedule;
    }
    return base->virtual_stages > 1 ? "interleaved_1f1b" : "1f1b";
}

static void name_run(const struct base_run *base, char *text, size_t text_bytes)
{
    int used = snprintf(text, text_bytes,
                        "pp %d, tp %d, dp %d, virtual stages %d, %s, %d sequences in micro-batches "
                        "of %d",
                        or_else(base->pp, 1), or_else(base->tp, 1), or_else(base->dp, 1),
                        or_else(base->virtual_stages, 1), schedule_of(base),
                        or_else(base->batch, BASE_BATCH), or_else(base->micro_batch, 1));

    for (int i = 0; i < BASE_MORE; i++) {
        if (base->more[i] != NULL && used > 0 && (size_t)used < text_bytes) {
            used += snprintf(text + used, text_bytes - (size_t)used, ", %s", base->more[i]);
        }
    }
}

struct base_run base_with(const struct base_run *base, const char *more)
{
    struct base_run run = *base;
    int place = 0;

    while (place < BASE_MORE && run.more[place] != NULL) {
        place++;
    }
    assert_true(place < BASE_MORE);
    run.more[place] = more;
    return run;
}

void base_try(const struct base_run *base, struct rig_result *run)
{
    char text[OVERRIDES][96];
    const char *overrides[OVERRIDES + BASE_MORE];
    int steps = or_else(base->steps, 10);
    int count = 0;

    (void)snprintf(text[count++], sizeof(text[0]), "parallel.pp=%d", or_else(base->pp, 1));
    (void)snprintf(text[count++], sizeof(text[0]), "parallel.tp=%d", or_else(base->tp, 1));
    (void)snprintf(text[count++], sizeof(text[0]), "parallel.dp=%d", or_else(base->dp, 1));
    (void)snprintf(text[count++], sizeof(text[0]), "parallel.virtual_stages=%d",
                   or_else(base->virtual_stages, 1));
    (void)snprintf(text[count++], sizeof(text[0]), "parallel.schedule=%s", schedule_of(base));
    (void)snprintf(text[count++], sizeof(text[0]), "train.micro_batch_size=%d",
                   or_else(base->micro_batch, 1));
    (void)snprintf(text[count++], sizeof(text[0]), "train.global_batch_size=%d",
                   or_else(base->batch, BASE_BATCH));
    (void)snprintf(text[count++], sizeof(text[0]), "train.steps=%d", steps > 0 ? steps : 0);
    (void)snprintf(text[count++], sizeof(text[0]), "data.train=%s", text_path);
    for (int i = 0; i < count; i++) {
        overrides[i] = text[i];
    }
    for (int i = 0; i < BASE_MORE; i++) {
        if (base->more[i] != NULL) {
            overrides[count++] = base->more[i];
        }
    }
    rig_run_watched(base_yaml, overrides, count, base->hooks, run);
}

void base_train(const struct base_run *base, struct rig_result *run)
{
    char name[512];

    base_try(base, run);
    name_run(base, name, sizeof(name));
    if (run->status < 0) {
        fail_msg("%s: %s", name, run->message);
    }
    if (run->ranks_disagree != 0 || run->copies_disagree != 0 || run->holes != 0) {
        fail_msg("%s: %d steps differ between ranks, %d elements between copies, %d are nowhere",
                 name, run->ranks_disagree, run->copies_disagree, run->holes);
    }
}

struct base_run base_reference(const struct base_run *base)
{
    struct base_run reference = {.steps = base->steps, .batch = base->batch};

    reference.micro_batch = or_else(base->batch, BASE_BATCH);
    memcpy(reference.more, base->more, sizeof(reference.more));
    return reference;
}

void base_assert_close(const struct base_run *base, const struct rig_result *run,
                       const struct rig_result *reference)
{
    char name[512];

    name_run(base, name, sizeof(name));
    for (int64_t step = 0; step < run->steps; step++) {
        double allowed = step == 0 ? ORACLE_FIRST_NORM_TOLERANCE : ORACLE_NORM_TOLERANCE;
        double loss = oracle_relative(run->loss[step], reference->loss[step]);
        double norm = oracle_relative(run->norm[step], reference->norm[step]);

        if (!(loss <= ORACLE_LOSS_TOLERANCE) || !(norm <= allowed)) {
            fail_msg("%s: step %d: loss %.12g, norm %.12g; one process has %.12g, %.12g: %.2g and "
                     "%.2g apart",
                     name, (int)step + 1, run->loss[step], run->norm[step], reference->loss[step],
                     reference->norm[step], loss, norm);
        }
    }
}

void base_assert_same(const struct base_run *base, const struct rig_result *run,
                      const struct rig_result *reference)
{
    char name[512];
    char text[256];

    name_run(base, name, sizeof(name));
    if (!rig_same(reference, run, text, sizeof(text))) {
        fail_msg("%s: %s", name, text);
    }
}

void base_assert_copy(const struct rig_result *run)
{
    const struct rig_tensor *wte = rig_find(run->models, run->model_count, "wte.weight");

    assert_non_null(wte);
    assert_int_equal(run->copy_count, 1);
    assert_int_equal(run->copies[0].elems, wte->elems);
    assert_memory_equal(run->copies[0].data, wte->data, wte->elems * sizeof(float));
}

void base_check(const struct base_run *base)
{
    static struct rig_result run;
    static struct rig_result reference;
    struct base_run one = base_reference(base);

    base_train(&one, &reference);
    base_train(base, &run);
    base_assert_close(base, &run, &reference);
    rig_release(&run);
    rig_release(&reference);
}

uint64_t base_print(uint64_t print, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i++) {
        print = (print ^ at[i]) * 0x100000001b3U;
    }
    return print;
}

void base_put_print(struct base_prints *prints, int64_t step, int key, uint64_t print)
{
    if (step < 0 || step >= RIG_STEPS_MOST || key < 0 || key >= BASE_KEYS) {
        prints->different++;
        return;
    }
    if (prints->count[step][key]++ == 0) {
        prints->print[step][key] = print;
    } else if (prints->print[step][key] != print) {
        prints->different++;
    }
}
