/* What a rank moves in a step, against sums by hand, and the line that sets it beside counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "../scheduler/plan_fixture.h"
#include "scheduler/lower.h"
#include "stages/model/parameters.h"
#include "stages/traffic.h"
#include "tests/stages/traffic_rig.h"

#define MICROBATCHES 4
#define PHI          UINT64_C(4096)  /* 2 sequences × 8 positions × 64 × 4 bytes */
#define TOKEN        UINT64_C(256)   /* of the embedding, or a norm: 64 × 4 bytes */
#define EMBEDDING    UINT64_C(25600) /* 100 tokens */
#define POSITIONS    UINT64_C(2048)  /* 8 of them */
#define ROW          UINT64_C(32)    /* of the head's statistics */

/* 12 C² + 13 C floats with C 64; with two shards 6 C² + 7/2 C + 6 C. */
#define LAYER      UINT64_C(199936)
#define HALF_LAYER UINT64_C(100736)

/* B 2, T 8, C 64, F 256, V 100, five layers: 3 and 2 on two stages. */
static struct config model(int64_t pp, int64_t tp, int64_t dp)
{
    struct config config = {
        .model = {.num_layers = 5,
                  .hidden_size = 64,
                  .num_heads = 4,
                  .ffn_hidden_size = 256,
                  .seq_len = 8,
                  .max_positions = 8,
                  .vocab_size = 100,
                  .tied_embeddings = true},
        .parallel = {.pp = pp,
                     .tp = tp,
                     .dp = dp,
                     .virtual_stages = 1,
                     .sequence_slices = 1,
                     .layers_per_stage = {5}},
        .train = {.micro_batch_size = 2, .num_microbatches = MICROBATCHES},
    };

    if (pp == 2) {
        config.parallel.layers_per_stage[0] = 3;
        config.parallel.layers_per_stage[1] = 2;
    }
    return config;
}

static void two_stages_send_a_message_a_microbatch_each_way_and_the_embedding(void **state)
{
    struct config config = model(2, 1, 1);

    (void)state;
    TRAFFIC_RIG_EXPECT(&config,
                       0, [TRAFFIC_ACTIVATIONS] = 4 * PHI, [TRAFFIC_EMBEDDING_SYNC] = EMBEDDING);
    TRAFFIC_RIG_EXPECT(&config,
                       1, [TRAFFIC_GRADIENTS] = 4 * PHI, [TRAFFIC_EMBEDDING_SYNC] = EMBEDDING);
}

/* Messages have half the bytes; what shards sum is fp32. */
static void messages_of_16_bits_are_half_and_sums_are_not(void **state)
{
    struct config config = model(2, 2, 1);

    (void)state;
    config.precision.dtype = DTYPE_FP16;
    traffic_rig_expect_kind(&config, 0, TRAFFIC_ACTIVATIONS, 4 * PHI / 2);
    traffic_rig_expect_kind(&config, 0, TRAFFIC_TENSOR_SUMS, 52 * PHI);
    traffic_rig_expect_kind(&config, 2, TRAFFIC_GRADIENTS, 4 * PHI / 2);
    traffic_rig_expect_kind(&config, 2, TRAFFIC_HEAD_ROWS, 8 * ROW * 16);
}

static void a_rank_alone_moves_nothing(void **state)
{
    struct config config = model(1, 1, 1);

    (void)state;
    TRAFFIC_RIG_EXPECT(&config, 0, 0);
}

/* 101 tokens over two shards: 51 and 50. Three layers and the embedding's output: 4 × 3 + 1; two
 * layers and the head's dX: 4 × 2 + 1; four micro-batches. The head gathers 2 × 32 bytes for each of
 * 16 rows. */
