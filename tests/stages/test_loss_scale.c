/*
 * The loss scale: all ranks skip or step alike, in every precision, and have the same scale at every
 * step; a scale that is a power of two changes no bit of fp32 training.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/engine.h"
#include "tests/stages/base_run.h"

#ifdef WEIR_FAULTS

/* What the ranks said of a step. */
struct seen {
    int64_t step;
    char cause[CONTROL_TEXT_BYTES];
    int32_t hysteresis_left;
};

static void look(void *context, const struct engine *engine)
{
    struct seen *seen = context;

    if (engine->grid.rank == 0 && engine->attempts == seen->step) {
        (void)snprintf(seen->cause, sizeof(seen->cause), "%s", engine->update.outcome.cause);
        seen->hysteresis_left = engine->update.outcome.hysteresis_left;
    }
}

/* The run with WEIR_FAULT set while it lasts. */
static void train_with(const char *fault, const struct base_run *base, struct rig_result *run)
{
    assert_int_equal(setenv("WEIR_FAULT", fault, 1), 0);
    base_train(base, run);
    assert_int_equal(unsetenv("WEIR_FAULT"), 0);
}

#endif

static void assert_scales(const struct rig_result *run, const double *scales, const int *skipped,
                          int64_t steps)
{
    assert_int_equal(run->steps, steps);
    for (int64_t step = 0; step < steps; step++) {
        assert_true(run->scale[step] == scales[step]);
        assert_int_equal(run->skipped[step], skipped[step]);
    }
}

#ifdef WEIR_FAULTS

/* H07: the scale holds as long as hysteresis is left, and halves then at every step. */
static void overflow_at_every_step_shrinks_as_the_log_says(void **state)
{
    static const double scales[] = {65536, 65536, 65536, 32768, 16384, 8192};
    static const int skipped[] = {1, 1, 1, 1, 1, 1};
    static struct rig_result run;
    static struct rig_result start;
    struct seen second = {.step = 2};
    const struct rig_hooks hooks = {.context = &second, .on_step = look};
    struct base_run base = {
        .steps = 6, .more = {"precision.dtype=fp16", "precision.hysteresis=3"}, .hooks = &hooks};
    struct base_run untrained = {.steps = BASE_NO_STEPS, .more = {"precision.dtype=fp16"}};

    (void)state;
    train_with("overflow@0:any", &base, &run);
    assert_scales(&run, scales, skipped, 6);
    assert_int_equal(second.hysteresis_left, 1);
    assert_non_null(strstr(second.cause, "wte.weight on rank 0"));
    assert_non_null(strstr(second.cause, "the loss scale stays 65536, and shrinks after 1 more"));
    base_train(&untrained, &start);
    assert_int_equal(run.tensors, start.tensors);
    for (int32_t t = 0; t < run.tensors; t++) {
        const struct rig_tensor *same = rig_find(start.weights, start.tensors, run.weights[t].name);

        assert_non_null(same);
        assert_memory_equal(run.weights[t].data, same->data, same->elems * sizeof(float));
    }
    rig_release(&run);
    rig_release(&start);
}

static void the_scale_stops_at_its_minimum_and_says_so(void **state)
{
    static const double scales[] = {8, 4, 4, 4};
    static const int skipped[] = {1, 1, 1, 1};
    static struct rig_result run;
    struct seen last = {.step = 4};
    const struct rig_hooks hooks = {.context = &last, .on_step = look};
    struct base_run base = {.steps = 4,
                            .more = {"precision.dtype=fp16", "precision.initial_scale=8",
                                     "precision.min_scale=4", "precision.hysteresis=1"},
                            .hooks = &hooks};

    (void)state;
    train_with("poison@0:any", &base, &run);
    assert_scales(&run, scales, skipped, 4);
    assert_non_null(strstr(last.cause, "the loss scale 4 is at precision.min_scale"));
    rig_release(&run);
}

