#include "stages/traffic.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "collectives/comm.h"
#include "stages/model/gathered.h"
#include "stages/model/own_rows.h"
#include "stages/model/parameters.h"
#include "stages/model/shape.h"
#include "stages/replicas.h"
#include "tensor/arena.h"
#include "tensor/kernels.h"

struct traffic_row {
    const char *key;
    const char *text;
};

static const struct traffic_row rows[TRAFFIC_KINDS] = {
#define X(kind, key, text) {key, text},
    TRAFFIC_TABLE(X)
#undef X
};

const char *traffic_key(enum traffic_kind kind)
{
    return rows[kind].key;
}

const char *traffic_text(enum traffic_kind kind)
{
    return rows[kind].text;
}

uint64_t traffic_total(const struct traffic *traffic)
{
    uint64_t total = 0;

    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        total += traffic->bytes[kind];
    }
    return total;
}

/* Elements of this shard's word embedding that replica grid->dp owns. */
static uint64_t slice_elems(const struct model_shape *shape, const struct grid *grid)
{
    size_t first = 0;
    size_t elems = 0;

    comm_slice(shape->vocab * shape->C, grid->shape.dp, grid->dp, &first, &elems);
    return elems;
}

/* Bytes of a tensor in the gradient buffer, up to the next one. */
static uint64_t tensor_bytes(uint64_t elems)
{
    uint64_t bytes = elems * sizeof(float);

    return (bytes + ARENA_ALIGN_BYTES - 1) / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES;
}

/* Of these chunks: what lies in the gradient buffer, and the weights that replicas gather. What is
 * summed slice by slice is, each tensor on its own, without the room behind it. */
static void add_params(struct traffic *traffic, const struct params *params)
{
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];

        traffic->bytes[TRAFFIC_GRADIENT_SUMS] +=
            param->sliced ? param->elems * sizeof(float) : tensor_bytes(param->elems);
        traffic->bytes[TRAFFIC_WEIGHT_GATHERS] +=
            param->sliced && !param->scattered ? param->elems * dtype_bytes(param->type) : 0;
    }
}

/* How often all rows of a micro-batch are gathered in one action, where shards have rows of their own.
 * A whole backward is I and W. */
static uint64_t row_gathers(const struct chunk_range *range, enum action_kind kind)
{
    uint64_t layers = (uint64_t)range->layers;
    uint64_t input = 2 * layers + (range->recompute == RECOMPUTE_FULL ? 2 * layers : 0);
    uint64_t weight = 4 * layers + (range->has_embedding ? 1 : 0);

    switch (kind) {
    case ACTION_F:
        return 2 * layers + (range->has_head ? 1 : 0);
    case ACTION_I:
        return input;
    case ACTION_W:
        return weight;
    default:
        return input + weight;
    }
}

/* What the shards of a stage sum and gather in one action. */
static void add_tensor_parallel(struct traffic *traffic, const struct config *config,
                                const struct model_shape *shape, const struct grid *grid,
                                const struct plan *lowered, const struct action *action)
{
    int32_t stage = action->virtual_stage;
    uint64_t rows_here = model_rows(shape);
    struct chunk_range range;
    uint64_t sums;

    chunk_range_of(config, stage, &range);
    if (shape->splits_rows) {
        traffic->bytes[TRAFFIC_ROW_GATHERS] += row_gathers(&range, (enum action_kind)action->kind) *
                                               rows_here * shape->C * dtype_bytes(shape->type);
    }
    if (action->kind == ACTION_W) {
        return;
    }
    sums = 2 * (uint64_t)range.layers;
    if (action->kind != ACTION_F && range.recompute == RECOMPUTE_FULL && range.layers > 0) {
        /* F's sums once more; the output that F sent is not made again. */
        sums += 2 * (uint64_t)range.layers - (range.has_head ? 0 : 1);
    }
    if (action->kind == ACTION_F && stage == 0) {
        sums += 1;
    }
    if (action->kind == ACTION_F && stage == plan_stages(lowered) - 1) {
        sums += plan_trains(lowered) ? 1 : 0;
        /* A piece is a multiple of 64 bytes, two rows. */
        traffic->bytes[TRAFFIC_HEAD_ROWS] +=
            (uint64_t)grid->shape.tp * sizeof(struct head_row) * (rows_here + rows_here % 2);
    }
    traffic->bytes[TRAFFIC_TENSOR_SUMS] += sums * rows_here * shape->C * sizeof(float);
}

