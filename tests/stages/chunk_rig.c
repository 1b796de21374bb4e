#include "tests/stages/chunk_rig.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/rng.h"

#define SEED 20240731

static int64_t or_else(int64_t value, int64_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static int32_t pieces_of(const struct chunk_rig *rig)
{
    return rig->is.microbatches * rig->is.slices;
}

static size_t message_elems(const struct chunk_rig *rig)
{
    return rig->shape.B * rig->shape.T * rig->shape.C;
}

static size_t message_bytes(const struct chunk_rig *rig)
{
    return message_elems(rig) * dtype_bytes(rig->shape.type);
}

static void configure(struct chunk_rig *rig)
{
    const struct chunk_rig_case *is = &rig->is;
    struct config *config = rig->config;

    config->model.hidden_size = or_else(is->hidden, 16);
    config->model.num_heads = or_else(is->heads, 2);
    config->model.ffn_hidden_size = 4 * config->model.hidden_size;
    config->model.seq_len = or_else(is->positions, 8);
    config->model.max_positions = config->model.seq_len;
    config->model.vocab_size = or_else(is->vocab, 37);
    config->model.tied_embeddings = !is->untied;
    config->model.dropout = is->dropout;
    config->precision.dtype = is->type;
    config->model.layer_norm_eps = 1e-5;
    config->model.init_std = 0.1;
    config->parallel.pp = 1;
    config->parallel.tp = 1;
    config->parallel.dp = 1;
    config->parallel.virtual_stages = is->chunks;
    config->parallel.sequence_slices = or_else(is->slices, 1);
    config->train.micro_batch_size = or_else(is->batch, 2);
    config->train.seed = SEED;
    for (int32_t i = 0; i < is->chunks; i++) {
        config->model.num_layers += is->layers[i];
        config->parallel.layers_per_stage[i] = is->layers[i];
        config->train.recompute[i] = is->recompute[i];
    }
}

/* NaN in every number format. */
static void spoil(void *memory, size_t bytes)
{
    if (memory != NULL) {
        memset(memory, 0xFF, bytes);
    }
}

static void make_chunks(struct chunk_rig *rig)
{
    bool tied = !rig->is.untied;
    int32_t m = rig->is.microbatches;
    int32_t k = rig->is.slices;
    int32_t slots = rig->order == ORDER_ONE_BY_ONE ? k : m * k;
    int32_t sets = rig->order == ORDER_SPLIT ? m * k : 1;
    int32_t sequences = rig->order == ORDER_ONE_BY_ONE ? 1 : m;
    int threads = rig->is.threads;
    enum recompute most = RECOMPUTE_NONE;

    params_init(&rig->params, rig->shape.type, 2);
    for (int32_t i = 0; i < rig->is.chunks; i++) {
        struct chunk_range range;

        chunk_range_of(rig->config, i, &range);
        most = range.recompute > most ? range.recompute : most;
        assert_int_equal(parameters_add(&rig->params, &rig->shape, &range), STATUS_OK);
        assert_int_equal(chunk_init(&rig->chunks[i], &rig->shape, &range, slots, sets,
                                    k > 1 ? sequences : 0, &rig->workspace, rig->device),
                         STATUS_OK);
    }
    params_measure(&rig->params);
    assert_int_equal(params_place(&rig->params), STATUS_OK);
    assert_int_equal(params_initialize(&rig->params, SEED), STATUS_OK);
    arena_measure(&rig->head.arena, "head");
    head_memory_carve(&rig->head, &rig->shape, true, true);
    assert_int_equal(arena_allocate(&rig->head.arena, true), STATUS_OK);
    head_memory_carve(&rig->head, &rig->shape, true, true);
    assert_true(!tied || rig->head.gradient != NULL);
    rig->workspace.tp.size = 1;
    rig->workspace.scratch.device = rig->device;
    workspace_measure(&rig->workspace, &rig->shape, true, most, device_kernels(rig->device),
                      threads);
    assert_int_equal(arena_allocate(&rig->workspace.arena, true), STATUS_OK);
    assert_int_equal(arena_allocate(&rig->workspace.shared, true), STATUS_OK);
    workspace_place(&rig->workspace, &rig->shape, true, most, device_kernels(rig->device), threads);
    spoil(rig->workspace.arena.memory, rig->workspace.arena.planned_bytes);
    for (int32_t i = 0; i < rig->is.chunks; i++) {
        struct chunk *chunk = &rig->chunks[i];

        assert_int_equal(chunk_allocate(chunk), STATUS_OK);
        assert_int_equal(chunk_tensors_init(&chunk->weights, &chunk->sums, &rig->params, &rig->head,
                                            &chunk->range),
                         STATUS_OK);
        spoil(chunk->stash.memory, chunk->stash.planned_bytes);
        spoil(chunk->kept.memory, chunk->kept.planned_bytes);
        spoil(chunk->again.memory, chunk->again.planned_bytes);
        spoil(chunk->sequence_keys.memory, chunk->sequence_keys.planned_bytes);
        spoil(chunk->key_sums.memory, chunk->key_sums.planned_bytes);
    }
}

/* Where element i of (m,B,T) lies. */
static size_t place_of(const struct chunk_rig *rig, size_t i)
{
    const struct slices *slices = &rig->shape.slices;
    size_t T = rig->shape.sequence;
    size_t each = rig->shape.B * T;
    size_t slice = 0;
    size_t length;

    while (i % T >= slices->first[slice + 1]) {
        slice++;
    }
    length = slices->first[slice + 1] - slices->first[slice];
    return i / each * each + rig->shape.B * slices->first[slice] + i % each / T * length + i % T -
           slices->first[slice];
}

/* Tokens, and targets of which every fifth is masked. */
static void make_data(struct chunk_rig *rig)
{
    const struct rng_purpose purpose = {.seed = SEED, .site = 999};
    size_t each = rig->shape.B * rig->shape.sequence;
    size_t all = (size_t)rig->is.microbatches * each;
    size_t unmasked = 0;

    rig->tokens = calloc(all, sizeof(*rig->tokens));
    rig->targets = calloc(all, sizeof(*rig->targets));
    rig->mask = calloc(all, sizeof(*rig->mask));
    assert_non_null(rig->tokens);
    assert_non_null(rig->targets);
    assert_non_null(rig->mask);
    for (size_t i = 0; i < all; i++) {
        size_t at = place_of(rig, i);

        rig->tokens[at] = (int32_t)(rng_uniform(&purpose, 2 * i) % rig->shape.V);
        rig->targets[at] = (int32_t)(rng_uniform(&purpose, 2 * i + 1) % rig->shape.V);
        rig->mask[at] = i % 5 == 4 ? 0.0F : 1.0F;
        unmasked += i % 5 == 4 ? 0 : 1;
    }
    rig->loss_seed = (float)(1.0 / (double)unmasked);
}

static void *make_message(const struct chunk_rig *rig)
{
    void *message = malloc(message_bytes(rig));

    assert_non_null(message);
    spoil(message, message_bytes(rig));
    return message;
}

void chunk_rig_make(struct chunk_rig *rig, const struct chunk_rig_case *is,
                    enum chunk_rig_order order)
{
    memset(rig, 0, sizeof(*rig));
    rig->is = *is;
    rig->is.microbatches = (int32_t)or_else(is->microbatches, 3);
    rig->is.threads = (int)or_else(is->threads, 1);
    rig->is.slices = (int32_t)or_else(is->slices, 1);
    assert_true(pieces_of(rig) <= CHUNK_RIG_PIECES_MOST);
    rig->order = order;
    rig->config = calloc(1, sizeof(*rig->config));
    assert_non_null(rig->config);
    configure(rig);
    model_shape_of(rig->config, 0, &rig->shape);
    assert_int_equal(
        device_open(device_cpu(),
                    &(struct device_config){.threads = rig->is.threads, .type = rig->shape.type},
                    &rig->device),
        STATUS_OK);
    make_chunks(rig);
    make_data(rig);
    rig->out = make_message(rig);
    for (int32_t k = 0; k < pieces_of(rig); k++) {
        for (int32_t i = 0; i < rig->is.chunks; i++) {
            rig->ends[k][i].landing_f = make_message(rig);
            rig->ends[k][i].landing_b = make_message(rig);
        }
    }
}

/* The out buffer's content arrives; the buffer is somebody else's then. */
static void deliver(struct chunk_rig *rig, void *landing)
{
    memcpy(landing, rig->out, message_bytes(rig));
    spoil(rig->out, message_bytes(rig));
}

static int32_t slot_of(const struct chunk_rig *rig, int32_t piece)
{
    return rig->order == ORDER_ONE_BY_ONE ? piece % rig->is.slices : piece;
}

static int32_t set_of(const struct chunk_rig *rig, int32_t piece)
{
    return rig->order == ORDER_SPLIT ? piece : 0;
}

/* The k-th piece that goes back. */
static int32_t backward_piece(const struct chunk_rig *rig, int32_t k)
{
    int32_t slices = rig->is.slices;

    return k / slices * slices + slices - 1 - k % slices;
}

static double forward(struct chunk_rig *rig, int32_t k, bool trains)
{
    int32_t microbatch = k / rig->is.slices;
    int32_t slice = k % rig->is.slices;
    size_t rows =
        rig->shape.B * ((size_t)microbatch * rig->shape.sequence + rig->shape.slices.first[slice]);
    double loss = 0.0;

    for (int32_t i = 0; i < rig->is.chunks; i++) {
        bool last = i + 1 == rig->is.chunks;
        struct chunk_io io = {
            .input = i > 0 ? rig->ends[k][i].landing_f : NULL,
            .output = last ? NULL : rig->out,
            .tokens = rig->tokens + rows,
            .targets = rig->targets + rows,
            .mask = rig->mask + rows,
            .microbatch = microbatch,
            .slice = slice,
            .first_sample = rig->consumed + (int64_t)microbatch * (int64_t)rig->shape.B,
            .loss_seed = rig->loss_seed,
            .loss_sum = &loss,
        };
        struct chunk *chunk = &rig->chunks[i];

        assert_int_equal(trains ? chunk_forward(chunk, slot_of(rig, k), &io)
                                : chunk_evaluate(chunk, slot_of(rig, k), &io),
                         STATUS_OK);
        if (!last) {
            deliver(rig, rig->ends[k][i + 1].landing_f);
        }
    }
    return loss;
}

static struct chunk_io backward_io(const struct chunk_rig *rig, int32_t k, int32_t i)
{
    return (struct chunk_io){
        .doutput = i + 1 < rig->is.chunks ? rig->ends[k][i].landing_b : NULL,
        .dinput = i > 0 ? rig->out : NULL,
    };
}

static void input_gradients(struct chunk_rig *rig, int32_t k)
{
    for (int32_t i = rig->is.chunks - 1; i >= 0; i--) {
        struct chunk_io io = backward_io(rig, k, i);

        assert_int_equal(
            chunk_backward_input(&rig->chunks[i], slot_of(rig, k), set_of(rig, k), &io), STATUS_OK);
        if (i > 0) {
            deliver(rig, rig->ends[k][i - 1].landing_b);
            /* I was the last reader of what F read in place. */
            spoil(rig->ends[k][i].landing_f, message_bytes(rig));
        }
    }
}

static void weight_gradients(struct chunk_rig *rig, int32_t k)
{
    for (int32_t i = rig->is.chunks - 1; i >= 0; i--) {
        struct chunk_io io = backward_io(rig, k, i);

        assert_int_equal(
            chunk_backward_weight(&rig->chunks[i], slot_of(rig, k), set_of(rig, k), &io),
            STATUS_OK);
    }
}

double chunk_rig_train(struct chunk_rig *rig)
{
    int32_t pieces = pieces_of(rig);
    double loss = 0.0;

    assert_int_equal(params_zero_gradients(&rig->params), STATUS_OK);
    if (rig->head.gradient != NULL) {
        memset(rig->head.gradient, 0, rig->head.elems * sizeof(float));
    }
    for (int32_t k = 0; k < pieces; k++) {
        bool ends = (k + 1) % rig->is.slices == 0;

        loss += forward(rig, k, true);
        for (int32_t i = k + 1 - rig->is.slices; ends && rig->order == ORDER_ONE_BY_ONE && i <= k;
             i++) {
            input_gradients(rig, backward_piece(rig, i));
            weight_gradients(rig, backward_piece(rig, i));
        }
    }
    for (int32_t k = 0; k < pieces && rig->order != ORDER_ONE_BY_ONE; k++) {
        input_gradients(rig, backward_piece(rig, k));
        if (rig->order == ORDER_FORWARD_FIRST) {
            weight_gradients(rig, backward_piece(rig, k));
        }
    }
    for (int32_t k = 0; k < pieces && rig->order == ORDER_SPLIT; k++) {
        weight_gradients(rig, backward_piece(rig, k));
    }
    return loss * (double)rig->loss_seed;
}

double chunk_rig_evaluate(struct chunk_rig *rig)
{
    double loss = 0.0;

    for (int32_t k = 0; k < pieces_of(rig); k++) {
        loss += forward(rig, k, false);
    }
    return loss * (double)rig->loss_seed;
}

void chunk_rig_free(struct chunk_rig *rig)
{
    for (int32_t k = 0; k < pieces_of(rig); k++) {
        for (int32_t i = 0; i < rig->is.chunks; i++) {
            free(rig->ends[k][i].landing_f);
            free(rig->ends[k][i].landing_b);
        }
    }
    for (int32_t i = 0; i < rig->is.chunks; i++) {
        chunk_release(&rig->chunks[i]);
    }
    workspace_release(&rig->workspace);
    arena_release(&rig->head.arena);
    params_release(&rig->params);
    device_close(&rig->device);
    free(rig->out);
    free(rig->tokens);
    free(rig->targets);
    free(rig->mask);
    free(rig->config);
}
