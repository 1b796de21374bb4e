/* What the ranks of a job will hold, counted by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_rig.h"
#include "scheduler/prove.h"
#include "stages/commands/plan_memory.h"

/* Of a layer: two norms, Q|K|V, projection, MLP there and back. */
#define LAYER  (2 * 128 + (64 * 192 + 192) + (64 * 64 + 64) + (64 * 256 + 256) + (256 * 64 + 64))
#define WORDS  (256 * 64)
#define FIRST  (WORDS + 32 * 64 + 2 * LAYER) /* elements of stage 0 */
#define LAST   (2 * LAYER + 2 * 64)          /* of stage 1: the head's copy is no parameter */
#define NORMS  (2 * 2 * 128)                 /* of stage 0, fp32 in every format */
#define TOKENS ((size_t)32 * 64)             /* elements of a message */
#define STEP   (8 * 32)                      /* tokens of a step */

static const char yaml[] =
    "model: {num_layers: 4, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
    "parallel: {pp: 2}\n"
    "train: {steps: 1, micro_batch_size: 1, num_microbatches: 8, threads: 1}\n"
    "optimizer: {lr: 1.0e-3}\n"
    "data: {train: text.txt}\n";

struct job {
    struct config *config;
    struct plan *plan;
    struct plan_memory memory;
};

static void make(const char *first, const char *second, struct job *job)
{
    struct plan_shape shape;

    *job = (struct job){.config = NULL};
    assert_int_equal(config_rig_load(yaml, first, second, &job->config), STATUS_OK);
    config_plan_shape(job->config, &shape);
    assert_int_equal(plan_prove(&shape, "", &job->plan), STATUS_OK);
    assert_int_equal(plan_memory_make(job->config, job->plan, &job->memory), STATUS_OK);
}

static void release(struct job *job)
{
    plan_memory_release(&job->memory);
    plan_destroy(&job->plan);
    config_destroy(&job->config);
}

static void assert_near(double found, double expected)
{
    if (!(found - expected <= 1e-9 && expected - found <= 1e-9)) {
        fail_msg("found %.17g, expected %.17g", found, expected);
    }
}

/* 1F1B with two stages: stage 0 holds two micro-batches, stage 1 one; a landing buffer for each and
 * two more, and one out buffer. */
static void what_two_stages_hold_is_counted_by_hand(void **state)
{
    struct job job;
    const struct memory_table *first = NULL;
    const struct memory_table *last = NULL;

    (void)state;
    make(NULL, NULL, &job);
    assert_int_equal(job.memory.count, 2);
    first = &job.memory.ranks[0];
    last = &job.memory.ranks[1];
    assert_int_equal(first->parameters, FIRST);
    assert_int_equal(first->bytes[MEMORY_PARAMS], 4 * FIRST);
    assert_int_equal(first->bytes[MEMORY_MAIN_PARAMS], 0);
    assert_int_equal(first->bytes[MEMORY_GRADIENTS], 4 * FIRST);
    assert_int_equal(first->bytes[MEMORY_MOMENTS], 8 * FIRST);
    assert_int_equal(first->bytes[MEMORY_HEAD], 0);
    assert_int_equal(first->bytes[MEMORY_EMBEDDING], 4 * WORDS);
    assert_int_equal(first->bytes[MEMORY_OUT], 4 * TOKENS);
    assert_int_equal(first->bytes[MEMORY_LANDING], 3 * 4 * TOKENS);
    assert_int_equal(first->bytes[MEMORY_LIBRARY], 0);
    assert_int_equal(last->parameters, LAST);
    assert_int_equal(last->bytes[MEMORY_PARAMS], 4 * LAST);
    assert_int_equal(last->bytes[MEMORY_HEAD], 2 * 4 * WORDS);
    assert_int_equal(last->bytes[MEMORY_EMBEDDING], 0);
    assert_int_equal(last->bytes[MEMORY_LANDING], 3 * 4 * TOKENS);
    /* Two steps of eight sequences: tokens for the one, targets and masks for the other. */
    assert_int_equal(first->bytes[MEMORY_DATA], 2 * STEP * 4);
    assert_int_equal(last->bytes[MEMORY_DATA], 2 * STEP * (4 + 4));
    assert_int_equal(job.memory.largest, 0);
    assert_near(job.memory.state_each[0], 16.0);
    assert_near(memory_state_each(last), 16.0);
    release(&job);
}

