/*
 * Every schedule trains what one process trains, to the last bit: with fewer micro-batches than
 * stages, evaluations in between, dropout, clipping, recompute, replicas and shards; and holds what
 * was planned, which does not grow with the number of micro-batches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/prove.h"
#include "stages/engine.h"
#include "stages/engine_start.h"
#include "tests/stages/base_run.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const struct {
    const char *name;
    int chunks;
    bool grows; /* holds all micro-batches of a step */
} schedules[] = {{"gpipe", 1, true},  {"1f1b", 1, false},  {"interleaved_1f1b", 2, false},
                 {"bfs", 2, true},    {"zb_h1", 1, false}, {"zb_h2", 1, false},
                 {"izb", 2, false},   {"zb_v", 2, false},  {"v_half", 2, false},
                 {"v_min", 2, false}, {"izb", 1, false},   {"bfs", 1, true}};

#define ALL_SCHEDULES COUNT(schedules)
#define FIRST_V       7
#define BEHIND_V      10

static struct base_run with_schedule(const struct base_run *base, size_t schedule)
{
    struct base_run layout = *base;

    layout.schedule = schedules[schedule].name;
    layout.virtual_stages = schedules[schedule].chunks;
    return layout;
}

/* The same shards, replicas and micro-batches on one stage. */
static struct base_run one_stage(const struct base_run *layout)
{
    struct base_run one = *layout;

    one.pp = 1;
    one.schedule = "1f1b";
    one.virtual_stages = 1;
    one.hooks = NULL;
    return one;
}

/* Every schedule on `base` has the bits of one stage, held-out losses included. */
static void check_all(const struct base_run *base)
{
    static struct rig_result want;
    static struct rig_result run;
    struct base_run one = one_stage(base);

    base_train(&one, &want);
    for (size_t s = 0; s < ALL_SCHEDULES; s++) {
        struct base_run layout = with_schedule(base, s);

        base_train(&layout, &run);
        base_assert_same(&layout, &run, &want);
        assert_memory_equal(run.valid_loss, want.valid_loss, sizeof(run.valid_loss));
        rig_release(&run);
    }
    rig_release(&want);
}

/* H11: one, fewer than stages, as many, one more. */
static void any_number_of_micro_batches_has_the_bits_of_one_process(void **state)
{
    static const int microbatches[] = {1, 3, 4, 5};

    (void)state;
    for (size_t i = 0; i < COUNT(microbatches); i++) {
        const struct base_run base = {.pp = 4, .steps = 2, .batch = microbatches[i]};

        check_all(&base);
    }
}

/* H12: an evaluation behind every step, and twice as long as one. */
static void evaluations_in_between_change_nothing(void **state)
{
    static struct rig_result with;
    static struct rig_result without;
    const struct base_run base = {.pp = 2, .steps = 3};

    (void)state;
    for (size_t s = 0; s < ALL_SCHEDULES; s++) {
        struct base_run layout = with_schedule(&base, s);
        struct base_run evaluated = base_with(&layout, "train.eval_every=1");

        evaluated = base_with(&evaluated, "train.eval_steps=2");
        base_train(&layout, &without);
        base_train(&evaluated, &with);
        base_assert_same(&evaluated, &with, &without);
        for (int step = 0; step < 3; step++) {
            assert_true(with.valid_loss[step] > 1.0);
        }
        rig_release(&with);
        rig_release(&without);
    }
}

static void dropout_clipping_and_evaluation_have_the_bits_of_one_process(void **state)
{
    const struct base_run base = {.pp = 3,
                                  .steps = 3,
                                  .more = {"model.dropout=0.1", "optimizer.grad_clip=0.05",
                                           "train.eval_every=2", "train.eval_steps=1",
                                           "model.num_layers=6"}};

    (void)state;
    check_all(&base);
}

/* H15: with two ranks the next one is the one before, too. */
static void two_ranks_take_nothing_for_the_other_message(void **state)
{
    const struct base_run base = {.pp = 2, .steps = 3};
    const struct base_run untied = {.pp = 2, .steps = 2, .more = {"model.tied_embeddings=false"}};

    (void)state;
    check_all(&base);
    check_all(&untied);
}

