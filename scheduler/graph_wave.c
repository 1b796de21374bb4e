#include <stdlib.h>
#include <string.h>

#include "scheduler/graph.h"

/* What an action of another rank may be waited for: kinds of events. */
enum event_kind {
    EVENT_SENT,                       /* SENT + direction: a message into a virtual stage is gone */
    EVENT_FREED = LANE_DIRECTIONS,    /* FREED + direction: its last reader has ended */
    EVENT_SYNC = 2 * LANE_DIRECTIONS, /* the head's SYNC */
    EVENT_RECEIVED                    /* so many messages of a lane are, in line */
};

struct event {
    enum event_kind kind;
    int32_t rank;  /* where it happens */
    size_t number; /* bit of SENT and FREED; lane of RECEIVED */
    int32_t count; /* RECEIVED */
};

/* An action that its line has passed but that has not fired: a RECV, a SEND or the owner's SYNC,
 * which wait for an action of another rank. In line it is the one that the line stands at. */
struct held {
    struct graph_node node;
    struct event awaited;
    int32_t next_here;  /* the next one of its rank */
    int32_t next_there; /* the next one that waits for the rank of `awaited` */
    bool ready;         /* what it waits for has fired */
};

/*
 * Every rank goes along its line as far as it gets. What a line waits for on its own rank stands
 * before it in the line (scheduler/plan_index.h), so that only messages, landing buffers and the
 * sync hold anything: those are put aside with the one event of another rank that they wait for,
 * and fire when that has come. Compute and STEP, which go in order, stop their line where they name
 * one of them. Events are bits, so that a walk without visits looks nothing up.
 */
struct wave {
    const struct graph *graph;
    graph_visit_fn visit;
    void *context;
    size_t row;        /* bits of a virtual stage */
    uint64_t *bits;    /* owns; [kind · stages + virtual stage][row]: SENT and FREED */
    bool synced;       /* the head's SYNC has fired */
    int32_t *received; /* owns; [lane] RECVs that have fired */
    int32_t *scan;     /* owns, and what follows; [rank] actions that the line has passed */
    int32_t *held_of;  /* [rank] first in `held`, or ACTION_NONE */
    int32_t *waiting;  /* [rank] first that waits for an action of it, or ACTION_NONE */
    int32_t *stack;    /* ranks that may get on, each at most once */
    bool *stacked;     /* owns; [rank] */
    int32_t stack_count;
    struct held *held; /* owns */
    int32_t held_count;
    int32_t held_capacity;
    int32_t held_free; /* first of those given back, by next_here */
    int64_t fired;
};

#define FIRST_HELD 1024
#define BITS       ((size_t)64)
#define LINE_WORDS ((size_t)8) /* of a cache line */

/* Of a line, about as much as a rank gets along at once. */
#define AHEAD_BYTES (8 * sizeof(struct action))

static bool wave_init(struct wave *wave)
{
    const struct plan_index *index = wave->graph->index;
    size_t ranks = (size_t)wave->graph->plan->shape.ranks;
    size_t lines = ((size_t)index->microbatches + LINE_WORDS * BITS - 1) / (LINE_WORDS * BITS);
    size_t words = (lines | 1) * LINE_WORDS; /* odd: rows of stages lie in different cache sets */
    size_t rank;

    wave->row = words * BITS;
    wave->bits = calloc((size_t)EVENT_SYNC * (size_t)index->stages * words, sizeof(*wave->bits));
    wave->received = calloc((size_t)index->lanes + 1, sizeof(*wave->received));
    wave->scan = calloc(4 * ranks, sizeof(*wave->scan));
    wave->stacked = calloc(ranks, sizeof(*wave->stacked));
    wave->held = malloc(FIRST_HELD * sizeof(*wave->held));
    wave->held_capacity = FIRST_HELD;
    if (wave->bits == NULL || wave->received == NULL || wave->scan == NULL ||
        wave->stacked == NULL || wave->held == NULL) {
        return false;
    }
    wave->held_of = wave->scan + ranks;
    wave->waiting = wave->scan + 2 * ranks;
    wave->stack = wave->scan + 3 * ranks;
    wave->held_free = ACTION_NONE;
    wave->stack_count = (int32_t)ranks;
    for (rank = 0; rank < ranks; rank++) {
        wave->held_of[rank] = ACTION_NONE;
        wave->waiting[rank] = ACTION_NONE;
        wave->stack[rank] = (int32_t)(ranks - 1 - rank);
        wave->stacked[rank] = true;
    }
    return true;
}

static void wave_release(struct wave *wave)
{
    free(wave->bits);
    free(wave->received);
    free(wave->scan);
    free(wave->stacked);
    free(wave->held);
}

static size_t bit_of(const struct wave *wave, int kind, int32_t stage, int32_t microbatch)
{
    return ((size_t)kind * (size_t)wave->graph->index->stages + (size_t)stage) * wave->row +
           (size_t)microbatch;
}