/* H08: an overflow in one shard of one stage. Ranks 2 and 3 are the shards of stage 1. */
static void an_overflow_in_one_shard_is_everybodys(void **state)
{
    static const double scales[] = {65536, 65536, 65536, 32768, 32768, 32768};
    static const int skipped[] = {0, 0, 1, 0, 0, 0};
    static struct rig_result run;
    struct seen third = {.step = 3};
    const struct rig_hooks hooks = {.context = &third, .on_step = look};
    struct base_run base = {.pp = 2,
                            .tp = 2,
                            .steps = 6,
                            .more = {"precision.dtype=fp16", "precision.hysteresis=1"},
                            .hooks = &hooks};

    (void)state;
    train_with("overflow@3:3", &base, &run);
    assert_scales(&run, scales, skipped, 6);
    assert_non_null(strstr(third.cause, "h.2.ln_1.weight on rank 3"));
    assert_non_null(strstr(third.cause, "the loss scale shrinks from 65536 to 32768"));
    base_assert_copy(&run);
    rig_release(&run);
}

static void every_precision_skips_alike(void **state)
{
    static const char *const dtypes[] = {"precision.dtype=fp32", "precision.dtype=bf16"};
    static const double scales[] = {1, 1, 1, 1};
    static const int skipped[] = {0, 1, 0, 0};
    static struct rig_result run;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct seen second = {.step = 2};
        const struct rig_hooks hooks = {.context = &second, .on_step = look};
        struct base_run base = {.pp = 2, .dp = 2, .steps = 4, .more = {dtypes[i]}, .hooks = &hooks};

        train_with("overflow@1:2", &base, &run);
        assert_scales(&run, scales, skipped, 4);
        assert_non_null(strstr(second.cause, "is not finite"));
        assert_null(strstr(second.cause, "loss scale"));
        base_assert_copy(&run);
        rig_release(&run);
    }
}

#endif

static void good_steps_let_the_scale_grow(void **state)
{
    static const double scales[] = {1024, 1024, 4096, 4096, 16384, 16384};
    static const int skipped[] = {0, 0, 0, 0, 0, 0};
    static struct rig_result run;
    struct base_run base = {.pp = 2,
                            .steps = 6,
                            .more = {"precision.dtype=fp16", "precision.initial_scale=1024",
                                     "precision.growth_interval=2", "precision.growth_factor=4"}};

    (void)state;
    base_train(&base, &run);
    assert_scales(&run, scales, skipped, 6);
    rig_release(&run);
}

/* Multiplying by a power of two and dividing by it again is exact. */
static void a_power_of_two_changes_no_bit_of_fp32(void **state)
{
    static struct rig_result plain;
    static struct rig_result scaled;
    struct base_run base = {.pp = 2, .steps = 5};

    (void)state;
    base_train(&base, &plain);
    base.more[0] = "precision.loss_scale=1024";
    base_train(&base, &scaled);
    for (int64_t step = 0; step < plain.steps; step++) {
        assert_true(plain.scale[step] == 1.0 && scaled.scale[step] == 1024.0);
        assert_true(rig_bits(plain.loss[step]) == rig_bits(scaled.loss[step]));
        assert_true(rig_bits(plain.norm[step]) == rig_bits(scaled.norm[step]));
    }
    for (int32_t t = 0; t < plain.tensors; t++) {
        const struct rig_tensor *same =
            rig_find(scaled.weights, scaled.tensors, plain.weights[t].name);

        assert_non_null(same);
        assert_memory_equal(plain.weights[t].data, same->data, same->elems * sizeof(float));
    }
    rig_release(&plain);
    rig_release(&scaled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WEIR_FAULTS
        cmocka_unit_test(overflow_at_every_step_shrinks_as_the_log_says),
        cmocka_unit_test(the_scale_stops_at_its_minimum_and_says_so),
        cmocka_unit_test(an_overflow_in_one_shard_is_everybodys),
        cmocka_unit_test(every_precision_skips_alike),
#endif
        cmocka_unit_test(good_steps_let_the_scale_grow),
        cmocka_unit_test(a_power_of_two_changes_no_bit_of_fp32),
    };

    return cmocka_run_group_tests_name("loss_scale", tests, base_make, base_remove);
}