/* A W that comes long after its I finds what was computed again for it. */
static void recomputed_activations_stay_until_their_w(void **state)
{
    static const char *const kinds[] = {"train.recompute=selective", "train.recompute=full"};

    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        const struct base_run base = {.pp = 4, .steps = 2, .more = {kinds[i]}};

        check_all(&base);
    }
}

static void replicas_and_shards_have_the_bits_of_one_stage(void **state)
{
    static const struct base_run bases[] = {
        {.pp = 2, .dp = 2, .steps = 2, .more = {"parallel.zero_stage=3"}},
        {.pp = 2, .dp = 2, .steps = 2, .more = {"parallel.zero_stage=1"}},
        {.pp = 2, .tp = 2, .steps = 2, .more = {"parallel.sequence_parallel=true"}},
        {.pp = 2, .dp = 2, .steps = 2, .batch = 2, .more = {"parallel.zero_stage=2"}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(bases); i++) {
        check_all(&bases[i]);
    }
}

static void sixteen_bits_are_rounded_alike(void **state)
{
    const struct base_run base = {.pp = 2, .steps = 2, .more = {"precision.dtype=bf16"}};

    (void)state;
    check_all(&base);
}

/* More micro-batches in flight than 1f1b has. */
static void extra_in_flight_changes_no_bit(void **state)
{
    static struct rig_result want;
    static struct rig_result run;
    const struct base_run layout = {.pp = 4, .steps = 2};
    struct base_run eager = base_with(&layout, "parallel.extra_in_flight=3");

    (void)state;
    base_train(&layout, &want);
    base_train(&eager, &run);
    base_assert_same(&eager, &run, &want);
    rig_release(&want);
    rig_release(&run);
}

/* On which ranks the two ends of the model are, and whether anything is between them. */
struct ends {
    int with_both;
    int with_one;
    int synced;
};

static void look_for_ends(void *context, const struct engine *engine)
{
    struct ends *ends = context;
    bool first = params_find(&engine->params, "wpe.weight") != NULL;
    bool last = params_find(&engine->params, "ln_f.weight") != NULL;

    ends->with_both += first && last ? 1 : 0;
    ends->with_one += first != last ? 1 : 0;
    ends->synced += engine->sync != NULL || engine->head.copy != NULL ? 1 : 0;
}

/* H33: on a V rank 0 has embedding and head. A tied head needs no copy and no sync there, and its
 * gradient is still summed as that of any layout: for replicas, too. */
static void a_v_has_both_ends_on_one_rank_and_sends_nothing_between_them(void **state)
{
    static const struct base_run bases[] = {
        {.pp = 3, .steps = 1},
        {.pp = 3, .dp = 2, .steps = 1},
        {.pp = 3, .steps = 1, .more = {"model.tied_embeddings=false"}},
    };
    static struct rig_result run;

    (void)state;
    for (size_t i = 0; i < COUNT(bases) * (BEHIND_V - FIRST_V); i++) {
        struct ends ends = {0, 0, 0};
        const struct rig_hooks hooks = {.context = &ends, .on_step = look_for_ends};
        struct base_run layout =
            with_schedule(&bases[i % COUNT(bases)], FIRST_V + i / COUNT(bases));
        int replicas = layout.dp > 0 ? layout.dp : 1;

        layout.hooks = &hooks;
        base_train(&layout, &run);
        assert_int_equal(ends.with_both, replicas);
        assert_int_equal(ends.with_one, 0);
        assert_int_equal(ends.synced, 0);
        assert_int_equal(run.copy_count, 0);
        rig_release(&run);
    }
    for (size_t i = 0; i < COUNT(bases); i++) {
        check_all(&bases[i]);
    }
}

#define RANKS_MOST 4

struct held {
    size_t planned[RANKS_MOST];
    size_t stashes[RANKS_MOST];
    size_t gradients[RANKS_MOST];
    int different; /* from what was planned */
};

static void look_at_memory(void *context, const struct engine *engine)
{
    struct held *held = context;
    const struct memory_table *memory = &engine->memory;
    int rank = engine->grid.rank;

    /* Tokens and losses of the whole step are there before it begins, whatever the schedule. */
    held->planned[rank] =
        memory->total_bytes - memory->bytes[MEMORY_DATA] - engine->results.planned_bytes;
    held->stashes[rank] = memory->bytes[MEMORY_STASHES];
    held->gradients[rank] = memory->bytes[MEMORY_DY];
    held->different += engine_used_bytes(engine) != memory->total_bytes ? 1 : 0;
}

static void measure(size_t schedule, int microbatches, struct held *held)
{
    static struct rig_result run;
    const struct base_run base = {.pp = 4, .steps = 1, .batch = microbatches};
    const struct rig_hooks hooks = {.context = held, .on_step = look_at_memory};
    struct base_run layout = with_schedule(&base, schedule);

    memset(held, 0, sizeof(*held));
    layout.hooks = &hooks;
    base_train(&layout, &run);
    rig_release(&run);
    if (held->different != 0) {
        fail_msg("%s: %d ranks have not what was planned", schedules[schedule].name,
                 held->different);
    }
}

/* Twice the micro-batches take twice the stashes, or nothing more. */
static void check_growth(size_t schedule)
{
    bool grows = schedules[schedule].grows;
    struct held few;
    struct held many;

    measure(schedule, 16, &few);
    measure(schedule, 32, &many);
    for (int rank = 0; rank < RANKS_MOST; rank++) {
        if ((few.planned[rank] == many.planned[rank]) == grows) {
            fail_msg("%s, %d chunks: rank %d holds %zu bytes for 16 micro-batches, %zu for 32",
                     schedules[schedule].name, schedules[schedule].chunks, rank, few.planned[rank],
                     many.planned[rank]);
        }
        assert_int_equal(many.stashes[rank], (grows ? 2 : 1) * few.stashes[rank]);
    }
}

/* H34. */
static void memory_is_what_was_planned_and_does_not_grow_with_micro_batches(void **state)
{
    (void)state;
    for (size_t s = 0; s < ALL_SCHEDULES; s++) {
        check_growth(s);
    }
}

/* What W needs is counted: on the last of four ranks 1f1b holds one stash and one dY, zb_h1 four
 * stashes to its W, of which three are between I and W, and one I more is being made. */
static void what_a_late_w_needs_is_counted(void **state)
{
    struct held in_time;
    struct held late;

    (void)state;
    measure(1, 16, &in_time);
    measure(4, 16, &late);
    assert_true(in_time.stashes[3] > 0 && in_time.gradients[3] > 0);
    assert_int_equal(late.stashes[3], 4 * in_time.stashes[3]);
    assert_int_equal(late.gradients[3], 4 * in_time.gradients[3]);
    assert_int_equal(late.stashes[0], in_time.stashes[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_micro_batches_has_the_bits_of_one_process),
        cmocka_unit_test(evaluations_in_between_change_nothing),
        cmocka_unit_test(dropout_clipping_and_evaluation_have_the_bits_of_one_process),
        cmocka_unit_test(two_ranks_take_nothing_for_the_other_message),
        cmocka_unit_test(recomputed_activations_stay_until_their_w),
        cmocka_unit_test(replicas_and_shards_have_the_bits_of_one_stage),
        cmocka_unit_test(sixteen_bits_are_rounded_alike),
        cmocka_unit_test(extra_in_flight_changes_no_bit),
        cmocka_unit_test(a_v_has_both_ends_on_one_rank_and_sends_nothing_between_them),
        cmocka_unit_test(memory_is_what_was_planned_and_does_not_grow_with_micro_batches),
        cmocka_unit_test(what_a_late_w_needs_is_counted),
    };

    return cmocka_run_group_tests_name("layout_schedules", tests, base_make, base_remove);
}
