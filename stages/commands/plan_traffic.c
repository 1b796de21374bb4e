#include "stages/commands/plan_traffic.h"

#include <stdlib.h>

#include "collectives/grid.h"

enum status plan_traffic_make(const struct config *config, const struct plan *lowered,
                              struct plan_traffic *traffic_out)
{
    struct grid_shape shape;
    struct grid grid;
    int32_t world;

    *traffic_out = (struct plan_traffic){0};
    if (config == NULL) {
        return STATUS_OK;
    }
    shape = config_grid_shape(config);
    world = shape.pp * shape.tp * shape.dp;
    traffic_out->ranks = calloc((size_t)world, sizeof(*traffic_out->ranks));
    if (traffic_out->ranks == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan: the traffic of %d ranks", world);
    }
    traffic_out->count = world;
    for (int32_t rank = 0; rank < world; rank++) {
        TRY(grid_init(&grid, &shape, rank, world));
        TRY(traffic_plan(config, lowered, &grid, &traffic_out->ranks[rank]));
    }
    return STATUS_OK;
}

struct column {
    uint64_t largest;
    uint64_t sum;
    int32_t rank; /* the first with `largest` */
};

static void add_to(struct column *column, uint64_t bytes, int32_t rank)
{
    if (bytes > column->largest) {
        column->largest = bytes;
        column->rank = rank;
    }
    column->sum += bytes;
}

static void print_row(const char *name, const struct column *column, const char *prefix, FILE *out)
{
    char largest[TRAFFIC_AMOUNT_BYTES];
    char sum[TRAFFIC_AMOUNT_BYTES];
    char where[24];

    traffic_print_amount(column->largest, largest, sizeof(largest));
    traffic_print_amount(column->sum, sum, sizeof(sum));
    (void)snprintf(where, sizeof(where), "(rank %d)", column->rank);
    (void)fprintf(out, "%s            %-20s %12s %-11s %12s\n", prefix, name, largest, where, sum);
}

void plan_traffic_print(const struct plan_traffic *traffic, const char *prefix, FILE *out)
{
    struct column total = {0};

    for (int32_t rank = 0; rank < traffic->count; rank++) {
        add_to(&total, traffic_total(&traffic->ranks[rank]), rank);
    }
    if (total.sum == 0) {
        (void)fprintf(out, "%straffic     none between ranks\n", prefix);
        return;
    }
    (void)fprintf(out, "%straffic     %-20s %12s %-11s %12s\n", prefix, "a step", "largest", "rank",
                  "all ranks");
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        struct column column = {0};

        for (int32_t rank = 0; rank < traffic->count; rank++) {
            add_to(&column, traffic->ranks[rank].bytes[kind], rank);
        }
        if (column.sum > 0) {
            print_row(traffic_text((enum traffic_kind)kind), &column, prefix, out);
        }
    }
    print_row("total", &total, prefix, out);
}

void plan_traffic_release(struct plan_traffic *traffic)
{
    free(traffic->ranks);
    *traffic = (struct plan_traffic){0};
}