/* Two slices of 16 positions. Each stage has slices of two micro-batches on their way: forward F0.0 F0.1 F1.0
 * before B0.1, F1.0 before B0.0. Stage 0 has three slices at once, stage 1 two, but F1.0 is asked for before the
 * oldest input, that of 0.0, is read for the last time: three, and two more. */
static void keys_of_slices_are_counted_by_hand(void **state)
{
    const size_t keys = (size_t)2 * TOKENS; /* K and V of a layer */
    struct job job;

    (void)state;
    make("--parallel.schedule=seq1f1b", "--parallel.sequence_slices=2", &job);
    for (int32_t rank = 0; rank < 2; rank++) {
        const size_t *bytes = job.memory.ranks[rank].bytes;

        assert_int_equal(bytes[MEMORY_KEYS], 4 * keys * 4);
        assert_int_equal(bytes[MEMORY_KEY_SUMS], 2 * keys * 4);
        assert_int_equal(bytes[MEMORY_OUT], (size_t)2 * TOKENS);
    }
    assert_int_equal(job.memory.ranks[0].bytes[MEMORY_LANDING], 3 * (size_t)2 * TOKENS);
    assert_int_equal(job.memory.ranks[1].bytes[MEMORY_LANDING], (3 + 2) * (size_t)2 * TOKENS);
    release(&job);
}

/* Each set that is opened has two steps' buffers; a rank between the ends has none, and one that is both
 * ends has all four kinds. */
static void data_buffers_are_counted_for_each_set_and_end(void **state)
{
    struct job job;

    (void)state;
    make("--parallel.pp=4", NULL, &job);
    assert_int_equal(job.memory.ranks[0].bytes[MEMORY_DATA], 2 * STEP * 4);
    assert_int_equal(job.memory.ranks[1].bytes[MEMORY_DATA], 0);
    assert_int_equal(job.memory.ranks[2].bytes[MEMORY_DATA], 0);
    assert_int_equal(job.memory.ranks[3].bytes[MEMORY_DATA], 2 * STEP * 8);
    release(&job);
    make("--train.eval_every=1", "--data.split=[0.9, 0.1, 0]", &job);
    assert_int_equal(job.memory.ranks[0].bytes[MEMORY_DATA], 2 * (2 * STEP * 4));
    assert_int_equal(job.memory.ranks[1].bytes[MEMORY_DATA], 2 * (2 * STEP * 8));
    release(&job);
    make("--train.eval_every=1", "--data.split=[0.8, 0.1, 0.1]", &job);
    assert_int_equal(job.memory.ranks[0].bytes[MEMORY_DATA], 3 * (2 * STEP * 4));
    assert_int_equal(job.memory.ranks[1].bytes[MEMORY_DATA], 3 * (2 * STEP * 8));
    release(&job);
    /* Half of the micro-batches for each of two replicas. */
    make("--parallel.dp=2", "--train.num_microbatches=4", &job);
    for (int32_t rank = 0; rank < 4; rank++) {
        assert_int_equal(job.memory.ranks[rank].bytes[MEMORY_DATA],
                         2 * (STEP / 2) * (rank < 2 ? 4 : 8));
    }
    release(&job);
    make("--data.format=samples", "--parallel.pp=1", &job);
    assert_int_equal(job.memory.ranks[0].bytes[MEMORY_DATA], 2 * STEP * (4 + 8));
    release(&job);
    make("--data.format=samples", "--model.num_tokentypes=2", &job);
    assert_int_equal(job.memory.ranks[0].bytes[MEMORY_DATA], 2 * STEP * (4 + 4));
    assert_int_equal(job.memory.ranks[1].bytes[MEMORY_DATA], 2 * STEP * 8);
    release(&job);
}