static void shards_sum_four_times_a_layer_and_once_at_each_end(void **state)
{
    struct config config = model(2, 2, 1);

    (void)state;
    config.model.vocab_size = 101;
    TRAFFIC_RIG_EXPECT(&config, 0, [TRAFFIC_ACTIVATIONS] = 4 * PHI,
                       [TRAFFIC_TENSOR_SUMS] = 52 * PHI, [TRAFFIC_EMBEDDING_SYNC] = 51 * TOKEN);
    TRAFFIC_RIG_EXPECT(&config, 1, [TRAFFIC_ACTIVATIONS] = 4 * PHI,
                       [TRAFFIC_TENSOR_SUMS] = 52 * PHI, [TRAFFIC_EMBEDDING_SYNC] = 50 * TOKEN);
    TRAFFIC_RIG_EXPECT(&config, 2, [TRAFFIC_GRADIENTS] = 4 * PHI, [TRAFFIC_TENSOR_SUMS] = 36 * PHI,
                       [TRAFFIC_HEAD_ROWS] = 8 * ROW * 16, [TRAFFIC_EMBEDDING_SYNC] = 51 * TOKEN);
    TRAFFIC_RIG_EXPECT(&config, 3, [TRAFFIC_GRADIENTS] = 4 * PHI, [TRAFFIC_TENSOR_SUMS] = 36 * PHI,
                       [TRAFFIC_HEAD_ROWS] = 8 * ROW * 16, [TRAFFIC_EMBEDDING_SYNC] = 50 * TOKEN);
}

/* Stage 0: 2 × 3 - 1 sums once more a micro-batch, as nobody reads its output; stage 1: 2 × 2. */
static void full_recompute_repeats_the_sums_of_f(void **state)
{
    struct config config = model(2, 2, 1);

    (void)state;
    config.train.recompute[0] = RECOMPUTE_FULL;
    config.train.recompute[1] = RECOMPUTE_FULL;
    traffic_rig_expect_kind(&config, 0, TRAFFIC_TENSOR_SUMS, 72 * PHI);
    traffic_rig_expect_kind(&config, 2, TRAFFIC_TENSOR_SUMS, 52 * PHI);
    config.train.recompute[0] = RECOMPUTE_SELECTIVE;
    traffic_rig_expect_kind(&config, 0, TRAFFIC_TENSOR_SUMS, 52 * PHI);
}

static void one_stage_of_shards_has_both_ends(void **state)
{
    struct config config = model(1, 4, 1);

    (void)state;
    for (int32_t rank = 0; rank < 4; rank++) {
        TRAFFIC_RIG_EXPECT(
            &config, rank, [TRAFFIC_TENSOR_SUMS] = 88 * PHI, [TRAFFIC_HEAD_ROWS] = 16 * ROW * 16);
    }
}

/* A piece of the gather is a multiple of 64 bytes: 9 rows count as 10. */
static void an_odd_number_of_rows_is_gathered_with_one_more(void **state)
{
    struct config config = model(1, 2, 1);
    struct plan *plan = traffic_rig_plan(&config);

    (void)state;
    config.train.micro_batch_size = 1;
    config.model.seq_len = 9;
    assert_int_equal(traffic_rig_on(&config, plan, 0).bytes[TRAFFIC_HEAD_ROWS], 8 * ROW * 10);
    plan_destroy(&plan);
}

/* 5 tokens over 4 shards are 2, 2, 1 and none. */
static void a_shard_without_a_token_has_no_embedding_to_sync(void **state)
{
    static const uint64_t tokens[] = {2, 2, 1, 0};
    struct config config = model(2, 4, 1);
    struct plan *plan = traffic_rig_plan(&config);

    (void)state;
    config.model.vocab_size = 5;
    for (int32_t rank = 0; rank < 8; rank++) {
        assert_int_equal(traffic_rig_on(&config, plan, rank).bytes[TRAFFIC_EMBEDDING_SYNC],
                         tokens[rank % 4] * TOKEN);
    }
    plan_destroy(&plan);
}

