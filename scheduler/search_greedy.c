#include "scheduler/search_greedy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/search_room.h"

static const double fills[] = {0.0, 0.5, 1.0};

/* What a rank would do next, and when. */
struct choice {
    int32_t type; /* SEARCH_NONE: nothing */
    double start;
};

struct greedy {
    const struct search_space *space;
    const struct search_rule *rule;
    struct search_order *order;
    struct search_room room;
    int32_t *put;    /* owns; [type] how many are in the order */
    int32_t *count;  /* [rank] */
    double *time;    /* owns; [rank] end of its last action */
    double *arrival; /* [type · m + microbatch] when its input is there; not a number: unknown */
    struct choice *choice; /* owns; [rank] */
    int32_t *last;         /* [rank] kind of its last F or I */
    int32_t *queue;        /* [lane · m · v + n]: type of the n-th message */
    int32_t *sent;         /* [lane] */
    int32_t *received;     /* [lane] */
};

struct search_rule search_rule_number(int32_t number)
{
    return (struct search_rule){.in_turn = number % 2 == 1,
                                .deepest = number / 2 % 2 == 1,
                                .extra = number / 4 % 4,
                                .fill = fills[number / 16 % 3]};
}

void search_rule_print(const struct search_rule *rule, char *text, size_t text_bytes)
{
    static const char *const flights[] = {"tight", "eager", "double", "free"};

    (void)snprintf(text, text_bytes, "greedy: %s, %s, %s, W into waits of %g",
                   rule->in_turn ? "F and I in turn" : "I first",
                   rule->deepest ? "deepest chunk" : "oldest micro-batch", flights[rule->extra],
                   rule->fill);
}

static bool greedy_init(struct greedy *greedy, const struct search_rule *rule,
                        struct search_order *order)
{
    const struct search_space *space = order->space;
    size_t ranks = (size_t)space->ranks;
    size_t types = (size_t)space->stages * SEARCH_KINDS;
    size_t numbers = types * (size_t)space->microbatches;
    size_t messages = (size_t)space->lanes * (size_t)space->microbatches * (size_t)space->chunks;

    *greedy = (struct greedy){.space = space, .rule = rule, .order = order};
    greedy->put = calloc(types + 2 * ranks + 2 * (size_t)space->lanes + messages, sizeof(int32_t));
    greedy->time = calloc(ranks + numbers, sizeof(double));
    greedy->choice = calloc(ranks, sizeof(*greedy->choice));
    if (greedy->put == NULL || greedy->time == NULL || greedy->choice == NULL) {
        return false;
    }
    greedy->count = greedy->put + types;
    greedy->last = greedy->count + ranks;
    greedy->sent = greedy->last + ranks;
    greedy->received = greedy->sent + space->lanes;
    greedy->queue = greedy->received + space->lanes;
    greedy->arrival = greedy->time + ranks;
    memset(greedy->arrival, 0xff, numbers * sizeof(double));
    return search_room_init(&greedy->room, space);
}

static void greedy_release(struct greedy *greedy)
{
    search_room_release(&greedy->room);
    free(greedy->put);
    free(greedy->time);
    free(greedy->choice);
}

static size_t queue_at(const struct search_space *space, int32_t lane, int32_t n)
{
    return (size_t)lane * (size_t)space->microbatches * (size_t)space->chunks + (size_t)n;
}

/* Stashes of the rank's chunks that may be in flight at once. */
static int32_t flight_of(const struct greedy *greedy, int32_t rank)
{
    const struct search_space *space = greedy->space;
    int32_t below = space->ranks - 1 - rank;
    int32_t needed = below + 1 + (space->chunks - 1) * space->ranks;

    switch (greedy->rule->extra) {
    case 0:
        return needed;
    case 1:
        return needed + below;
    case 2:
        return 2 * needed;
    default:
        return INT32_MAX;
    }
}

/* F begun and I not begun, over all chunks. */
static int32_t in_flight(const struct greedy *greedy, int32_t rank)
{
    const struct search_space *space = greedy->space;
    int32_t flying = 0;
    int32_t i;

    for (i = 0; i < space->chunks; i++) {
        int32_t stage = space->stage_of[rank * space->chunks + i];

        flying += greedy->put[search_type_of(stage, SEARCH_F)] -
                  greedy->put[search_type_of(stage, SEARCH_I)];
    }
    return flying;
}

/* When the next F or I of this type can begin; INFINITY where that is not known. */
static double ready_at(const struct greedy *greedy, int32_t number)
{
    const struct search_space *space = greedy->space;
    const struct search_type *type = &space->type[number];
    int32_t next = greedy->put[number];
    double arrival;

    if (next == space->microbatches ||
        (type->kind == SEARCH_I && greedy->put[number - 1] <= next)) {
        return INFINITY;
    }
    if (type->producer == SEARCH_NONE) {
        return 0.0;
    }
    if (type->lane_in == SEARCH_NONE) {
        return greedy->put[type->producer] > next ? 0.0 : INFINITY;
    }
    if (greedy->received[type->lane_in] == greedy->sent[type->lane_in] ||
        greedy->queue[queue_at(space, type->lane_in, greedy->received[type->lane_in])] != number) {
        return INFINITY;
    }
    arrival = greedy->arrival[(size_t)number * (size_t)space->microbatches + (size_t)next];
    return arrival >= 0.0 ? arrival : INFINITY;
}

