#include "scheduler/search_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Times from the step's begin, or to its end, along one micro-batch's way. */
struct ways {
    const struct search_space *space;
    double *head; /* owns; [stage]: F of it begins no earlier */
    double *back; /* [stage]: I of it begins no earlier */
    double
        *tail; /* [stage]: nothing that follows I of it ends earlier than so much behind its end */
};

static double cost_of(const struct search_space *space, int32_t stage, enum search_kind kind)
{
    return space->type[search_type_of(stage, kind)].cost + space->costs.action;
}

/* What the message from the virtual stage before takes; nothing on one rank. */
static double latency_of(const struct search_space *space, int32_t stage, enum search_kind kind)
{
    const struct search_type *type = &space->type[search_type_of(stage, kind)];

    return type->lane_in == SEARCH_NONE ? 0.0 : type->latency;
}

/* Units that may be in flight. */
static double room_of(const struct search_space *space, int32_t rank)
{
    return (double)(space->memory.limit[rank] - search_fixed(space, rank));
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void fill_ways(struct ways *ways)
{
    const struct search_space *space = ways->space;
    int32_t last = space->stages - 1;
    int32_t stage;

    for (stage = 1; stage <= last; stage++) {
        ways->head[stage] = ways->head[stage - 1] + cost_of(space, stage - 1, SEARCH_F) +
                            latency_of(space, stage, SEARCH_F);
    }
    ways->back[last] = ways->head[last] + cost_of(space, last, SEARCH_F);
    for (stage = last - 1; stage >= 0; stage--) {
        ways->back[stage] = ways->back[stage + 1] + cost_of(space, stage + 1, SEARCH_I) +
                            latency_of(space, stage, SEARCH_I);
    }
    for (stage = 0; stage <= last; stage++) {
        double own = cost_of(space, stage, SEARCH_W);

        ways->tail[stage] = stage == 0 ? own
                                       : larger(own, latency_of(space, stage - 1, SEARCH_I) +
                                                         cost_of(space, stage - 1, SEARCH_I) +
                                                         ways->tail[stage - 1]);
    }
}

/* What a rank has to do in a step. */
struct rank_work {
    double head;     /* least of its virtual stages */
    double tail;     /* least of its virtual stages */
    double back;     /* of its last virtual stage: no I begins earlier */
    double all;      /* F, I and W of all micro-batches */
    double forwards; /* F alone */
    double weights;  /* W alone */
    double early;    /* F that its memory lets it do before the first W */
    double held;     /* least time that its stashes are held, times their size */
};

/* F that `units` of memory hold at most, those with the most time for their size first. Fractions
 * count, so that this is never too little. */
static double forwards_in(const struct search_space *space, int32_t rank, double units)
{
    double left = units;
    double most = 0.0;
    double before = INFINITY;

    while (left > 0.0) {
        double best = -1.0;
        double time = 0.0;
        double size = 0.0;
        int32_t i;

        for (i = 0; i < space->chunks; i++) {
            int32_t stage = space->stage_of[rank * space->chunks + i];
            double own_size = (double)search_stash(space, stage);
            double own_time = cost_of(space, stage, SEARCH_F);
            double rate = own_size > 0.0 ? own_time / own_size : INFINITY;

            if (rate < before && rate > best) {
                best = rate;
            }
        }
        for (i = 0; i < space->chunks && best >= 0.0; i++) {
            int32_t stage = space->stage_of[rank * space->chunks + i];
            double own_size = (double)search_stash(space, stage);
            double own_time = cost_of(space, stage, SEARCH_F);

            if (own_size > 0.0 && own_time / own_size == best) {
                time += own_time * space->microbatches;
                size += own_size * space->microbatches;
            }
        }
        if (best < 0.0) {
            break;
        }
        most += size <= left ? time : time * (left / size);
        left -= size;
        before = best;
    }
    return most;
}

static struct rank_work work_of(const struct ways *ways, int32_t rank)
{
    const struct search_space *space = ways->space;
    struct rank_work work = {.head = INFINITY, .tail = INFINITY};
    bool sized = true;
    double m = space->microbatches;
    int32_t i;

    for (i = 0; i < space->chunks; i++) {
        int32_t stage = space->stage_of[rank * space->chunks + i];
        double F = cost_of(space, stage, SEARCH_F);
        double I = cost_of(space, stage, SEARCH_I);
        double W = cost_of(space, stage, SEARCH_W);

        work.head = ways->head[stage] < work.head ? ways->head[stage] : work.head;
        work.tail = ways->tail[stage] < work.tail ? ways->tail[stage] : work.tail;
        work.back = ways->back[stage]; /* of the last one in the end, which is the first to be */
        work.all += m * (F + I + W);
        work.forwards += m * F;
        work.weights += m * W;
        work.held += m * (double)search_stash(space, stage) *
                     (ways->back[stage] + I + W - ways->head[stage]);
        sized = sized && search_stash(space, stage) > 0;
    }
    work.early = work.forwards;
    if (space->memory.limit != NULL && sized) {
        work.early = forwards_in(space, rank, room_of(space, rank));
    }
    return work;
}

static double bound_of_rank(const struct search_space *space, const struct rank_work *work,
                            int32_t rank)
{
    double bound = work->head + work->all;
    double early = work->early < work->forwards ? work->early : work->forwards;

    bound = larger(bound, work->head + work->all - work->weights + work->tail);
    bound = larger(bound, work->back + work->all - early);
    bound = larger(bound, work->back + work->all - work->weights - early + work->tail);
    if (space->memory.limit != NULL && room_of(space, rank) > 0.0) {
        bound = larger(bound, work->head + work->held / room_of(space, rank));
    }
    return bound;
}

enum status search_bound(const struct search_space *space, double *bound_out)
{
    size_t stages = (size_t)space->stages;
    struct ways ways = {.space = space, .head = calloc(3 * stages, sizeof(double))};
    int32_t rank;

    if (ways.head == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY,
                           "schedule search: no memory for %zu virtual stages", stages);
    }
    ways.back = ways.head + stages;
    ways.tail = ways.head + 2 * stages;
    fill_ways(&ways);
    *bound_out = ways.back[0] + cost_of(space, 0, SEARCH_I) + ways.tail[0];
    for (rank = 0; rank < space->ranks; rank++) {
        struct rank_work work = work_of(&ways, rank);

        *bound_out = larger(*bound_out, bound_of_rank(space, &work, rank));
    }
    free(ways.head);
    return STATUS_OK;
}
