/*
 * Trainings on GPUs (gpu_run.h) in layouts that have the same bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/emulated/gpu_run.h"

/* DESIGN 5.2 on a GPU: pipelines, recompute, slices of the optimizer change no bit; shards and replicas are each
 * compared with their like. */
static void layouts_of_one_kind_have_the_same_bits(void **state)
{
    static const struct {
        struct base_run one;
        struct base_run other[4];
    } kinds[] = {
        {{.steps = 2, .micro_batch = 4},
         {{.pp = 2, .steps = 2, .micro_batch = 4},
          {.pp = 3, .steps = 2, .micro_batch = 4, .schedule = "gpipe"},
          {.pp = 2, .virtual_stages = 2, .steps = 2, .micro_batch = 4},
          {.steps = 2, .micro_batch = 4, .more = {"train.recompute=full"}}}},
        {{.steps = 2, .micro_batch = 4, .more = {"precision.dtype=bf16", "model.dropout=0.1"}},
         {{.pp = 2,
           .steps = 2,
           .micro_batch = 4,
           .more = {"precision.dtype=bf16", "model.dropout=0.1"}},
          {.steps = 2,
           .micro_batch = 4,
           .more = {"precision.dtype=bf16", "model.dropout=0.1", "train.recompute=selective"}},
          {.steps = 2,
           .micro_batch = 4,
           .more = {"precision.dtype=bf16", "model.dropout=0.1", "train.recompute=full"}},
          {.steps = 0}}},
        {{.dp = 2, .steps = 2, .micro_batch = 4},
         {{.dp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.zero_stage=1"}},
          {.dp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.zero_stage=2"}},
          {.dp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.zero_stage=3"}},
          {.pp = 2, .dp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.zero_stage=3"}}}},
        {{.tp = 2, .steps = 2, .micro_batch = 4, .more = {"precision.dtype=fp16"}},
         {{.pp = 2, .tp = 2, .steps = 2, .micro_batch = 4, .more = {"precision.dtype=fp16"}},
          {.steps = 0},
          {.steps = 0},
          {.steps = 0}}},
    };
    static struct rig_result one;
    static struct rig_result other;

    (void)state;
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
        gpu_run_train(&kinds[kind].one, 3, &one);
        for (size_t i = 0; i < 4 && kinds[kind].other[i].steps > 0; i++) {
            gpu_run_train(&kinds[kind].other[i], 4, &other);
            base_assert_same(&kinds[kind].other[i], &other, &one);
            if (kinds[kind].other[i].pp > 1) {
                base_assert_copy(&other);
            }
            rig_release(&other);
        }
        rig_release(&one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_of_one_kind_have_the_same_bits),
    };

    return cmocka_run_group_tests_name("engine_cuda_layouts", tests, base_make, base_remove);
}
