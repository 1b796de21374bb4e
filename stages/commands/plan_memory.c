#include "stages/commands/plan_memory.h"

#include <stdbool.h>
#include <stdlib.h>

#include "collectives/grid.h"
#include "scheduler/prove.h"
#include "stages/engine.h"
#include "tensor/dtype.h"

/* Of more stages the first, the last and the largest tell enough. */
#define MOST_LISTED_STAGES 32

static enum status measure_zero_stages(struct plan_memory *memory, const struct plan *lowered,
                                       const struct plan *evaluation)
{
    struct config *changed = malloc(sizeof(*changed));
    enum status status = STATUS_OK;

    if (changed == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan: a second configuration");
    }
    *changed = *memory->config;
    for (int stage = 0; status >= 0 && stage < PLAN_MEMORY_ZERO_STAGES; stage++) {
        struct memory_table table;

        changed->parallel.zero_stage = stage;
        status = engine_measure_rank(changed, lowered, evaluation, memory->count, memory->largest,
                                     &table);
        memory->state_each[stage] = status >= 0 ? memory_shared_each(&table) : 0.0;
    }
    free(changed);
    return status;
}

enum status plan_memory_make(const struct config *config, const struct plan *lowered,
                             struct plan_memory *memory_out)
{
    struct plan *evaluation = NULL;
    struct grid_shape shape;
    enum status status = STATUS_OK;

    *memory_out = (struct plan_memory){.config = config};
    if (config == NULL) {
        return STATUS_OK;
    }
    shape = config_grid_shape(config);
    memory_out->count = shape.pp * shape.tp * shape.dp;
    memory_out->ranks = calloc((size_t)memory_out->count, sizeof(*memory_out->ranks));
    if (memory_out->ranks == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan: the memory of %d ranks", memory_out->count);
    }
    TRY_OR(done, status, plan_prove_evaluation(lowered, &evaluation));
    TRY_OR(done, status,
           engine_measure_job(config, lowered, evaluation, memory_out->count, memory_out->ranks,
                              &memory_out->largest));
    status = measure_zero_stages(memory_out, lowered, evaluation);
done:
    plan_destroy(&evaluation);
    return status;
}

/* Kinds that no rank has are no column. */
static bool is_shown(const struct plan_memory *memory, int kind)
{
    for (int32_t rank = 0; rank < memory->count; rank++) {
        if (memory->ranks[rank].bytes[kind] > 0) {
            return true;
        }
    }
    return false;
}

static void print_head(const struct plan_memory *memory, const struct memory_unit *unit,
                       const char *prefix, FILE *out)
{
    char title[24];

    (void)snprintf(title, sizeof(title), "%s a rank", unit->name);
    (void)fprintf(out, "%smemory      %-18s", prefix, title);
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        if (is_shown(memory, kind)) {
            (void)fprintf(out, " %8s", memory_head((enum memory_kind)kind));
        }
    }
    (void)fprintf(out, " %9s\n", "total");
}

static void print_rank(const struct plan_memory *memory, int32_t stage, int32_t rank,
                       const struct memory_unit *unit, const char *prefix, FILE *out)
{
    const struct memory_table *table = &memory->ranks[rank];
    char title[40];

    (void)snprintf(title, sizeof(title), "stage %d, rank %d", stage, rank);
    (void)fprintf(out, "%s            %-18s", prefix, title);
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        if (is_shown(memory, kind) && table->bytes[kind] > 0) {
            (void)fprintf(out, " %8.1f", (double)table->bytes[kind] / unit->bytes);
        } else if (is_shown(memory, kind)) {
            (void)fprintf(out, " %8s", "-");
        }
    }
    (void)fprintf(out, " %9.1f%s\n", (double)table->total_bytes / unit->bytes,
                  rank == memory->largest && memory->count > 1 ? "  the largest" : "");
}

/* Of a stage, the rank that holds most. */
static int32_t largest_of(const struct plan_memory *memory, int32_t first, int32_t count)
{
    int32_t largest = first;

    for (int32_t rank = first + 1; rank < first + count; rank++) {
        if (memory->ranks[rank].total_bytes > memory->ranks[largest].total_bytes) {
            largest = rank;
        }
    }
    return largest;
}

