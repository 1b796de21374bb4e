/* partition_polish -- single layers moved from one virtual stage to another while that helps. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/partition_table.h"

/* How good a split is, the most important number first. */
#define SCORES 4

struct polish {
    const struct partition_table *table;
    partition_evaluate_fn evaluate; /* NULL: the loads decide */
    void *context;
    int32_t evaluations; /* left */
    double *loads;       /* owns; [ranks] */
    int64_t *needs;      /* owns; [ranks] */
};

static enum status score(struct polish *polish, const int32_t *counts, double out[SCORES])
{
    int32_t ranks = polish->table->problem->ranks;
    double top[2] = {-1.0, -1.0};
    double squares = 0.0;
    int32_t fullest = 0;
    int32_t rank;

    polish->evaluations--;
    memset(out, 0, SCORES * sizeof(*out));
    out[0] = (double)partition_loads(polish->table, counts, polish->loads, polish->needs, &fullest);
    if (polish->evaluate != NULL) {
        return polish->evaluate(polish->context, counts, &out[1]);
    }
    for (rank = 0; rank < ranks; rank++) {
        partition_insert(top, polish->loads[rank]);
        squares += partition_square(polish->loads[rank]);
    }
    out[1] = top[0];
    out[2] = top[1];
    out[3] = squares;
    return STATUS_OK;
}

static bool is_better(const double found[SCORES], const double best[SCORES])
{
    int i = 0;

    while (i < SCORES - 1 && found[i] == best[i]) {
        i++;
    }
    return found[i] < best[i];
}

/* One layer of `from` leaves, one more comes to `to`; what is between moves up by one. Kept where
 * that is better. */
static enum status try_move(struct polish *polish, int32_t from, int32_t to, int32_t *counts,
                            double best[SCORES], bool *moved)
{
    double found[SCORES];

    if (to < 0 || to >= polish->table->stages || counts[from] == 0 || polish->evaluations <= 0) {
        return STATUS_OK;
    }
    counts[from]--;
    counts[to]++;
    TRY(score(polish, counts, found));
    if (is_better(found, best)) {
        memcpy(best, found, SCORES * sizeof(*best));
        *moved = true;
        return STATUS_OK;
    }
    counts[from]++;
    counts[to]--;
    return STATUS_OK;
}

/* Every virtual stage gives a layer to the one so far behind it, and to the one before it. */
static enum status try_moves(struct polish *polish, int32_t distance, int32_t *counts,
                             double best[SCORES], bool *moved)
{
    int32_t from;

    for (from = 0; from < polish->table->stages; from++) {
        TRY(try_move(polish, from, from + distance, counts, best, moved));
        TRY(try_move(polish, from, from - distance, counts, best, moved));
    }
    return STATUS_OK;
}

static enum status try_distances(struct polish *polish, int32_t *counts, double best[SCORES],
                                 bool *moved)
{
    int32_t distance;

    for (distance = 1; distance < polish->table->stages; distance++) {
        TRY(try_moves(polish, distance, counts, best, moved));
    }
    return STATUS_OK;
}

/* Until no move helps, or no evaluations are left. Each helps, so that this ends. */
static enum status climb(struct polish *polish, int32_t *counts)
{
    double best[SCORES];
    bool moved = true;

    TRY(score(polish, counts, best));
    while (moved && polish->evaluations > 0) {
        moved = false;
        TRY(try_distances(polish, counts, best, &moved));
    }
    return STATUS_OK;
}

static enum status polish_run(struct polish *polish, int32_t *counts)
{
    size_t ranks = (size_t)polish->table->problem->ranks;
    enum status status;

    polish->loads = malloc(ranks * sizeof(*polish->loads));
    polish->needs = malloc(ranks * sizeof(*polish->needs));
    status = polish->loads != NULL && polish->needs != NULL
                 ? climb(polish, counts)
                 : status_fail(STATUS_ERR_NO_MEMORY, "partition: no memory for %zu ranks", ranks);
    free(polish->loads);
    free(polish->needs);
    return status;
}

/* As many evaluations as a few dozen rounds take on a usual shape; a bound, so that a large one ends
 * too. */
#define LEVEL_EVALUATIONS 200000

enum status partition_level(const struct partition_table *table, int32_t *counts)
{
    struct polish polish = {.table = table, .evaluations = LEVEL_EVALUATIONS};

    return polish_run(&polish, counts);
}

enum status partition_polish(const struct partition_problem *problem,
                             partition_evaluate_fn evaluate, void *context, int32_t evaluations,
                             int32_t *counts)
{
    struct partition_table table;
    struct polish polish = {
        .table = &table, .evaluate = evaluate, .context = context, .evaluations = evaluations};
    enum status status;

    TRY(partition_table_init(&table, problem));
    status = polish_run(&polish, counts);
    partition_table_release(&table);
    return status;
}