/* 2 bytes of the model, 4 of main params, 4 of gradients, 8 of moments; layer norms have no copy. */
static void sixteen_bits_have_main_params_beside_the_model(void **state)
{
    static const char *const formats[] = {"--precision.dtype=bf16", "--precision.dtype=fp16"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job job;
        const struct memory_table *first = NULL;

        make(formats[i], NULL, &job);
        first = &job.memory.ranks[0];
        assert_int_equal(first->bytes[MEMORY_PARAMS], 2 * (FIRST - NORMS) + 4 * NORMS);
        assert_int_equal(first->bytes[MEMORY_MAIN_PARAMS], 4 * (FIRST - NORMS));
        assert_int_equal(first->bytes[MEMORY_GRADIENTS], 4 * FIRST);
        assert_int_equal(first->bytes[MEMORY_MOMENTS], 8 * FIRST);
        assert_int_equal(first->bytes[MEMORY_OUT], 2 * TOKENS);
        assert_int_equal(first->bytes[MEMORY_LANDING], 3 * 2 * TOKENS);
        assert_true(first->bytes[MEMORY_LIBRARY] > 0);
        assert_int_equal(job.memory.ranks[1].bytes[MEMORY_HEAD], (2 + 4) * WORDS);
        assert_near(job.memory.state_each[0], 18.0 - 2.0 * NORMS / FIRST);
        release(&job);
    }
}

static void gradient_descent_has_one_moment(void **state)
{
    struct job job;

    (void)state;
    make("--optimizer.name=sgd", NULL, &job);
    assert_int_equal(job.memory.ranks[0].bytes[MEMORY_MOMENTS], 4 * FIRST);
    assert_near(job.memory.state_each[0], 12.0);
    release(&job);
}

/* With d replicas ZeRO 1 leaves 8 + 8/d bytes a parameter in fp32 and 6 + 12/d in 16 bits; without
 * it only the tied embedding's part is shared. */
static void zero_takes_off_what_replicas_share(void **state)
{
    struct job job;

    (void)state;
    make("--parallel.dp=2", NULL, &job);
    assert_int_equal(job.memory.count, 4);
    assert_int_equal(job.memory.ranks[1].bytes[MEMORY_MOMENTS], 8 * (FIRST - WORDS / 2));
    assert_near(job.memory.state_each[0], 16.0 - 8.0 * WORDS / 2.0 / FIRST);
    assert_near(job.memory.state_each[1], 8.0 + 8.0 / 2.0);
    assert_true(job.memory.state_each[2] <= job.memory.state_each[1]);
    /* Of weights, which take 4, the layers' but for their norms; and room for two whole layers, which is
     * all that there is here. */
    assert_near(job.memory.state_each[3],
                job.memory.state_each[2] + 4.0 * (2 * LAYER - NORMS) / 2.0 / FIRST);
    assert_int_equal(job.memory.ranks[0].bytes[MEMORY_GATHERED], 0);
    release(&job);
    make("--parallel.dp=2", "--parallel.zero_stage=3", &job);
    assert_near(memory_shared_each(&job.memory.ranks[0]), job.memory.state_each[3]);
    assert_int_equal(job.memory.ranks[0].bytes[MEMORY_GATHERED], (2 * LAYER - NORMS) * 4);
    release(&job);
    /* One micro-batch a step: of four layers' matrices the gradients, and a bucket. */
    make("--parallel.dp=2", "--train.num_microbatches=1", &job);
    assert_near(job.memory.state_each[2], job.memory.state_each[1]);
    release(&job);
    make("--parallel.dp=4", "--train.num_microbatches=1", &job);
    assert_near(job.memory.state_each[2],
                job.memory.state_each[1] + 4.0 * (12 * 64 * 64) * (1.0 - 2.0 * 3.0 / 4.0) / FIRST);
    release(&job);
    /* Six tensors of 64 elements a layer have slices of 64 bytes, and one of 192 has slices of 192;
     * each moment of each begins on a multiple of 128. */
    make("--parallel.dp=4", "--parallel.zero_stage=1", &job);
    assert_int_equal(job.memory.ranks[0].bytes[MEMORY_MOMENTS], 2 * FIRST + 2 * (2 * 7 * 64));
    assert_near(memory_state_each(&job.memory.ranks[0]),
                8.0 + 8.0 / 4.0 + 2.0 * 2 * 7 * 64 / FIRST);
    release(&job);
    make("--parallel.dp=2", "--precision.dtype=bf16", &job);
    assert_near(job.memory.state_each[1], 6.0 + 12.0 / 2.0);
    release(&job);
}