static void print_stages(const struct plan_memory *memory, const struct memory_unit *unit,
                         const char *prefix, FILE *out)
{
    struct grid_shape shape = config_grid_shape(memory->config);
    int32_t stage_ranks = shape.tp * shape.dp;
    int32_t largest = memory->largest / stage_ranks;

    for (int32_t stage = 0; stage < shape.pp; stage++) {
        bool shown = shape.pp <= MOST_LISTED_STAGES || stage == 0 || stage == shape.pp - 1 ||
                     stage == largest;

        if (shown) {
            print_rank(memory, stage, largest_of(memory, stage * stage_ranks, stage_ranks), unit,
                       prefix, out);
        }
    }
    if (shape.pp > MOST_LISTED_STAGES) {
        (void)fprintf(out, "%s            no other stage holds more than the largest\n", prefix);
    }
}

static void print_limit(const struct plan_memory *memory, const struct memory_unit *unit,
                        const char *prefix, FILE *out)
{
    int64_t limit = memory->config->train.memory_limit;
    int32_t over = 0;

    if (limit <= 0) {
        return;
    }
    for (int32_t rank = 0; rank < memory->count; rank++) {
        over += memory->ranks[rank].total_bytes > (size_t)limit ? 1 : 0;
    }
    (void)fprintf(out, "%s            train.memory_limit is %.1f %s: ", prefix,
                  (double)limit / unit->bytes, unit->name);
    if (over == 0) {
        (void)fprintf(out, "every rank fits\n");
    } else {
        (void)fprintf(out, "%d of %d ranks do not fit\n", over, memory->count);
    }
}

/* State is what there is of each parameter, whatever is in flight. */
static void print_state(const struct plan_memory *memory, const char *prefix, FILE *out)
{
    const struct memory_table *table = &memory->ranks[memory->largest];
    const struct config *config = memory->config;
    const char *before = ":";

    if (table->parameters == 0) {
        return;
    }
    (void)fprintf(out, "%s            %.1f bytes a parameter on rank %d, %s with %s", prefix,
                  memory_state_each(table), memory->largest, dtype_text(config->precision.dtype),
                  config->optimizer.name == OPTIMIZER_SGD ? "sgd" : "adam");
    for (int kind = 0; kind < MEMORY_STATE_KINDS; kind++) {
        if (table->bytes[kind] > 0) {
            (void)fprintf(out, "%s %s %.1f", before, memory_text((enum memory_kind)kind),
                          (double)table->bytes[kind] / (double)table->parameters);
            before = ",";
        }
    }
    (void)fprintf(out, "\n");
    if (config->parallel.dp > 1) {
        (void)fprintf(out,
                      "%s            ZeRO at dp %lld, with layers that are whole for a while: %.1f "
                      "bytes without",
                      prefix, (long long)config->parallel.dp, memory->state_each[0]);
        for (int stage = 1; stage < PLAN_MEMORY_ZERO_STAGES; stage++) {
            (void)fprintf(out, ", %.1f with zero_stage %d", memory->state_each[stage], stage);
        }
        (void)fprintf(out, "\n");
    }
}

void plan_memory_print(const struct plan_memory *memory, const char *prefix, FILE *out)
{
    struct memory_unit unit = memory_unit_for(memory->ranks[memory->largest].total_bytes);

    print_head(memory, &unit, prefix, out);
    print_stages(memory, &unit, prefix, out);
    print_limit(memory, &unit, prefix, out);
    print_state(memory, prefix, out);
}

enum status plan_memory_check(const struct plan_memory *memory)
{
    struct grid_shape shape;
    char place[GRID_PLACE_BYTES];

    if (memory->count == 0) {
        return STATUS_OK;
    }
    shape = config_grid_shape(memory->config);
    (void)grid_place_text(&shape, memory->largest, place, sizeof(place));
    return memory_check(&memory->ranks[memory->largest], place, memory->config->train.memory_limit);
}

void plan_memory_release(struct plan_memory *memory)
{
    free(memory->ranks);
    *memory = (struct plan_memory){0};
}