static void set_bit(struct wave *wave, int kind, int32_t stage, int32_t microbatch)
{
    size_t bit = bit_of(wave, kind, stage, microbatch);

    wave->bits[bit / BITS] |= (uint64_t)1 << (bit % BITS);
}

static bool has_come(const struct wave *wave, const struct event *event)
{
    switch (event->kind) {
    case EVENT_SYNC:
        return wave->synced;
    case EVENT_RECEIVED:
        return wave->received[event->number] >= event->count;
    default:
        return (wave->bits[event->number / BITS] >> (event->number % BITS) & 1) != 0;
    }
}

static void push(struct wave *wave, int32_t rank)
{
    if (!wave->stacked[rank]) {
        /* It gets on soon, and its part of the plan is long out of the cache. */
        const char *next = (const char *)&wave->graph->plan->lines[rank].actions[wave->scan[rank]];

        for (size_t ahead = 0; ahead < AHEAD_BYTES; ahead += LINE_WORDS * sizeof(uint64_t)) {
            __builtin_prefetch(next + ahead);
        }
        wave->stacked[rank] = true;
        wave->stack[wave->stack_count++] = rank;
    }
}

/* The one that was woken last: neighbours take turns while what they look at is in the cache. */
static int32_t pop(struct wave *wave)
{
    int32_t rank = wave->stack[--wave->stack_count];

    wave->stacked[rank] = false;
    return rank;
}

static bool is_held(const struct wave *wave, struct graph_node node)
{
    int32_t at = wave->held_of[node.rank];

    while (at != ACTION_NONE && wave->held[at].node.index != node.index) {
        at = wave->held[at].next_here;
    }
    return at != ACTION_NONE;
}

/* The events that an action is for other ranks. */
static void tell(struct wave *wave, struct graph_node node, const struct action *action)
{
    const struct plan *plan = wave->graph->plan;
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t stage = action->virtual_stage;

    switch ((enum action_kind)action->kind) {
    case ACTION_F:
        if (!plan_trains(plan)) {
            set_bit(wave, EVENT_FREED + LANE_F, stage, action->microbatch);
        }
        break;
    case ACTION_I:
        set_bit(wave, EVENT_FREED + LANE_F, stage, action->microbatch);
        break;
    case ACTION_W:
        set_bit(wave, EVENT_FREED + LANE_B, stage, action->microbatch);
        break;
    case ACTION_B:
        set_bit(wave, EVENT_FREED + LANE_F, stage, action->microbatch);
        set_bit(wave, EVENT_FREED + LANE_B, stage, action->microbatch);
        break;
    case ACTION_SEND:
        set_bit(wave, EVENT_SENT + (int)direction, plan_target(plan, stage, direction),
                action->microbatch);
        break;
    case ACTION_RECV:
        wave->received[wave->graph->index->lane_of[direction][stage]]++;
        break;
    case ACTION_SYNC:
        wave->synced = wave->synced || node.rank != plan->rank_of[0];
        break;
    default:
        break;
    }
}

static void fire(struct wave *wave, struct graph_node node)
{
    wave->fired++;
    tell(wave, node, &wave->graph->plan->lines[node.rank].actions[node.index]);
    if (wave->visit != NULL) {
        struct graph_edge edges[GRAPH_EDGES];
        int32_t count = graph_edges(wave->graph, node, edges);

        wave->visit(wave->context, node, edges, count);
    }
}

/* What a SEND waits for; false where it may go. */
static bool await_room(const struct wave *wave, const struct action *action, struct event *out)
{
    const struct graph *graph = wave->graph;
    const struct plan_index *index = graph->index;
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t target = plan_target(graph->plan, action->virtual_stage, direction);
    int32_t freed = action->microbatch;

    out->rank = graph->plan->rank_of[target];
    if (graph->rules.in_line) {
        out->kind = EVENT_RECEIVED;
        out->number = (size_t)index->lane_of[direction][target];
        out->count = action->sequence - graph->rules.depth + 1;
        return true;
    }
    if (graph->rules.unbounded || !graph_freed(graph, direction, target, &freed)) {
        return false;
    }
    out->kind = (enum event_kind)(EVENT_FREED + (int)direction);
    out->number = bit_of(wave, (int)out->kind, target, freed);
    return true;
}

/* The one event of another rank that `action` waits for; false where there is none. */
static bool await(const struct wave *wave, struct graph_node node, const struct action *action,
                  struct event *out)
{
    const struct plan *plan = wave->graph->plan;
    enum lane_direction direction = (enum lane_direction)action->direction;

    switch ((enum action_kind)action->kind) {
    case ACTION_RECV:
        out->kind = (enum event_kind)(EVENT_SENT + (int)direction);
        out->rank = plan->rank_of[plan_source(plan, action->virtual_stage, direction)];
        out->number = bit_of(wave, (int)out->kind, action->virtual_stage, action->microbatch);
        return true;
    case ACTION_SEND:
        return await_room(wave, action, out);
    case ACTION_SYNC:
        out->kind = EVENT_SYNC;
        out->rank = plan->rank_of[wave->graph->index->stages - 1];
        return node.rank == plan->rank_of[0];
    default:
        return false;
    }
}

