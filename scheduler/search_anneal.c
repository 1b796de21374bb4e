#include "scheduler/search_anneal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/search_clock.h"
#include "scheduler/search_draw.h"
#include "scheduler/search_move.h"

#define FURTHEST_W     9
#define FURTHEST_OTHER 3

/* Two neighbours in a line of which the second begins when the first has ended, on the critical
 * path. */
struct pair {
    int32_t rank;
    int32_t place; /* of the first */
};

struct annealing {
    const struct search_anneal *anneal;
    const struct search_space *space;
    struct search_clock clock;
    struct search_moves moves;
    struct search_order *order; /* where it is */
    struct search_order best;   /* owns */
    struct search_draw draw;
    struct pair *pairs; /* owns; of the order where it is */
    int32_t pair_count;
    double makespan;
    double score;
    double best_makespan;
    double best_score;
};

/* Orders with the same makespan are told apart by when their ranks end, a little. */
#define LITTLE 0.001

static double score_of(const struct annealing *annealing, double makespan)
{
    double sum = 0.0;
    int32_t rank;

    for (rank = 0; rank < annealing->space->ranks; rank++) {
        sum += annealing->clock.time[rank];
    }
    return makespan + LITTLE * sum / annealing->space->ranks;
}

/* Collects the pairs of the critical path, from its end. The clock has just run. */
static void read_path(struct annealing *annealing)
{
    const struct search_clock *clock = &annealing->clock;
    const struct search_space *space = annealing->space;
    int64_t at = clock->last[0];
    double end = clock->time[0];
    int32_t rank;

    for (rank = 1; rank < space->ranks; rank++) {
        if (clock->time[rank] > end) {
            end = clock->time[rank];
            at = clock->last[rank];
        }
    }
    annealing->pair_count = 0;
    while (at != SEARCH_NONE) {
        int64_t before = clock->because[at];
        const struct search_type *type = &space->type[at / space->microbatches];

        if (before != SEARCH_NONE && space->type[before / space->microbatches].rank == type->rank &&
            clock->place[before] + 1 == clock->place[at]) {
            annealing->pairs[annealing->pair_count++] =
                (struct pair){.rank = type->rank, .place = clock->place[before]};
        }
        at = before;
    }
}

/* Changes the order somehow; false where the draw was no move. */
static bool move(struct annealing *annealing)
{
    const struct search_space *space = annealing->space;
    struct search_draw *draw = &annealing->draw;
    int32_t way = search_draw_below(draw, 16);
    struct pair pair;
    int32_t rank;
    int32_t place;
    int32_t far;

    if (annealing->pair_count > 0 && way < 12) {
        pair = annealing->pairs[search_draw_below(draw, annealing->pair_count)];
        if (way < 7) {
            return search_move_shift(&annealing->moves, pair.rank, pair.place, pair.place + 1) ||
                   search_move_wave(&annealing->moves, pair.rank, pair.place);
        }
        rank = pair.rank;
        place = pair.place + search_draw_below(draw, 2);
    } else {
        rank = search_draw_below(draw, space->ranks);
        place = search_draw_below(draw, space->length);
    }
    far = space->type[search_order_line(annealing->order, rank)[place].type].kind == SEARCH_W
              ? FURTHEST_W
              : FURTHEST_OTHER;
    far = 1 + search_draw_below(draw, far);
    if (way == 15) {
        return search_move_wave(&annealing->moves, rank, place);
    }
    return search_move_shift(&annealing->moves, rank, place,
                             search_draw_below(draw, 2) == 0 ? place - far : place + far);
}

/* exp(-x) for x >= 0, near enough, with exactly rounded operations only. */
static double chance_of(double x)
{
    return 1.0 / (1.0 + x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0)))));
}

static void keep(struct annealing *annealing, double makespan, double score)
{
    annealing->makespan = makespan;
    annealing->score = score;
    read_path(annealing);
    if (makespan < annealing->best_makespan ||
        (makespan == annealing->best_makespan && score < annealing->best_score)) {
        annealing->best_makespan = makespan;
        annealing->best_score = score;
        search_order_copy(&annealing->best, annealing->order);
    }
}

/* How much longer an order may be to be kept, where chance_of() that is more than `share`: x with
 * chance_of(x) = share, by halving. */
static double longer_at(double share)
{
    double low = 0.0;
    double high = 16.0;
    int i;

    for (i = 0; i < 24; i++) {
        double middle = 0.5 * (low + high);

        if (chance_of(middle) > share) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static void touch(struct annealing *annealing)
{
    int32_t i;

    for (i = 0; i < annealing->moves.count; i++) {
        search_clock_touch(&annealing->clock, annealing->moves.steps[i].rank);
    }
}

static void try_move(struct annealing *annealing, double heat)
{
    double most = annealing->score + heat * longer_at(search_draw_share(&annealing->draw));
    double makespan;
    double score;

    touch(annealing);
    /* A makespan is never more than its score. */
    makespan = search_clock_rerun(&annealing->clock, annealing->order, most);
    if (makespan < SEARCH_NEVER) {
        score = score_of(annealing, makespan);
        if (score <= most) {
            keep(annealing, makespan, score);
            return;
        }
    }
    touch(annealing);
    search_move_undo(&annealing->moves);
}

static double mean_cost(const struct search_space *space)
{
    int32_t types = space->stages * SEARCH_KINDS;
    double sum = 0.0;
    int32_t type;

    for (type = 0; type < types; type++) {
        sum += space->type[type].cost;
    }
    return sum / types;
}

static void run(struct annealing *annealing, int64_t *used_out)
{
    const struct search_anneal *anneal = annealing->anneal;
    int64_t all = anneal->evaluations;
    double heat = anneal->heat * mean_cost(annealing->space);
    int64_t used = 1;
    int64_t drawn;
    double makespan = search_clock_run(&annealing->clock, annealing->order);

    annealing->best_makespan = SEARCH_NEVER;
    keep(annealing, makespan, score_of(annealing, makespan));
    /* Draws that are no moves cost next to nothing, but end, too. */
    for (drawn = 0; drawn < 8 * all && used < all && annealing->best_makespan > anneal->bound;
         drawn++) {
        double left = 1.0 - (double)used / (double)all;

        if (move(annealing)) {
            try_move(annealing, heat * left * left);
            used++;
        }
    }
    search_order_copy(annealing->order, &annealing->best);
    *used_out = used;
}

static enum status annealing_init(struct annealing *annealing)
{
    const struct search_space *space = annealing->space;

    TRY(search_clock_init(&annealing->clock, space));
    TRY(search_moves_init(&annealing->moves, annealing->order));
    TRY(search_order_init(&annealing->best, space));
    annealing->pairs =
        malloc((size_t)space->ranks * (size_t)space->length * sizeof(*annealing->pairs));
    if (annealing->pairs == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "schedule search: no memory for %d ranks",
                           space->ranks);
    }
    return STATUS_OK;
}

enum status search_anneal_run(const struct search_anneal *anneal, struct search_order *order,
                              double *makespan_out, int64_t *used_out)
{
    struct annealing annealing = {
        .anneal = anneal, .space = order->space, .order = order, .draw = {.state = anneal->seed}};
    enum status status = annealing_init(&annealing);

    if (status == STATUS_OK) {
        run(&annealing, used_out);
        *makespan_out = annealing.best_makespan;
    }
    free(annealing.pairs);
    search_order_release(&annealing.best);
    search_moves_release(&annealing.moves);
    search_clock_release(&annealing.clock);
    return status;
}