/* Of two shards with half of 32 rows each: the norms' outputs, mid, the outputs of layers and their
 * gradients have 16 rows of 64; Q, K and V and the inner part have 32 rows of half the width, as they
 * have without. */
#define HALF_ROWS (16 * 64)
#define STATS     32 /* 16 floats of a statistic, in room for 32 */
#define HALF_STASH \
    (4 * STATS + 3 * HALF_ROWS + 32 * (96 + 32 + 2 * 128) + 2 * 32 /* log-sum-exps of two heads */)
#define HALF_DY (HALF_ROWS + 32 * (96 + 128))

static void shards_with_own_rows_hold_these_alone(void **state)
{
    struct job job;
    const struct memory_table *first = NULL;
    const struct memory_table *last = NULL;
    size_t sets[2];

    (void)state;
    make("--parallel.tp=2", "--parallel.sequence_parallel=true", &job);
    assert_int_equal(job.memory.count, 4);
    first = &job.memory.ranks[1];
    last = &job.memory.ranks[2];
    for (int32_t stage = 0; stage < 2; stage++) {
        sets[stage] = (size_t)plan_buffers_of(job.plan, stage, 0)->gradients;
    }
    /* Two micro-batches in flight, each with the embedding's output and that of one layer. */
    assert_int_equal(first->bytes[MEMORY_STASHES], 2 * 4 * (2 * HALF_STASH + 2 * HALF_ROWS));
    assert_int_equal(first->bytes[MEMORY_DY], sets[0] * 4 * (2 * HALF_DY + 2 * HALF_ROWS));
    assert_int_equal(first->bytes[MEMORY_OUT], 4 * HALF_ROWS);
    assert_int_equal(first->bytes[MEMORY_LANDING], 3 * 4 * HALF_ROWS);
    /* Sums of all rows, and gathered ones. */
    assert_int_equal(first->bytes[MEMORY_SHARED], 2 * 4 * TOKENS);
    /* One in flight: two outputs, the final norm's with its statistics; of gradients one at the input
     * of the second layer and the final norm's. */
    assert_int_equal(last->bytes[MEMORY_STASHES], 4 * (2 * HALF_STASH + 3 * HALF_ROWS + 2 * STATS));
    assert_int_equal(last->bytes[MEMORY_DY], sets[1] * 4 * (2 * HALF_DY + 2 * HALF_ROWS));
    release(&job);
}

/* Stashes and gradient sets hold activations: half the bytes in half the bits, where they are not the
 * statistics of rows. A micro-batch more in flight is a slot more. */
static void stashes_grow_with_what_is_in_flight(void **state)
{
    struct job job;
    size_t one = 0;

    (void)state;
    make(NULL, NULL, &job);
    one = job.memory.ranks[1].bytes[MEMORY_STASHES];
    release(&job);
    make("--parallel.schedule=gpipe", NULL, &job);
    assert_int_equal(job.memory.ranks[1].bytes[MEMORY_STASHES], 8 * one);
    release(&job);
    make("--train.recompute=full", NULL, &job);
    assert_true(job.memory.ranks[1].bytes[MEMORY_STASHES] < one / 4);
    assert_true(job.memory.ranks[1].bytes[MEMORY_RECOMPUTED] > one / 2);
    release(&job);
    make("--precision.dtype=bf16", NULL, &job);
    assert_in_range(job.memory.ranks[1].bytes[MEMORY_STASHES], one / 2, one * 6 / 10);
    release(&job);
}