static void add_line(struct traffic *traffic, const struct config *config,
                     const struct model_shape *shape, const struct grid *grid,
                     const struct plan *lowered)
{
    const struct plan_line *line = &lowered->lines[grid->pp];

    for (int32_t i = 0; i < line->count; i++) {
        const struct action *action = &line->actions[i];
        struct model_shape here = *shape;

        if (action->slices > 0) {
            model_shape_enter(&here, (size_t)(action->microbatch % action->slices));
        }
        switch (action->kind) {
        case ACTION_SEND:
            traffic->bytes[action->direction == LANE_F ? TRAFFIC_ACTIVATIONS : TRAFFIC_GRADIENTS] +=
                model_message_bytes(&here);
            break;
        case ACTION_F:
        case ACTION_I:
        case ACTION_W:
        case ACTION_B:
            if (grid->shape.tp > 1) {
                add_tensor_parallel(traffic, config, &here, grid, lowered, action);
            }
            break;
        case ACTION_SYNC:
            /* The head's end sends the gradient, the owner's the weights. */
            traffic->bytes[TRAFFIC_EMBEDDING_SYNC] +=
                slice_elems(shape, grid) *
                dtype_bytes(lowered->rank_of[0] == grid->pp ? shape->type : DTYPE_FP32);
            break;
        default:
            break;
        }
    }
}

/* What the F and the I or B of a line gather of layers. */
static void add_layers(struct traffic *traffic, const struct config *config,
                       const struct params *params, const struct model_shape *shape,
                       const struct plan_line *line)
{
    struct gathered gathered = {.comm = NULL};

    gathered_measure(&gathered, params, shape);
    for (int32_t i = 0; i < line->count; i++) {
        const struct action *action = &line->actions[i];
        struct chunk_range range;
        bool again = false;

        if (action->kind == ACTION_GATHER) {
            chunk_range_of(config, action->virtual_stage, &range);
            again = action->direction == LANE_B && range.recompute == RECOMPUTE_FULL;
            traffic->bytes[TRAFFIC_WEIGHT_GATHERS] +=
                (uint64_t)gathered_count(range.layers, again) * gathered.layer_bytes;
        }
    }
}

/* What the sums of a rank's gradients move in REDUCE: over shards with rows of their own, then over
 * the replicas. */
static enum status add_reduction(struct traffic *traffic, const struct config *config,
                                 const struct model_shape *shape, const struct grid *grid,
                                 const struct plan *lowered)
{
    const struct replicas replicas = replicas_of(config, grid->dp);
    int32_t last = plan_stages(lowered) - 1;
    bool has_head = lowered->rank_of[last] == grid->pp;
    bool has_embedding = lowered->rank_of[0] == grid->pp;
    size_t embedding = shape->vocab * shape->C;
    struct head_memory head = {.copy = NULL};
    struct params params;
    enum status status = STATUS_OK;

    params_init(&params, shape->type, 1);
    for (int32_t stage = 0; stage <= last && status >= 0; stage++) {
        struct chunk_range range;

        if (lowered->rank_of[stage] == grid->pp) {
            chunk_range_of(config, stage, &range);
            status = parameters_add(&params, shape, &range);
        }
    }
    replicas_slice(&replicas, shape, &params, &head);
    traffic->bytes[TRAFFIC_TENSOR_SUMS] += own_rows_reduced(&params) * sizeof(float);
    if (replicas.size > 1) {
        add_params(traffic, &params);
        add_layers(traffic, config, &params, shape, &lowered->lines[grid->pp]);
    }
    params_release(&params);
    if (shape->tied && has_head && replicas.size > 1) {
        traffic->bytes[TRAFFIC_GRADIENT_SUMS] += embedding * sizeof(float);
        /* A rank with both ends has one copy of the embedding. */
        traffic->bytes[TRAFFIC_WEIGHT_GATHERS] +=
            has_embedding ? 0 : embedding * dtype_bytes(shape->type);
    }
    return status;
}

