/*
 * Sequence parallelism: shards with rows of their own train as shards without, to the last bit where
 * nothing is added up in another order, and hold and move what a hand count says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/engine.h"
#include "stages/engine_start.h"
#include "tests/stages/base_run.h"
#include "tests/stages/oracle.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))
#define ROWS        "parallel.sequence_parallel=true"
#define DROPOUT     "model.dropout=0.1"
#define BF16        "precision.dtype=bf16"
#define UNTIED      "model.tied_embeddings=false"

/* What was seen of all ranks after all steps. */
struct seen {
    int64_t by_rows;   /* parameters */
    int64_t unplanned; /* bytes that were moved and not planned, or the other way round; */
    int64_t unused;    /* of memory that were planned and not used, likewise */
    uint64_t gathered; /* bytes */
};

static int64_t apart(uint64_t a, uint64_t b)
{
    return (int64_t)(a > b ? a - b : b - a);
}

static void look(void *context, const struct engine *engine)
{
    struct seen *seen = context;
    struct traffic planned = {{0}};
    struct traffic moved;

    (void)traffic_plan(engine->config, engine->plan, &engine->grid, &planned);
    engine_read_moved(engine, &moved);
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        seen->unplanned +=
            apart(moved.bytes[kind], planned.bytes[kind] * (uint64_t)engine->steps_run);
    }
    seen->gathered += engine->moved.bytes[TRAFFIC_ROW_GATHERS];
    seen->unused += apart(engine->memory.total_bytes, engine_used_bytes(engine));
    for (int32_t i = 0; i < engine->params.count; i++) {
        seen->by_rows += engine->params.table[i].by_rows ? 1 : 0;
    }
}

/* Trains `base` with rows split; what it moves and holds is what was planned. */
static void train(const struct base_run *base, struct rig_result *run)
{
    struct seen seen = {0};
    const struct rig_hooks hooks = {.context = &seen, .on_step = look};
    struct base_run layout = base_with(base, ROWS);

    layout.hooks = &hooks;
    base_train(&layout, run);
    assert_int_equal(seen.unplanned, 0);
    assert_int_equal(seen.unused, 0);
    assert_true(seen.by_rows > 0);
    assert_true(seen.gathered > 0);
}

/* Whether each shard adds up this tensor's gradient over its own rows. */
static bool sums_rows(const char *name)
{
    return strstr(name, "ln_") != NULL || strstr(name, "c_proj.bias") != NULL;
}

static void assert_near(const struct rig_tensor *got, const struct rig_tensor *want)
{
    double size = 0.0;
    double difference = 0.0;

    for (size_t e = 0; e < want->elems; e++) {
        double gap = fabs((double)got->data[e] - (double)want->data[e]);

        size = fmax(size, fabs((double)want->data[e]));
        difference = fmax(difference, gap);
    }
    if (!(difference <= ORACLE_GRADIENT_TOLERANCE * size)) {
        fail_msg("%s: %.3g apart, the largest is %.3g", want->name, difference, size);
    }
}

/* Of the first step: the loss and every gradient that is added up in the same order. */
static void assert_first_step(const struct rig_result *run, const struct rig_result *plain)
{
    assert_true(rig_bits(run->loss[0]) == rig_bits(plain->loss[0]));
    assert_int_equal(run->gradient_count, plain->gradient_count);
    for (int32_t i = 0; i < plain->gradient_count; i++) {
        const struct rig_tensor *want = &plain->gradients[i];
        const struct rig_tensor *got = rig_find(run->gradients, run->gradient_count, want->name);

        assert_non_null(got);
        assert_int_equal(got->elems, want->elems);
        if (sums_rows(want->name)) {
            assert_near(got, want);
        } else if (memcmp(got->data, want->data, want->elems * sizeof(float)) != 0) {
            fail_msg("the gradient of %s has other bits", want->name);
        }
    }
}

/* Micro-batches of 3 put the first row of a shard into the middle of a sample; with 8 positions the
 * gradients that REDUCE sums do not fit into the scratch at once. */
