#include "scheduler/search_move.h"

#include <stdlib.h>
#include <string.h>

enum status search_moves_init(struct search_moves *moves, struct search_order *order)
{
    const struct search_space *space = order->space;
    size_t numbers = (size_t)space->ranks * (size_t)space->length;

    /* A wave has a pair a virtual stage at most, in both directions of its lanes. */
    *moves = (struct search_moves){.order = order, .capacity = 2 * space->stages + 2};
    moves->place = malloc(numbers * sizeof(*moves->place));
    moves->steps = malloc((size_t)moves->capacity * sizeof(*moves->steps));
    if (moves->place == NULL || moves->steps == NULL) {
        search_moves_release(moves);
        return status_fail(STATUS_ERR_NO_MEMORY, "schedule search: no memory for %zu actions",
                           numbers);
    }
    search_moves_read(moves);
    return STATUS_OK;
}

void search_moves_release(struct search_moves *moves)
{
    free(moves->place);
    free(moves->steps);
    memset(moves, 0, sizeof(*moves));
}

void search_moves_read(struct search_moves *moves)
{
    const struct search_space *space = moves->order->space;
    int32_t rank;
    int32_t i;

    moves->count = 0;
    for (rank = 0; rank < space->ranks; rank++) {
        for (i = 0; i < space->length; i++) {
            moves->place[search_op_number(space, search_order_line(moves->order, rank)[i])] = i;
        }
    }
}

static bool shares_lane(const struct search_type *a, const struct search_type *b)
{
    return (a->lane_in != SEARCH_NONE && a->lane_in == b->lane_in) ||
           (a->lane_out != SEARCH_NONE && a->lane_out == b->lane_out);
}

/* Whether two ops of a rank may change their order, lanes apart. */
static bool may_pass(const struct search_space *space, struct search_op a, struct search_op b)
{
    const struct search_type *x = &space->type[a.type];
    const struct search_type *y = &space->type[b.type];

    if (a.type == b.type) {
        return false;
    }
    if (a.microbatch != b.microbatch) {
        return true;
    }
    if (x->kind != SEARCH_W && y->kind != SEARCH_W) {
        return false; /* both on the way of one micro-batch */
    }
    return x->stage != y->stage;
}

static void put(struct search_moves *moves, int32_t rank, int32_t place, struct search_op op)
{
    search_order_line(moves->order, rank)[place] = op;
    moves->place[search_op_number(moves->order->space, op)] = place;
}

static void apply(struct search_moves *moves, const struct search_step *step)
{
    const struct search_op *line = search_order_line(moves->order, step->rank);
    struct search_op moved = line[step->from];
    int32_t direction = step->from < step->to ? 1 : -1;
    int32_t i;

    if (step->exchange) {
        put(moves, step->rank, step->from, line[step->to]);
    } else {
        for (i = step->from; i != step->to; i += direction) {
            put(moves, step->rank, i, line[i + direction]);
        }
    }
    put(moves, step->rank, step->to, moved);
}

static void do_step(struct search_moves *moves, struct search_step step)
{
    moves->steps[moves->count++] = step;
    apply(moves, &step);
}

void search_move_undo(struct search_moves *moves)
{
    while (moves->count > 0) {
        struct search_step step = moves->steps[--moves->count];
        int32_t from = step.from;

        step.from = step.to;
        step.to = from;
        apply(moves, &step);
    }
}

bool search_move_shift(struct search_moves *moves, int32_t rank, int32_t from, int32_t to)
{
    const struct search_space *space = moves->order->space;
    const struct search_op *line = search_order_line(moves->order, rank);
    int32_t direction = from < to ? 1 : -1;
    int32_t at = from;

    moves->count = 0;
    while (at != to && at + direction >= 0 && at + direction < space->length) {
        struct search_op other = line[at + direction];

        if (!may_pass(space, line[from], other) ||
            shares_lane(&space->type[line[from].type], &space->type[other.type])) {
            break;
        }
        at += direction;
    }
    if (at == from) {
        return false;
    }
    do_step(moves, (struct search_step){.rank = rank, .from = from, .to = at});
    return true;
}

/* Two ops of one rank change places, and may pass each other and all between them. */
static bool exchange(struct search_moves *moves, struct search_op a, struct search_op b)
{
    const struct search_space *space = moves->order->space;
    int32_t rank = space->type[a.type].rank;
    const struct search_op *line = search_order_line(moves->order, rank);
    int32_t first = moves->place[search_op_number(space, a)];
    int32_t second = moves->place[search_op_number(space, b)];
    int32_t i;

    if (moves->count == moves->capacity || !may_pass(space, a, b)) {
        return false;
    }
    if (first > second) {
        int32_t swapped = first;

        first = second;
        second = swapped;
    }
    for (i = first + 1; i < second; i++) {
        const struct search_type *between = &space->type[line[i].type];

        if (!may_pass(space, a, line[i]) || !may_pass(space, b, line[i]) ||
            shares_lane(&space->type[a.type], between) ||
            shares_lane(&space->type[b.type], between)) {
            return false;
        }
    }
    do_step(moves,
            (struct search_step){.rank = rank, .from = first, .to = second, .exchange = true});
    return true;
}

/* Along the way of the two messages, on one side. */
static bool follow(struct search_moves *moves, struct search_op a, struct search_op b, bool ahead)
{
    const struct search_space *space = moves->order->space;

    for (;;) {
        const struct search_type *x = &space->type[a.type];
        const struct search_type *y = &space->type[b.type];
        int32_t lane = ahead ? x->lane_out : x->lane_in;

        if (lane == SEARCH_NONE || lane != (ahead ? y->lane_out : y->lane_in)) {
            return true;
        }
        a.type = ahead ? x->consumer : x->producer;
        b.type = ahead ? y->consumer : y->producer;
        if (!exchange(moves, a, b)) {
            return false;
        }
    }
}

bool search_move_wave(struct search_moves *moves, int32_t rank, int32_t place)
{
    const struct search_space *space = moves->order->space;
    const struct search_op *line = search_order_line(moves->order, rank);
    struct search_op a = line[place];
    struct search_op b;
    int32_t other = place + 1;

    moves->count = 0;
    while (other < space->length &&
           !shares_lane(&space->type[a.type], &space->type[line[other].type])) {
        other++;
    }
    if (other == space->length) {
        return false;
    }
    b = line[other];
    if (exchange(moves, a, b) && follow(moves, a, b, true) && follow(moves, a, b, false)) {
        return true;
    }
    search_move_undo(moves);
    return false;
}