/* 6400 elements over three replicas in multiples of 16: 2144, 2144, 2112. */
static void replicas_sum_their_gradients_and_each_syncs_a_slice(void **state)
{
    static const uint64_t slices[] = {8576, 8576, 8448};
    struct config config = model(2, 1, 3);

    (void)state;
    for (int32_t dp = 0; dp < 3; dp++) {
        TRAFFIC_RIG_EXPECT(
            &config, dp, [TRAFFIC_ACTIVATIONS] = 4 * PHI,
            [TRAFFIC_GRADIENT_SUMS] = 3 * LAYER + EMBEDDING + POSITIONS,
            [TRAFFIC_EMBEDDING_SYNC] = slices[dp], [TRAFFIC_WEIGHT_GATHERS] = EMBEDDING);
        TRAFFIC_RIG_EXPECT(
            &config, 3 + dp, [TRAFFIC_GRADIENTS] = 4 * PHI,
            [TRAFFIC_GRADIENT_SUMS] = 2 * LAYER + 2 * TOKEN + EMBEDDING,
            [TRAFFIC_EMBEDDING_SYNC] = slices[dp], [TRAFFIC_WEIGHT_GATHERS] = EMBEDDING);
    }
}

/* 100 × 64 over two shards and two replicas: 3200 and 1600. */
static void shards_and_replicas_together(void **state)
{
    struct config config = model(2, 2, 2);

    (void)state;
    TRAFFIC_RIG_EXPECT(&config,
                       3, [TRAFFIC_ACTIVATIONS] = 4 * PHI, [TRAFFIC_TENSOR_SUMS] = 52 * PHI,
                       [TRAFFIC_GRADIENT_SUMS] = 3 * HALF_LAYER + EMBEDDING / 2 + POSITIONS,
                       [TRAFFIC_EMBEDDING_SYNC] = 6400, [TRAFFIC_WEIGHT_GATHERS] = EMBEDDING / 2);
}

/* Shared out, every tensor is summed slice by slice, and gathered. The head's copy is gathered besides. In bf16 weights have half the bytes, but for the
 * layer norms, of which a layer has 4, and gradients as many. */
static void shared_out_replicas_gather_what_they_update(void **state)
{
    struct config config = model(2, 1, 2);
    const uint64_t norms = 4 * TOKEN;

    (void)state;
    config.parallel.zero_stage = 1;
    TRAFFIC_RIG_EXPECT(&config, 0, [TRAFFIC_ACTIVATIONS] = 4 * PHI,
                       [TRAFFIC_GRADIENT_SUMS] = 3 * LAYER + EMBEDDING + POSITIONS,
                       [TRAFFIC_EMBEDDING_SYNC] = EMBEDDING / 2,
                       [TRAFFIC_WEIGHT_GATHERS] = 3 * LAYER + EMBEDDING + POSITIONS);
    TRAFFIC_RIG_EXPECT(&config, 2, [TRAFFIC_GRADIENTS] = 4 * PHI,
                       [TRAFFIC_GRADIENT_SUMS] = 2 * LAYER + 2 * TOKEN + EMBEDDING,
                       [TRAFFIC_EMBEDDING_SYNC] = EMBEDDING / 2,
                       [TRAFFIC_WEIGHT_GATHERS] = 2 * LAYER + 2 * TOKEN + EMBEDDING);
    config.precision.dtype = DTYPE_BF16;
    traffic_rig_expect_kind(&config, 0, TRAFFIC_GRADIENT_SUMS, 3 * LAYER + EMBEDDING + POSITIONS);
    traffic_rig_expect_kind(&config, 0, TRAFFIC_WEIGHT_GATHERS,
                            (3 * (LAYER - norms) + EMBEDDING + POSITIONS) / 2 + 3 * norms);
    traffic_rig_expect_kind(&config, 2, TRAFFIC_WEIGHT_GATHERS,
                            (2 * (LAYER - norms) + EMBEDDING) / 2 + 2 * norms + 2 * TOKEN);
    /* The weights that the owner sends, and the gradient that the head sends. */
    traffic_rig_expect_kind(&config, 0, TRAFFIC_EMBEDDING_SYNC, EMBEDDING / 4);
    traffic_rig_expect_kind(&config, 2, TRAFFIC_EMBEDDING_SYNC, EMBEDDING / 2);
    config.parallel.dp = 1;
    traffic_rig_expect_kind(&config, 0, TRAFFIC_WEIGHT_GATHERS, 0);
}