static void print(const struct job *job, char **text)
{
    size_t text_bytes = 0;
    FILE *out = open_memstream(text, &text_bytes);

    assert_non_null(out);
    plan_memory_print(&job->memory, "# ", out);
    assert_int_equal(fclose(out), 0);
}

static void the_table_has_a_line_a_stage_and_marks_the_largest(void **state)
{
    struct job job;
    char *text = NULL;

    (void)state;
    make("--precision.dtype=bf16", "--parallel.dp=2", &job);
    print(&job, &text);
    assert_true(strncmp(text, "# memory      KiB a rank  ", 26) == 0 ||
                strncmp(text, "# memory      MiB a rank  ", 26) == 0);
    assert_non_null(strstr(text, "\n#             stage 0, rank 0 "));
    assert_non_null(strstr(text, "  the largest\n#             stage 1, rank 2 "));
    assert_non_null(strstr(text, " main "));
    assert_null(strstr(text, "again"));
    assert_non_null(strstr(text, " bytes a parameter on rank 0, bf16 with adam: params 2.0, main "
                                 "params "));
    assert_non_null(
        strstr(text, "\n#             ZeRO at dp 2, with layers that are whole for a while: "));
    assert_non_null(strstr(text, ", 12.0 with zero_stage 1, "));
    free(text);
    release(&job);
}

static void a_limit_is_said_and_refused_where_a_rank_needs_more(void **state)
{
    struct job job;
    char *text = NULL;

    (void)state;
    make("--train.memory_limit=1G", NULL, &job);
    print(&job, &text);
    assert_non_null(strstr(text, "train.memory_limit is "));
    assert_non_null(strstr(text, ": every rank fits\n"));
    assert_int_equal(plan_memory_check(&job.memory), STATUS_OK);
    free(text);
    release(&job);
    make("--train.memory_limit=100K", NULL, &job);
    print(&job, &text);
    assert_non_null(strstr(text, ": 2 of 2 ranks do not fit\n"));
    assert_int_equal(plan_memory_check(&job.memory), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "stage 0 holds"));
    free(text);
    release(&job);
}

static void many_stages_are_not_all_listed(void **state)
{
    struct job job;
    char *text = NULL;
    int lines = 0;

    (void)state;
    make("--parallel.pp=40", "--model.num_layers=40", &job);
    print(&job, &text);
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    assert_int_equal(lines, 5); /* head, stages 0 and 39, the rest, state */
    assert_non_null(strstr(text, "stage 39, rank 39 "));
    free(text);
    release(&job);
}

static void without_a_model_there_is_nothing(void **state)
{
    struct plan_memory memory;

    (void)state;
    assert_int_equal(plan_memory_make(NULL, NULL, &memory), STATUS_OK);
    assert_int_equal(memory.count, 0);
    assert_int_equal(plan_memory_check(&memory), STATUS_OK);
    plan_memory_release(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_two_stages_hold_is_counted_by_hand),
        cmocka_unit_test(keys_of_slices_are_counted_by_hand),
        cmocka_unit_test(data_buffers_are_counted_for_each_set_and_end),
        cmocka_unit_test(sixteen_bits_have_main_params_beside_the_model),
        cmocka_unit_test(gradient_descent_has_one_moment),
        cmocka_unit_test(shards_with_own_rows_hold_these_alone),
        cmocka_unit_test(zero_takes_off_what_replicas_share),
        cmocka_unit_test(stashes_grow_with_what_is_in_flight),
        cmocka_unit_test(the_table_has_a_line_a_stage_and_marks_the_largest),
        cmocka_unit_test(a_limit_is_said_and_refused_where_a_rank_needs_more),
        cmocka_unit_test(many_stages_are_not_all_listed),
        cmocka_unit_test(without_a_model_there_is_nothing),
    };

    return cmocka_run_group_tests_name("plan_memory", tests, config_rig_open, config_rig_close);
}