/* Whether the rule likes `number` better than `best`, both F or I that can begin at once. */
static bool is_preferred(const struct greedy *greedy, int32_t rank, int32_t number, int32_t best)
{
    const struct search_type *a = &greedy->space->type[number];
    const struct search_type *b = &greedy->space->type[best];
    bool wants_forward = greedy->rule->in_turn && greedy->last[rank] == SEARCH_I;

    if (a->kind != b->kind) {
        return (a->kind == SEARCH_F) == wants_forward;
    }
    if (!greedy->rule->deepest && greedy->put[number] != greedy->put[best]) {
        return greedy->put[number] < greedy->put[best];
    }
    return a->kind == SEARCH_F ? a->stage > b->stage : a->stage < b->stage;
}

/* The F or I that the rule likes best of those that can begin first, and when. *short_out: some F only
 * lacks memory. */
static struct choice choose_path(const struct greedy *greedy, int32_t rank, bool *short_out)
{
    const struct search_space *space = greedy->space;
    struct choice best = {.type = SEARCH_NONE, .start = INFINITY};
    bool full = in_flight(greedy, rank) >= flight_of(greedy, rank);
    int32_t i;
    int kind;

    *short_out = false;
    for (i = 0; i < space->chunks; i++) {
        for (kind = SEARCH_F; kind <= SEARCH_I; kind++) {
            int32_t stage = space->stage_of[rank * space->chunks + i];
            int32_t number = search_type_of(stage, (enum search_kind)kind);
            double ready = ready_at(greedy, number);
            double start = ready > greedy->time[rank] ? ready : greedy->time[rank];

            if (ready == INFINITY || start > best.start || (kind == SEARCH_F && full)) {
                continue;
            }
            if (!search_room_admits(&greedy->room, greedy->put, number)) {
                *short_out = true;
                continue;
            }
            if (start < best.start || is_preferred(greedy, rank, number, best.type)) {
                best = (struct choice){.type = number, .start = start};
            }
        }
    }
    return best;
}

/* The W of the oldest micro-batch, the deepest chunk first. */
static int32_t choose_weight(const struct greedy *greedy, int32_t rank)
{
    const struct search_space *space = greedy->space;
    int32_t best = SEARCH_NONE;
    int32_t i;

    for (i = space->chunks - 1; i >= 0; i--) {
        int32_t number = search_type_of(space->stage_of[rank * space->chunks + i], SEARCH_W);

        if (greedy->put[number] < greedy->put[number - 1] &&
            (best == SEARCH_NONE || greedy->put[number] < greedy->put[best])) {
            best = number;
        }
    }
    return best;
}

static void choose(struct greedy *greedy, int32_t rank)
{
    bool is_short;
    struct choice path = choose_path(greedy, rank, &is_short);
    int32_t weight = choose_weight(greedy, rank);
    double now = greedy->time[rank];

    if (weight != SEARCH_NONE && path.start > now) {
        double wait = path.start - now;

        if (is_short || wait >= greedy->rule->fill * greedy->space->type[weight].cost) {
            path = (struct choice){.type = weight, .start = now};
        }
    }
    greedy->choice[rank] = path;
}

/* The rank that begins first. */
static int32_t first_rank(const struct greedy *greedy)
{
    int32_t first = 0;
    int32_t rank;

    for (rank = 1; rank < greedy->space->ranks; rank++) {
        if (greedy->choice[rank].start < greedy->choice[first].start) {
            first = rank;
        }
    }
    return first;
}

static void commit(struct greedy *greedy, int32_t rank)
{
    const struct search_space *space = greedy->space;
    struct choice choice = greedy->choice[rank];
    const struct search_type *type = &space->type[choice.type];
    int32_t microbatch = greedy->put[choice.type]++;
    double end = choice.start + space->costs.action + type->cost;

    search_order_line(greedy->order, rank)[greedy->count[rank]++] =
        (struct search_op){.type = choice.type, .microbatch = microbatch};
    search_room_take(&greedy->room, choice.type);
    if (type->lane_in != SEARCH_NONE) {
        greedy->received[type->lane_in]++;
    }
    if (type->lane_out != SEARCH_NONE) {
        int32_t lane = type->lane_out;

        end += space->costs.send;
        greedy->queue[queue_at(space, lane, greedy->sent[lane]++)] = type->consumer;
        greedy->arrival[(size_t)type->consumer * (size_t)space->microbatches + (size_t)microbatch] =
            end + space->type[type->consumer].latency;
    }
    if (type->kind != SEARCH_W) {
        greedy->last[rank] = (int32_t)type->kind;
    }
    greedy->time[rank] = end;
    choose(greedy, rank);
    if (type->consumer != SEARCH_NONE) {
        choose(greedy, space->type[type->consumer].rank);
    }
}

static bool fill_order(struct greedy *greedy)
{
    int64_t left = (int64_t)greedy->space->ranks * greedy->space->length;
    int32_t rank;

    for (rank = 0; rank < greedy->space->ranks; rank++) {
        greedy->last[rank] = SEARCH_I;
        choose(greedy, rank);
    }
    for (; left > 0; left--) {
        rank = first_rank(greedy);
        if (greedy->choice[rank].type == SEARCH_NONE) {
            return false;
        }
        commit(greedy, rank);
    }
    return true;
}

enum status search_greedy_run(const struct search_rule *rule, struct search_order *order,
                              bool *found_out)
{
    struct greedy greedy;
    enum status status = STATUS_OK;

    if (greedy_init(&greedy, rule, order)) {
        *found_out = fill_order(&greedy);
    } else {
        status =
            status_fail(STATUS_ERR_NO_MEMORY, "schedule search: no memory for %d micro-batches",
                        order->space->microbatches);
    }
    greedy_release(&greedy);
    return status;
}