/* 28 columns: few tensors end where the next may begin. */
static void what_is_shared_out_has_no_room_between_tensors(void **state)
{
    struct config config = model(1, 1, 2);

    (void)state;
    config.model.num_layers = 1;
    config.parallel.layers_per_stage[0] = 1;
    config.model.hidden_size = 28;
    config.model.ffn_hidden_size = 30;
    config.parallel.zero_stage = 1;
    /* A layer: 4 C² + 2 C F + 9 C + F = 5098; the tables of 100 and 8 rows, 3024; the last norm, 56;
     * the tied head's gradient, 2800. */
    traffic_rig_expect_kind(&config, 0, TRAFFIC_GRADIENT_SUMS,
                            UINT64_C(4) * (5098 + 3024 + 56 + 2800));
    traffic_rig_expect_kind(&config, 0, TRAFFIC_WEIGHT_GATHERS, UINT64_C(4) * (5098 + 3024 + 56));
}

static void one_stage_has_two_gradients_of_a_tied_embedding_and_one_copy(void **state)
{
    struct config config = model(1, 1, 2);

    (void)state;
    TRAFFIC_RIG_EXPECT(
        &config, 1, [TRAFFIC_GRADIENT_SUMS] = 5 * LAYER + 2 * EMBEDDING + POSITIONS + 2 * TOKEN,
        [TRAFFIC_WEIGHT_GATHERS] = EMBEDDING);
}

static void an_untied_head_is_summed_and_neither_synced_nor_gathered(void **state)
{
    struct config config = model(2, 1, 2);

    (void)state;
    config.model.tied_embeddings = false;
    TRAFFIC_RIG_EXPECT(&config, 0, [TRAFFIC_ACTIVATIONS] = 4 * PHI,
                       [TRAFFIC_GRADIENT_SUMS] = 3 * LAYER + EMBEDDING + POSITIONS);
    TRAFFIC_RIG_EXPECT(&config, 2, [TRAFFIC_GRADIENTS] = 4 * PHI,
                       [TRAFFIC_GRADIENT_SUMS] = 2 * LAYER + 2 * TOKEN + EMBEDDING);
}

/* Every shard has the whole table, 3 x 64 floats. */
static void token_types_add_their_table_to_the_gradients(void **state)
{
    struct config config = model(2, 2, 2);

    (void)state;
    config.model.num_tokentypes = 3;
    TRAFFIC_RIG_EXPECT(&config,
                       3, [TRAFFIC_ACTIVATIONS] = 4 * PHI, [TRAFFIC_TENSOR_SUMS] = 52 * PHI,
                       [TRAFFIC_GRADIENT_SUMS] = 3 * HALF_LAYER + EMBEDDING / 2 + POSITIONS + 768,
                       [TRAFFIC_EMBEDDING_SYNC] = 6400, [TRAFFIC_WEIGHT_GATHERS] = EMBEDDING / 2);
}