/* Whether one of the actions that `action` names is held. */
static bool names_held(const struct wave *wave, int32_t rank, const struct action *action)
{
    bool unbounded = wave->graph->rules.unbounded;
    int i;

    for (i = 0; i < ACTION_DEPENDS && action->depends[i] != ACTION_NONE; i++) {
        struct graph_node other = {.rank = rank, .index = action->depends[i]};
        uint8_t kind = wave->graph->plan->lines[rank].actions[other.index].kind;

        if (!(unbounded && kind == ACTION_SEND) && is_held(wave, other)) {
            return true;
        }
    }
    return false;
}

/* Puts the action aside until `awaited` comes. */
static enum status hold(struct wave *wave, struct graph_node node, struct event awaited)
{
    int32_t at = wave->held_free;

    if (at != ACTION_NONE) {
        wave->held_free = wave->held[at].next_here;
    } else {
        if (wave->held_count == wave->held_capacity) {
            int32_t capacity = wave->held_capacity * 2;
            struct held *held = realloc(wave->held, (size_t)capacity * sizeof(*held));

            if (held == NULL) {
                return status_fail(STATUS_ERR_NO_MEMORY,
                                   "plan graph: no memory for %d waiting actions", capacity);
            }
            wave->held = held;
            wave->held_capacity = capacity;
        }
        at = wave->held_count++;
    }
    wave->held[at] = (struct held){.node = node,
                                   .awaited = awaited,
                                   .next_here = wave->held_of[node.rank],
                                   .next_there = wave->waiting[awaited.rank]};
    wave->held_of[node.rank] = at;
    wave->waiting[awaited.rank] = at;
    return STATUS_OK;
}

/* Fires what was put aside on this rank and has become ready. */
static void fire_ready(struct wave *wave, int32_t rank)
{
    int32_t *link = &wave->held_of[rank];

    while (*link != ACTION_NONE) {
        int32_t at = *link;
        struct held *held = &wave->held[at];

        if (!held->ready) {
            link = &held->next_here;
            continue;
        }
        *link = held->next_here;
        held->next_here = wave->held_free;
        wave->held_free = at;
        fire(wave, held->node);
    }
}

/* Lets the ranks go on that wait for what has fired on this one. */
static void wake(struct wave *wave, int32_t rank)
{
    int32_t *link = &wave->waiting[rank];

    while (*link != ACTION_NONE) {
        struct held *held = &wave->held[*link];

        if (!has_come(wave, &held->awaited)) {
            link = &held->next_there;
            continue;
        }
        *link = held->next_there;
        held->ready = true;
        push(wave, held->node.rank);
    }
}

/* Whether the line of `rank` stops at `action`. */
static bool stops_at(const struct wave *wave, int32_t rank, const struct action *action)
{
    if (wave->held_of[rank] == ACTION_NONE) {
        return false;
    }
    return wave->graph->rules.in_line ||
           ((action_is_compute((enum action_kind)action->kind) || action->kind == ACTION_STEP) &&
            names_held(wave, rank, action));
}

/* Goes on along the line of `rank` until it stops or ends. */
static enum status advance(struct wave *wave, int32_t rank)
{
    const struct plan_line *line = &wave->graph->plan->lines[rank];
    struct graph_node node = {.rank = rank, .index = wave->scan[rank]};

    for (; node.index < line->count; node.index++) {
        const struct action *action = &line->actions[node.index];
        struct event awaited = {.count = 0};

        wave->scan[rank] = node.index;
        if (stops_at(wave, rank, action)) {
            return STATUS_OK;
        }
        if (await(wave, node, action, &awaited) && !has_come(wave, &awaited)) {
            TRY(hold(wave, node, awaited));
        } else {
            fire(wave, node);
        }
    }
    wave->scan[rank] = node.index;
    return STATUS_OK;
}

enum status graph_wave_run(const struct graph *graph, graph_visit_fn visit, void *context,
                           bool *complete_out, int64_t *turns_out)
{
    struct wave wave = {.graph = graph, .visit = visit, .context = context};
    enum status status = STATUS_OK;

    if (graph->rules.in_line && graph->rules.depth == 0) {
        *complete_out = false; /* a meeting holds both sides: the other walk follows that */
        return STATUS_OK;
    }
    if (!wave_init(&wave)) {
        wave_release(&wave);
        return status_fail(STATUS_ERR_NO_MEMORY, "plan graph: no memory for %d ranks",
                           graph->plan->shape.ranks);
    }
    while (wave.stack_count > 0 && status == STATUS_OK) {
        int32_t rank = pop(&wave);

        (*turns_out)++;
        fire_ready(&wave, rank);
        status = advance(&wave, rank);
        wake(&wave, rank);
    }
    *complete_out = wave.fired == graph_nodes(graph);
    wave_release(&wave);
    return status;
}