static void test_the_first_step_has_the_bits_of_whole_rows(void **state)
{
    static struct rig_result plain;
    static struct rig_result run;
    static const struct base_run layouts[] = {
        {.tp = 2, .steps = 4},
        {.pp = 2, .tp = 2, .steps = 4, .more = {"model.seq_len=8"}},
        {.tp = 2, .batch = 6, .micro_batch = 3, .steps = 4, .more = {DROPOUT}},
        {.tp = 4, .micro_batch = 2, .steps = 4, .more = {UNTIED}},
        {.pp = 2, .tp = 2, .steps = 4, .more = {"model.hidden_size=36", "model.vocab_size=257"}},
        {.tp = 4, .batch = 6, .micro_batch = 3, .steps = 2, .more = {DROPOUT, BF16}},
        {.pp = 2, .tp = 2, .steps = 2, .more = {DROPOUT, "precision.dtype=fp16"}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        base_train(&layouts[i], &plain);
        train(&layouts[i], &run);
        assert_first_step(&run, &plain);
        if (i < 5) {
            base_assert_close(&layouts[i], &run, &plain);
        }
        rig_release(&plain);
        rig_release(&run);
    }
}

/* pp, virtual stages, schedule, early send, recompute and an evaluation in between change no bit. */
static void check_bits(const struct base_run *first, const struct base_run *others, size_t count)
{
    static struct rig_result want;
    static struct rig_result run;

    train(first, &want);
    for (size_t i = 0; i < count; i++) {
        train(&others[i], &run);
        base_assert_same(&others[i], &run, &want);
        rig_release(&run);
    }
    rig_release(&want);
}

static void test_where_and_when_it_is_done_changes_no_bit(void **state)
{
    static const struct base_run first = {.tp = 2, .steps = 3, .more = {DROPOUT}};
    static const struct base_run others[] = {
        {.pp = 2, .tp = 2, .steps = 3, .more = {DROPOUT}},
        {.pp = 4, .tp = 2, .steps = 3, .more = {DROPOUT, "train.recompute=selective"}},
        {.pp = 2, .tp = 2, .virtual_stages = 2, .steps = 3, .more = {DROPOUT}},
        {.pp = 2, .tp = 2, .schedule = "gpipe", .steps = 3, .more = {DROPOUT}},
        {.pp = 2, .tp = 2, .steps = 3, .more = {DROPOUT, "parallel.early_send=false"}},
        {.tp = 2, .steps = 3, .more = {DROPOUT, "train.recompute=selective"}},
        {.tp = 2, .steps = 3, .more = {DROPOUT, "train.recompute=full"}},
        {.pp = 2, .tp = 2, .steps = 3, .more = {DROPOUT, "train.recompute=[full, selective]"}},
        {.pp = 2, .tp = 2, .steps = 3, .more = {DROPOUT, "parallel.layers_per_stage=[0, 4]"}},
        {.pp = 3, .tp = 2, .steps = 3, .more = {DROPOUT, "parallel.layers_per_stage=[4, 0, 0]"}},
        {.tp = 2, .steps = 3, .more = {DROPOUT, "train.eval_every=1", "train.eval_steps=1"}},
    };

    (void)state;
    check_bits(&first, others, COUNT(others));
}

static void test_sixteen_bits_keep_theirs_over_stages_and_recompute(void **state)
{
    static const struct base_run first = {.tp = 2, .steps = 3, .more = {BF16, UNTIED}};
    static const struct base_run others[] = {
        {.pp = 2, .tp = 2, .steps = 3, .more = {BF16, UNTIED, "train.recompute=full"}},
        {.pp = 2, .tp = 2, .virtual_stages = 2, .steps = 3, .more = {BF16, UNTIED}},
    };

    (void)state;
    check_bits(&first, others, COUNT(others));
}

static void test_replicas_that_share_out_have_the_bits_of_those_that_do_not(void **state)
{
    static const struct base_run whole[] = {
        {.tp = 2, .dp = 2, .steps = 3, .more = {DROPOUT}},
        {.pp = 2, .tp = 2, .dp = 2, .steps = 2, .more = {BF16}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(whole); i++) {
        const struct base_run shared = base_with(&whole[i], "parallel.zero_stage=1");

        check_bits(&whole[i], &shared, 1);
    }
}

static void test_every_layout_is_close_to_one_process(void **state)
{
    static struct rig_result run;
    static struct rig_result reference;
    static const struct base_run layouts[] = {
        {.tp = 2, .steps = 6, .more = {DROPOUT}},
        {.tp = 4, .batch = 6, .micro_batch = 3, .steps = 6, .more = {DROPOUT}},
        {.pp = 2, .tp = 4, .steps = 6, .more = {UNTIED, "train.recompute=full"}},
        {.pp = 2, .tp = 2, .dp = 2, .steps = 6, .more = {DROPOUT, "parallel.zero_stage=1"}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        const struct base_run one = base_reference(&layouts[i]);

        base_train(&one, &reference);
        train(&layouts[i], &run);
        base_assert_close(&layouts[i], &run, &reference);
        rig_release(&run);
        rig_release(&reference);
    }
}

static void test_a_held_out_set_has_the_loss_of_whole_rows(void **state)
{
    static struct rig_result plain;
    static struct rig_result run;
    static const struct base_run layout = {
        .pp = 2,
        .tp = 2,
        .steps = 2,
        .more = {DROPOUT, "train.eval_every=1", "train.eval_steps=1", "optimizer.lr=0"}};

    (void)state;
    base_train(&layout, &plain);
    train(&layout, &run);
    assert_true(plain.valid_loss[0] > 0.0);
    assert_memory_equal(run.valid_loss, plain.valid_loss, sizeof(run.valid_loss));
    rig_release(&plain);
    rig_release(&run);
}

static void test_one_shard_has_all_rows(void **state)
{
    static struct rig_result plain;
    static struct rig_result run;
    static const struct base_run base = {.pp = 2, .steps = 2};
    const struct base_run rows = base_with(&base, ROWS);

    (void)state;
    base_train(&base, &plain);
    base_train(&rows, &run);
    base_assert_same(&rows, &run, &plain);
    rig_release(&plain);
    rig_release(&run);
}

/* ---- The oracle. ---- */

static void check_oracle(const struct oracle *oracle, int pp, int tp, int micro_batch)
{
    static struct rig_result run;
    char stages[48];
    char shards[48];
    char size[48];
    char what[96];
    const char *overrides[] = {stages, shards, size, ROWS};

    (void)snprintf(stages, sizeof(stages), "parallel.pp=%d", pp);
    (void)snprintf(shards, sizeof(shards), "parallel.tp=%d", tp);
    (void)snprintf(size, sizeof(size), "train.micro_batch_size=%d", micro_batch);
    (void)snprintf(what, sizeof(what), "pp %d, tp %d, micro-batch %d", pp, tp, micro_batch);
    rig_run(oracle->yaml, overrides, (int)COUNT(overrides), &run);
    if (run.status < 0) {
        fail_msg("%s: %s", what, run.message);
    }
    assert_int_equal(run.ranks_disagree, 0);
    assert_int_equal(run.copies_disagree, 0);
    oracle_check(oracle, &run, what);
    rig_release(&run);
}

static void test_it_follows_the_oracle(void **state)
{
    (void)state;
    check_oracle(&oracle_plain, 1, 2, 8);
    check_oracle(&oracle_plain, 1, 4, 1);
    check_oracle(&oracle_plain, 2, 2, 2);
    check_oracle(&oracle_masked, 1, 2, 8);
    check_oracle(&oracle_masked, 3, 2, 1);
}

/* ---- H06. ---- */

/* The residual stream of the first step's last micro-batch in slot 0, on stage 0: embedded, and of
 * each layer mid and what is kept of y, one behind the other, (N,C) each. */
#define STREAM_ROWS    BASE_POSITIONS
#define STREAM_TENSORS (2 * BASE_LAYERS + 1)

struct stream_look {
    float data[STREAM_TENSORS][STREAM_ROWS * BASE_HIDDEN];
    int seen[STREAM_TENSORS][STREAM_ROWS];
    struct base_prints common; /* of what shards have in common */
};

static void keep_rows(struct stream_look *look, int tensor, const struct engine *engine,
                      const void *rows)
{
    size_t first = model_first_row(&engine->shape);
    size_t count = model_own_rows(&engine->shape);

    memcpy(look->data[tensor] + first * BASE_HIDDEN, rows, count * BASE_HIDDEN * sizeof(float));
    for (size_t row = first; row < first + count; row++) {
        look->seen[tensor][row]++;
    }
}

static void look_at_stream(void *context, const struct engine *engine)
{
    struct stream_look *look = context;
    const struct chunk *chunk = &engine->chunks[0].chunk;
    const struct chunk_slot *slot = &chunk->slots[0];
    uint64_t print = BASE_PRINT_START;

    for (int32_t i = 0; i < engine->params.count; i++) {
        const struct param *param = &engine->params.table[i];

        if (!param->sharded) {
            print = base_print(print, param->weight, param->elems * sizeof(float));
        }
    }
    base_put_print(&look->common, engine->attempts - 1, engine->grid.pp, print);
    if (engine->grid.pp > 0 || engine->attempts > 1) {
        return;
    }
    keep_rows(look, 0, engine, slot->embedded);
    for (int32_t i = 0; i < chunk->range.layers; i++) {
        keep_rows(look, 2 * i + 1, engine, slot->layers[i].mid);
        if (slot->outputs[i] != NULL) {
            keep_rows(look, 2 * i + 2, engine, slot->outputs[i]);
        }
    }
}

static void look_at(const struct base_run *base, struct stream_look *look)
{
    static struct rig_result run;
    const struct rig_hooks hooks = {.context = look, .on_step = look_at_stream};
    struct base_run layout = *base;

    memset(look, 0, sizeof(*look));
    layout.hooks = &hooks;
    base_train(&layout, &run);
    assert_int_equal(look->common.different, 0);
    for (int64_t step = 1; step < run.steps; step++) {
        assert_int_equal(look->common.count[step][0], layout.tp);
        assert_true(look->common.print[step][0] != look->common.print[step - 1][0]);
    }
    rig_release(&run);
}

/* Behind every mask the rows of all shards together have the bits of a stage with whole rows; and what
 * shards have in common stays the same on all of them. */
static void test_own_rows_are_dropped_as_they_are_of_the_whole(void **state)
{
    static struct stream_look plain;
    static struct stream_look split;
    static const struct base_run layouts[] = {
        {.tp = 2, .steps = 10, .more = {DROPOUT}},
        {.tp = 4, .steps = 4, .more = {DROPOUT}},
        {.pp = 2, .tp = 2, .steps = 10, .more = {DROPOUT}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        const struct base_run rows = base_with(&layouts[i], ROWS);

        look_at(&layouts[i], &plain);
        look_at(&rows, &split);
        for (int tensor = 0; tensor < STREAM_TENSORS; tensor++) {
            for (int row = 0; row < STREAM_ROWS; row++) {
                assert_int_equal(split.seen[tensor][row], plain.seen[tensor][row] / layouts[i].tp);
            }
        }
        assert_int_equal(split.seen[0][0], 1);
        assert_int_equal(split.seen[1][STREAM_ROWS - 1], 1);
        assert_memory_equal(split.data, plain.data, sizeof(plain.data));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_step_has_the_bits_of_whole_rows),
        cmocka_unit_test(test_where_and_when_it_is_done_changes_no_bit),
        cmocka_unit_test(test_sixteen_bits_keep_theirs_over_stages_and_recompute),
        cmocka_unit_test(test_replicas_that_share_out_have_the_bits_of_those_that_do_not),
        cmocka_unit_test(test_every_layout_is_close_to_one_process),
        cmocka_unit_test(test_a_held_out_set_has_the_loss_of_whole_rows),
        cmocka_unit_test(test_one_shard_has_all_rows),
        cmocka_unit_test(test_it_follows_the_oracle),
        cmocka_unit_test(test_own_rows_are_dropped_as_they_are_of_the_whole),
    };

    return cmocka_run_group_tests_name("sequence_parallel", tests, base_make, base_remove);
}