/* Stages 0 and 2 on rank 0, 1 and 3 on rank 1: 0→1, 2→3 and 2→1 from rank 0; 1→2, 3→2 and 1→0. */
static void several_chunks_a_rank_send_for_each_of_them(void **state)
{
    struct config config = model(2, 2, 1);
    struct plan *compute = fixture_text("0F0 2F0 2B0 0B0\n1F0 3F0 3B0 1B0\n");
    struct plan *plan = NULL;
    struct traffic first;
    struct traffic second;

    (void)state;
    config.parallel.virtual_stages = 2;
    memcpy(config.parallel.layers_per_stage, (const int64_t[]){2, 1, 1, 1}, 4 * sizeof(int64_t));
    assert_int_equal(plan_lower(compute, &plan), STATUS_OK);
    first = traffic_rig_on(&config, plan, 0);
    second = traffic_rig_on(&config, plan, 2);
    assert_int_equal(first.bytes[TRAFFIC_ACTIVATIONS], 2 * PHI);
    assert_int_equal(first.bytes[TRAFFIC_GRADIENTS], PHI);
    assert_int_equal(first.bytes[TRAFFIC_TENSOR_SUMS], (4 * 3 + 1) * PHI);
    assert_int_equal(second.bytes[TRAFFIC_ACTIVATIONS], PHI);
    assert_int_equal(second.bytes[TRAFFIC_GRADIENTS], 2 * PHI);
    assert_int_equal(second.bytes[TRAFFIC_TENSOR_SUMS], (4 * 2 + 1) * PHI);
    plan_destroy(&compute);
    plan_destroy(&plan);
}

/* Against the table that the gradients are allocated from, at widths that leave room between
 * tensors: all of it, but the room behind the tied embedding, and the head's as large again. */
static void gradients_are_as_large_as_their_buffer(void **state)
{
    static const int64_t widths[] = {4, 12, 20, 64, 96};
    struct config config = model(1, 1, 2);
    struct plan *plan = traffic_rig_plan(&config);

    (void)state;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        struct params params = {0};
        struct model_shape shape;
        struct chunk_range range;
        size_t embedding = 0;
        size_t room = 0;

        config.model.hidden_size = widths[i];
        config.model.ffn_hidden_size = 3 * widths[i] + 1;
        model_shape_of(&config, 0, &shape);
        chunk_range_of(&config, 0, &range);
        assert_int_equal(parameters_add(&params, &shape, &range), STATUS_OK);
        params_measure(&params);
        embedding = 100 * (size_t)widths[i] * 4;
        room = (128 - embedding % 128) % 128;
        assert_int_equal(traffic_rig_on(&config, plan, 0).bytes[TRAFFIC_GRADIENT_SUMS],
                         params.gradients.planned_bytes - room + embedding);
        params_release(&params);
    }
    plan_destroy(&plan);
}

static void expect_amount(uint64_t bytes, const char *expected)
{
    char text[TRAFFIC_AMOUNT_BYTES];

    traffic_print_amount(bytes, text, sizeof(text));
    assert_string_equal(text, expected);
}

static void amounts_have_the_unit_that_suits_them(void **state)
{
    (void)state;
    expect_amount(0, "0 B");
    expect_amount(1023, "1023 B");
    expect_amount(1024, "1.0 KiB");
    expect_amount(1536, "1.5 KiB");
    expect_amount((1U << 20) - 1, "1.0 MiB");
    expect_amount(12U << 20, "12.0 MiB");
    expect_amount((uint64_t)3 << 30, "3.0 GiB");
    expect_amount((uint64_t)5000 << 40, "5000.0 TiB");
}

static const struct traffic planned = {.bytes = {[TRAFFIC_ACTIVATIONS] = 12U << 20,
                                                 [TRAFFIC_TENSOR_SUMS] = 2048,
                                                 [TRAFFIC_EMBEDDING_SYNC] = 3U << 20}};

static void expect_line(const struct traffic *counted, int64_t steps, const char *expected)
{
    char text[512];

    traffic_compare(&planned, counted, steps, text, sizeof(text));
    assert_string_equal(text, expected);
}

static void counters_that_agree_are_as_planned(void **state)
{
    struct traffic counted = {.bytes = {0}};

    (void)state;
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        counted.bytes[kind] = 20 * planned.bytes[kind];
    }
    expect_line(&counted, 20,
                "traffic a step: activations 12.0 MiB (as planned), tensor-parallel sums 2.0 KiB "
                "(as planned), embedding sync 3.0 MiB (as planned)");
}