enum status traffic_plan(const struct config *config, const struct plan *lowered,
                         const struct grid *grid, struct traffic *traffic_out)
{
    struct model_shape shape;

    model_shape_of(config, grid->tp, &shape);
    *traffic_out = (struct traffic){{0}};
    add_line(traffic_out, config, &shape, grid, lowered);
    return (grid->shape.dp > 1 || shape.splits_rows) && plan_trains(lowered)
               ? add_reduction(traffic_out, config, &shape, grid, lowered)
               : STATUS_OK;
}

void traffic_print_amount(uint64_t bytes, char *text, size_t text_bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double amount = (double)bytes / 1024.0;
    size_t unit = 0;

    if (bytes < 1024) {
        (void)snprintf(text, text_bytes, "%" PRIu64 " B", bytes);
        return;
    }
    /* What would be printed as 1024.0 of a unit is 1.0 of the next. */
    while (amount >= 1023.95 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        amount /= 1024.0;
        unit++;
    }
    (void)snprintf(text, text_bytes, "%.1f %s", amount, units[unit]);
}

/* A text that grows until its room is full. */
struct sentence {
    char *text;
    size_t bytes;
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void say(struct sentence *sentence, const char *format,
                                                      ...)
{
    va_list arguments;
    int added;

    if (sentence->used + 1 >= sentence->bytes) {
        return;
    }
    va_start(arguments, format);
    added = vsnprintf(sentence->text + sentence->used, sentence->bytes - sentence->used, format,
                      arguments);
    va_end(arguments);
    sentence->used += added > 0 ? (size_t)added : 0;
}

static void say_kinds(struct sentence *sentence, const struct traffic *planned,
                      const struct traffic *counted, int64_t steps, bool differing)
{
    const char *before = differing ? "; differs:" : "";
    char amount[TRAFFIC_AMOUNT_BYTES];
    char gap[TRAFFIC_AMOUNT_BYTES];

    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        uint64_t found = counted->bytes[kind];
        uint64_t expected = planned->bytes[kind] * (uint64_t)steps;

        if ((found == 0 && expected == 0) || (found != expected) != differing) {
            continue;
        }
        traffic_print_amount(found / (uint64_t)steps, amount, sizeof(amount));
        say(sentence, "%s %s %s", before, rows[kind].text, amount);
        before = ",";
        if (!differing) {
            say(sentence, " (as planned)");
            continue;
        }
        traffic_print_amount(found > expected ? found - expected : expected - found, gap,
                             sizeof(gap));
        say(sentence, ", in %" PRId64 " step%s %s %s than planned", steps, steps == 1 ? "" : "s",
            gap, found > expected ? "more" : "less");
        if (found < expected && (kind == TRAFFIC_TENSOR_SUMS || kind == TRAFFIC_HEAD_ROWS)) {
            say(sentence, " (blocks without targets exchange nothing)");
        }
    }
}

void traffic_compare(const struct traffic *planned, const struct traffic *counted, int64_t steps,
                     char *text, size_t text_bytes)
{
    struct sentence sentence = {.text = text, .bytes = text_bytes};

    if (text_bytes > 0) {
        text[0] = '\0';
    }
    say(&sentence, "traffic a step:");
    if (steps < 1 || (traffic_total(planned) == 0 && traffic_total(counted) == 0)) {
        say(&sentence, " none");
        return;
    }
    say_kinds(&sentence, planned, counted, steps, false);
    say_kinds(&sentence, planned, counted, steps, true);
}
