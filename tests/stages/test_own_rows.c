/* Shards with rows of their own: which configurations can have them, and what they move, against sums
 * by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "config_rig.h"
#include "stages/traffic.h"
#include "tests/stages/traffic_rig.h"

static void load(const char *more, struct config **config)
{
    assert_int_equal(
        config_rig_load(config_rig_legal(), "--parallel.sequence_parallel=true", more, config),
        STATUS_OK);
}

static void own_rows_need_shards_and_rows_that_they_divide(void **state)
{
    /* 3 × 5 rows of 24. */
    static const char odd[] = "model: {num_layers: 2, hidden_size: 24, num_heads: 4, seq_len: 5}\n"
                              "parallel: {tp: 2, sequence_parallel: true}\n"
                              "train: {steps: 10, micro_batch_size: 3, num_microbatches: 2}\n"
                              "optimizer: {lr: 3e-4}\n"
                              "data: {train: text.txt}\n";
    struct config *config = NULL;
    char text[256];

    (void)state;
    load("--parallel.tp=2", &config);
    assert_true(config->parallel.sequence_parallel);
    assert_true(config_splits_rows(config));
    assert_false(config_note(config, 0, text, sizeof(text)));
    config_destroy(&config);
    load(NULL, &config);
    assert_false(config_splits_rows(config));
    assert_true(config_note(config, 0, text, sizeof(text)));
    assert_non_null(strstr(text, "parallel.sequence_parallel true does nothing: with parallel.tp "
                                 "1"));
    config_destroy(&config);
    config_rig_refuses(odd, NULL,
                       "parallel.sequence_parallel: train.micro_batch_size 3 x model.seq_len 5 is "
                       "15 rows, expected a multiple of parallel.tp 2; nearest legal: "
                       "micro_batch_size 4");
    /* 5 rows of 24 are 120 elements; 10 rows are 240. */
    config_rig_refuses(odd, "--train.micro_batch_size=2",
                       "a shard has 5 rows (train.micro_batch_size 2 x model.seq_len 5 / "
                       "parallel.tp 2) of model.hidden_size 24, which is 120 elements, expected a "
                       "multiple of 16; nearest legal: micro_batch_size 4");
    assert_int_equal(config_rig_load(odd, "--train.micro_batch_size=4", NULL, &config), STATUS_OK);
    config_destroy(&config);
    assert_int_equal(config_rig_load(odd, "--parallel.sequence_parallel=false", NULL, &config),
                     STATUS_OK);
    config_destroy(&config);
}

#define MICROBATCHES 4
#define PHI          UINT64_C(4096)  /* 2 sequences × 8 positions × 64 × 4 bytes */
#define TOKEN        UINT64_C(256)   /* of the embedding, or a norm: 64 × 4 bytes */
#define EMBEDDING    UINT64_C(25600) /* 100 tokens */
#define POSITIONS    UINT64_C(2048)  /* 8 of them */
#define ROW          UINT64_C(32)    /* of the head's statistics */

/* 12 C² + 13 C floats with C 64; with two shards 6 C² + 7/2 C + 6 C. */
#define HALF_LAYER UINT64_C(100736)

/* B 2, T 8, C 64, F 256, V 100, five layers: 3 and 2 on two stages of two shards. */
static struct config model(void)
{
    return (struct config){
        .model = {.num_layers = 5,
                  .hidden_size = 64,
                  .num_heads = 4,
                  .ffn_hidden_size = 256,
                  .seq_len = 8,
                  .max_positions = 8,
                  .vocab_size = 100,
                  .tied_embeddings = true},
        .parallel = {.pp = 2,
                     .tp = 2,
                     .dp = 1,
                     .virtual_stages = 1,
                     .sequence_slices = 1,
                     .layers_per_stage = {3, 2},
                     .sequence_parallel = true},
        .train = {.micro_batch_size = 2, .num_microbatches = MICROBATCHES},
    };
}

/* Messages are halves. Sums are as many, and six tensors of C a layer once a step; the final norm has
 * two. All rows are gathered twice a layer in F and in I, four times in W, once for the embedding's
 * tables and once for the head: 3 × 8 + 1 and 2 × 8 + 1; full recompute gathers F's again. */
static void shards_with_own_rows_send_halves_and_gather(void **state)
{
    struct config config = model();

    (void)state;
    TRAFFIC_RIG_EXPECT(
        &config,
        1, [TRAFFIC_ACTIVATIONS] = 4 * PHI / 2, [TRAFFIC_TENSOR_SUMS] = 52 * PHI + 18 * TOKEN,
        [TRAFFIC_ROW_GATHERS] = 100 * PHI, [TRAFFIC_EMBEDDING_SYNC] = EMBEDDING / 2);
    TRAFFIC_RIG_EXPECT(
        &config, 2, [TRAFFIC_GRADIENTS] = 4 * PHI / 2,
        [TRAFFIC_TENSOR_SUMS] = 36 * PHI + 14 * TOKEN, [TRAFFIC_ROW_GATHERS] = 68 * PHI,
        [TRAFFIC_HEAD_ROWS] = 8 * ROW * 16, [TRAFFIC_EMBEDDING_SYNC] = EMBEDDING / 2);
    config.precision.dtype = DTYPE_BF16;
    traffic_rig_expect_kind(&config, 1, TRAFFIC_ACTIVATIONS, 4 * PHI / 4);
    traffic_rig_expect_kind(&config, 1, TRAFFIC_TENSOR_SUMS, 52 * PHI + 18 * TOKEN);
    traffic_rig_expect_kind(&config, 1, TRAFFIC_ROW_GATHERS, 50 * PHI);
    config.train.recompute[0] = RECOMPUTE_FULL;
    config.train.recompute[1] = RECOMPUTE_SELECTIVE;
    traffic_rig_expect_kind(&config, 1, TRAFFIC_ROW_GATHERS, 62 * PHI);
    traffic_rig_expect_kind(&config, 2, TRAFFIC_ROW_GATHERS, 34 * PHI);
    config.parallel.dp = 2;
    traffic_rig_expect_kind(&config, 0, TRAFFIC_GRADIENT_SUMS,
                            3 * HALF_LAYER + EMBEDDING / 2 + POSITIONS);
    traffic_rig_expect_kind(&config, 0, TRAFFIC_TENSOR_SUMS, 72 * PHI + 18 * TOKEN);
    config.parallel.tp = 1;
    traffic_rig_expect_kind(&config, 0, TRAFFIC_TENSOR_SUMS, 0);
    traffic_rig_expect_kind(&config, 0, TRAFFIC_ROW_GATHERS, 0);
    traffic_rig_expect_kind(&config, 0, TRAFFIC_ACTIVATIONS, 4 * PHI / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_rows_need_shards_and_rows_that_they_divide),
        cmocka_unit_test(shards_with_own_rows_send_halves_and_gather),
    };

    return cmocka_run_group_tests_name("own_rows", tests, config_rig_open, config_rig_close);
}