static void counters_that_differ_say_by_how_much(void **state)
{
    struct traffic counted = planned;

    (void)state;
    counted.bytes[TRAFFIC_TENSOR_SUMS] = 2048 + 64;
    counted.bytes[TRAFFIC_EMBEDDING_SYNC] = 0;
    counted.bytes[TRAFFIC_GRADIENTS] = 512;
    expect_line(&counted, 1,
                "traffic a step: activations 12.0 MiB (as planned); differs: gradients 512 B, in "
                "1 step 512 B more than planned, tensor-parallel sums 2.1 KiB, in 1 step 64 B more "
                "than planned, embedding sync 0 B, in 1 step 3.0 MiB less than planned");
    counted = planned;
    counted.bytes[TRAFFIC_ACTIVATIONS] = UINT64_C(48) << 20;
    counted.bytes[TRAFFIC_TENSOR_SUMS] = 8192;
    counted.bytes[TRAFFIC_EMBEDDING_SYNC] = UINT64_C(6) << 20;
    expect_line(&counted, 4,
                "traffic a step: activations 12.0 MiB (as planned), tensor-parallel sums 2.0 KiB "
                "(as planned); differs: embedding sync 1.5 MiB, in 4 steps 6.0 MiB less than "
                "planned");
}

static void nothing_planned_and_nothing_counted_is_none(void **state)
{
    const struct traffic nothing = {.bytes = {0}};
    char text[64];

    (void)state;
    traffic_compare(&nothing, &nothing, 3, text, sizeof(text));
    assert_string_equal(text, "traffic a step: none");
    expect_line(&nothing, 0, "traffic a step: none");
}

static void a_line_is_cut_and_never_overrun(void **state)
{
    char whole[512];
    char text[512];
    char untouched[512];

    (void)state;
    traffic_compare(&planned, &planned, 1, whole, sizeof(whole));
    for (size_t room = 1; room <= strlen(whole) + 1; room++) {
        memset(text, '~', sizeof(text));
        memset(untouched, '~', sizeof(untouched));
        traffic_compare(&planned, &planned, 1, text, room);
        assert_int_equal(strlen(text), room - 1);
        assert_memory_equal(text, whole, room - 1);
        assert_memory_equal(text + room, untouched, sizeof(text) - room);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_stages_send_a_message_a_microbatch_each_way_and_the_embedding),
        cmocka_unit_test(messages_of_16_bits_are_half_and_sums_are_not),
        cmocka_unit_test(a_rank_alone_moves_nothing),
        cmocka_unit_test(shards_sum_four_times_a_layer_and_once_at_each_end),
        cmocka_unit_test(full_recompute_repeats_the_sums_of_f),
        cmocka_unit_test(one_stage_of_shards_has_both_ends),
        cmocka_unit_test(an_odd_number_of_rows_is_gathered_with_one_more),
        cmocka_unit_test(a_shard_without_a_token_has_no_embedding_to_sync),
        cmocka_unit_test(replicas_sum_their_gradients_and_each_syncs_a_slice),
        cmocka_unit_test(shards_and_replicas_together),
        cmocka_unit_test(shared_out_replicas_gather_what_they_update),
        cmocka_unit_test(what_is_shared_out_has_no_room_between_tensors),
        cmocka_unit_test(one_stage_has_two_gradients_of_a_tied_embedding_and_one_copy),
        cmocka_unit_test(an_untied_head_is_summed_and_neither_synced_nor_gathered),
        cmocka_unit_test(token_types_add_their_table_to_the_gradients),
        cmocka_unit_test(several_chunks_a_rank_send_for_each_of_them),
        cmocka_unit_test(gradients_are_as_large_as_their_buffer),
        cmocka_unit_test(amounts_have_the_unit_that_suits_them),
        cmocka_unit_test(counters_that_agree_are_as_planned),
        cmocka_unit_test(counters_that_differ_say_by_how_much),
        cmocka_unit_test(nothing_planned_and_nothing_counted_is_none),
        cmocka_unit_test(a_line_is_cut_and_never_overrun),
    };

    return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
