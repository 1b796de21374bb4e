#include "scheduler/search_clock.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum step_result {
    STEP_DONE,
    STEP_WAITS, /* for another rank */
    STEP_WRONG  /* in no timing */
};

static size_t count_numbers(const struct search_space *space)
{
    return (size_t)space->ranks * (size_t)space->length;
}

/* Cuts `bytes` off a block; all parts keep the alignment of the largest member. */
static void *cut(char **at, size_t bytes)
{
    char *part = *at;

    *at += (bytes + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
    return part;
}

enum status search_clock_init(struct search_clock *clock, const struct search_space *space)
{
    size_t numbers = count_numbers(space);
    size_t stages = (size_t)space->stages;
    size_t ranks = (size_t)space->ranks;
    size_t lanes = (size_t)space->lanes;
    size_t bytes = numbers * (sizeof(double) + sizeof(int64_t) + 2 * sizeof(int32_t)) +
                   stages * (2 * sizeof(struct search_held) + SEARCH_KINDS * sizeof(int32_t)) +
                   lanes * sizeof(struct search_lane) +
                   ranks * (sizeof(double) + sizeof(int64_t) + sizeof(struct search_line)) +
                   16 * sizeof(int64_t);
    int32_t type;
    char *at;

    *clock = (struct search_clock){.space = space, .memory = calloc(1, bytes)};
    if (clock->memory == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "schedule search: no memory for %zu actions",
                           numbers);
    }
    at = clock->memory;
    clock->end = cut(&at, numbers * sizeof(*clock->end));
    clock->because = cut(&at, numbers * sizeof(*clock->because));
    clock->place = cut(&at, numbers * sizeof(*clock->place));
    clock->sequence = cut(&at, numbers * sizeof(*clock->sequence));
    clock->held = cut(&at, stages * sizeof(*clock->held));
    clock->peak = cut(&at, stages * sizeof(*clock->peak));
    clock->lanes = cut(&at, lanes * sizeof(*clock->lanes));
    clock->next = cut(&at, SEARCH_KINDS * stages * sizeof(*clock->next));
    clock->time = cut(&at, ranks * sizeof(*clock->time));
    clock->last = cut(&at, ranks * sizeof(*clock->last));
    clock->lines = cut(&at, ranks * sizeof(*clock->lines));
    for (type = 0; type < space->stages * SEARCH_KINDS; type++) {
        clock->lines[space->type[type].rank].work +=
            space->microbatches * (space->type[type].cost + space->costs.action);
    }
    return STATUS_OK;
}

void search_clock_release(struct search_clock *clock)
{
    free(clock->memory);
    memset(clock, 0, sizeof(*clock));
}

static void raise(int32_t *held, int32_t *peak)
{
    (*held)++;
    *peak = *held > *peak ? *held : *peak;
}

static bool is_local(const struct search_space *space, int32_t stage, int32_t other)
{
    return other >= 0 && other < space->stages && space->rank_of[other] == space->rank_of[stage];
}

/* Landing buffers between two chunks of one rank, taken and given back in the order of the line. */
static void hold_local(struct search_clock *clock, const struct search_type *type)
{
    const struct search_space *space = clock->space;
    int32_t stage = type->stage;

    if (type->kind == SEARCH_F && is_local(space, stage, stage + 1)) {
        raise(&clock->held[stage + 1].local_f, &clock->peak[stage + 1].local_f);
    } else if (type->kind == SEARCH_I) {
        if (is_local(space, stage, stage - 1)) {
            raise(&clock->held[stage - 1].local_b, &clock->peak[stage - 1].local_b);
        }
        clock->held[stage].local_f -= is_local(space, stage, stage - 1) ? 1 : 0;
    } else if (type->kind == SEARCH_W) {
        clock->held[stage].local_b -= is_local(space, stage, stage + 1) ? 1 : 0;
    }
}

/* Units of all landing buffers of a chunk. */
static int64_t landing_need(const struct search_clock *clock, int32_t stage)
{
    const struct search_space *space = clock->space;
    const struct search_held *peak = &clock->peak[stage];
    int64_t count = peak->local_f + peak->local_b;

    if (space->type[search_type_of(stage, SEARCH_F)].lane_in != SEARCH_NONE) {
        count += peak->stashes + space->shape.lane_depth;
    }
    if (space->type[search_type_of(stage, SEARCH_I)].lane_in != SEARCH_NONE) {
        count += peak->gradients + space->shape.lane_depth;
    }
    return count * search_landing(space, stage);
}

/* Whether the op stands behind those of its rank that it needs, as far as the line has been read. */
static bool is_next(struct search_clock *clock, struct search_op op)
{
    const struct search_type *type = &clock->space->type[op.type];

    if (op.microbatch != clock->next[op.type]++) {
        return false;
    }
    if (type->kind != SEARCH_F && clock->next[op.type - 1] <= op.microbatch) {
        return false;
    }
    return type->producer == SEARCH_NONE || type->lane_in != SEARCH_NONE ||
           clock->next[type->producer] > op.microbatch;
}

/* Units of what the chunks of a rank hold at most, together at any time or each for itself. */
static int64_t need_of(const struct search_clock *clock, int32_t rank, int64_t together)
{
    const struct search_space *space = clock->space;
    int64_t need = search_fixed(space, rank);
    int32_t i;

    for (i = 0; i < space->chunks; i++) {
        int32_t stage = space->stage_of[rank * space->chunks + i];
        const struct search_held *peak = &clock->peak[stage];

        need += landing_need(clock, stage);
        if (!space->memory.together) {
            need += peak->stashes * search_stash(space, stage) +
                    peak->gradients * search_gradient(space, stage);
        }
    }
    return need + (space->memory.together ? together : 0);
}

/* What can be said of a line alone. */
static void read_line(struct search_clock *clock, const struct search_order *order, int32_t rank)
{
    const struct search_space *space = clock->space;
    const struct search_op *ops = search_order_line(order, rank);
    struct search_line *line = &clock->lines[rank];
    int64_t together = 0;
    int64_t most = 0;
    int32_t i;

    line->touched = false;
    line->legal = true;
    for (i = 0; i < space->chunks; i++) {
        int32_t stage = space->stage_of[rank * space->chunks + i];

        memset(&clock->held[stage], 0, sizeof(*clock->held));
        memset(&clock->peak[stage], 0, sizeof(*clock->peak));
        memset(&clock->next[search_type_of(stage, SEARCH_F)], 0, SEARCH_KINDS * sizeof(int32_t));
    }
    for (i = 0; i < space->length; i++) {
        const struct search_type *type = &space->type[ops[i].type];
        struct search_held *held = &clock->held[type->stage];

        line->legal = is_next(clock, ops[i]) && line->legal;
        hold_local(clock, type);
        if (type->kind == SEARCH_F) {
            raise(&held->stashes, &clock->peak[type->stage].stashes);
            together += search_stash(space, type->stage);
        } else if (type->kind == SEARCH_I) {
            raise(&held->gradients, &clock->peak[type->stage].gradients);
            together += search_gradient(space, type->stage);
        } else {
            held->stashes--;
            held->gradients--;
            together -= search_stash(space, type->stage) + search_gradient(space, type->stage);
        }
        most = together > most ? together : most;
    }
    line->need = need_of(clock, rank, most);
}

int64_t search_clock_need(const struct search_clock *clock, int32_t rank)
{
    return clock->lines[rank].need;
}

void search_clock_touch(struct search_clock *clock, int32_t rank)
{
    clock->lines[rank].touched = true;
}

/* Whether each line is one, and fits. */
static bool read_lines(struct search_clock *clock, const struct search_order *order)
{
    const int64_t *limit = clock->space->memory.limit;
    bool good = true;
    int32_t rank;

    for (rank = 0; rank < clock->space->ranks; rank++) {
        struct search_line *line = &clock->lines[rank];

        if (line->touched) {
            read_line(clock, order, rank);
        }
        good = good && line->legal && (limit == NULL || line->need <= limit[rank]);
    }
    return good;
}

static void reset(struct search_clock *clock)
{
    const struct search_space *space = clock->space;
    int32_t i;

    /* All bits set is not a number: not known yet. */
    memset(clock->end, 0xff, count_numbers(space) * sizeof(*clock->end));
    for (i = 0; i < space->ranks; i++) {
        struct search_line *line = &clock->lines[i];

        line->cursor = 0;
        line->awaited = SEARCH_NONE;
        line->ready = 0.0;
        line->rest = line->work;
        clock->time[i] = 0.0;
        clock->last[i] = SEARCH_NONE;
    }
    for (i = 0; i < space->lanes; i++) {
        clock->lanes[i] = (struct search_lane){.release = SEARCH_NONE};
    }
}

static bool is_known(const struct search_clock *clock, int64_t number)
{
    return clock->end[number] >= 0.0;
}

/* What must end before message `microbatch` into `type` has a landing buffer, or SEARCH_NONE. */
static int64_t release_of(const struct search_clock *clock, const struct search_type *type,
                          int32_t microbatch)
{
    const struct search_space *space = clock->space;
    const struct search_held *peak = &clock->peak[type->stage];
    int32_t landings =
        space->shape.lane_depth + (type->kind == SEARCH_F ? peak->stashes : peak->gradients);

    if (microbatch < landings) {
        return SEARCH_NONE;
    }
    return (int64_t)type->reader * space->microbatches + microbatch - landings;
}

/* The latest of what an action waits for, so far. */
struct beginning {
    double begin;
    int64_t because;
};

static void wait_for(struct beginning *beginning, double until, int64_t because)
{
    if (until > beginning->begin) {
        beginning->begin = until;
        beginning->because = because;
    }
}

/* The end of a SEND: behind what made the message and behind the release of its landing buffer. False
 * where that is not known yet: it is the `because` then. */
static bool send_end(const struct search_clock *clock, double made, int64_t maker, int64_t release,
                     struct beginning *send)
{
    *send = (struct beginning){.begin = made, .because = maker};
    if (release != SEARCH_NONE) {
        if (!is_known(clock, release)) {
            send->because = release;
            return false;
        }
        wait_for(send, clock->end[release], release);
    }
    send->begin += clock->space->costs.send;
    return true;
}

/* Its message. Where that is not known to come yet, what it waits for is the `because`. */
static enum step_result wait_input(const struct search_clock *clock, const struct search_type *type,
                                   struct search_op op, struct beginning *beginning)
{
    const struct search_space *space = clock->space;
    int64_t producer = (int64_t)type->producer * space->microbatches + op.microbatch;
    struct beginning send;

    if (type->lane_in == SEARCH_NONE) {
        return STEP_DONE;
    }
    if (!is_known(clock, producer)) {
        beginning->because = producer;
        return STEP_WAITS;
    }
    if (clock->sequence[producer] != clock->lanes[type->lane_in].received) {
        return STEP_WRONG;
    }
    if (!send_end(clock, clock->end[producer], producer, release_of(clock, type, op.microbatch),
                  &send)) {
        beginning->because = send.because;
        return STEP_WAITS;
    }
    wait_for(beginning, send.begin + type->latency, send.because);
    return STEP_DONE;
}

/* The out buffer of its lane. */
static enum step_result wait_out_buffer(const struct search_clock *clock,
                                        const struct search_type *type, int64_t before,
                                        struct beginning *beginning)
{
    const struct search_lane *lane;
    struct beginning send;

    if (type->lane_out == SEARCH_NONE) {
        return STEP_DONE;
    }
    lane = &clock->lanes[type->lane_out];
    if (lane->sent == 0) {
        return STEP_DONE;
    }
    if (!send_end(clock, lane->end, before, lane->release, &send)) {
        beginning->because = send.because;
        return STEP_WAITS;
    }
    wait_for(beginning, send.begin, send.because);
    return STEP_DONE;
}

/* False where the rank ends too late for sure. */
static bool finish(struct search_clock *clock, const struct search_type *type, struct search_op op,
                   const struct beginning *beginning)
{
    const struct search_space *space = clock->space;
    int64_t number = (int64_t)search_op_number(space, op);
    double cost = space->costs.action + type->cost;
    double end = beginning->begin + space->costs.action + type->cost;
    struct search_line *line = &clock->lines[type->rank];

    clock->end[number] = end;
    clock->because[number] = beginning->because;
    clock->place[number] = line->cursor++;
    clock->time[type->rank] = end;
    clock->last[type->rank] = number;
    line->ready = end;
    line->rest -= cost;
    if (type->lane_in != SEARCH_NONE) {
        clock->lanes[type->lane_in].received++;
    }
    if (type->lane_out != SEARCH_NONE) {
        struct search_lane *lane = &clock->lanes[type->lane_out];

        clock->sequence[number] = lane->sent++;
        lane->end = end;
        lane->release = release_of(clock, &space->type[type->consumer], op.microbatch);
        line->ready = end + space->costs.send;
    }
    return end + line->rest <= clock->cutoff;
}

/* The next op of `rank`, where everything that it waits for has a time. */
static enum step_result step(struct search_clock *clock, const struct search_order *order,
                             int32_t rank)
{
    const struct search_space *space = clock->space;
    struct search_line *line = &clock->lines[rank];
    struct search_op op = search_order_line(order, rank)[line->cursor];
    const struct search_type *type = &space->type[op.type];
    int64_t before = clock->last[rank];
    struct beginning beginning = {.begin = line->ready, .because = before};
    enum step_result result;

    if (type->kind != SEARCH_W) {
        wait_for(&beginning, clock->time[rank] + space->costs.gather, before);
    }
    result = wait_input(clock, type, op, &beginning);
    if (result == STEP_DONE) {
        result = wait_out_buffer(clock, type, before, &beginning);
    }
    if (result == STEP_WAITS) {
        line->awaited = beginning.because;
    }
    if (result == STEP_DONE && !finish(clock, type, op, &beginning)) {
        return STEP_WRONG;
    }
    return result;
}

/* Goes along the line of `rank` as far as that gets. Returns how many ops that were, -1 where one is
 * wrong. */
static int32_t advance(struct search_clock *clock, const struct search_order *order, int32_t rank)
{
    struct search_line *line = &clock->lines[rank];
    int32_t done = 0;

    if (line->awaited != SEARCH_NONE && !is_known(clock, line->awaited)) {
        return 0;
    }
    while (line->cursor < clock->space->length) {
        enum step_result result = step(clock, order, rank);

        if (result == STEP_WAITS) {
            return done;
        }
        if (result == STEP_WRONG) {
            return -1;
        }
        done++;
    }
    return done;
}

/* Every rank as far as it gets, again and again. */
static bool go(struct search_clock *clock, const struct search_order *order)
{
    int32_t ranks = clock->space->ranks;
    int64_t left = (int64_t)count_numbers(clock->space);
    bool down = false;
    int32_t i;

    /* Up for the forwards, down for the backwards. */
    while (left > 0) {
        int64_t before = left;

        for (i = 0; i < ranks; i++) {
            int32_t done = advance(clock, order, down ? ranks - 1 - i : i);

            if (done < 0) {
                return false;
            }
            left -= done;
        }
        if (left == before) {
            return false; /* a deadlock */
        }
        down = !down;
    }
    return true;
}

/* What rounding may take from the sum of a rank's work. */
#define ALMOST (1.0 + 1e-9)

double search_clock_rerun(struct search_clock *clock, const struct search_order *order,
                          double cutoff)
{
    double makespan = 0.0;
    int32_t i;

    if (!read_lines(clock, order)) {
        return SEARCH_NEVER;
    }
    clock->cutoff = cutoff * ALMOST;
    reset(clock);
    if (!go(clock, order)) {
        return SEARCH_NEVER;
    }
    for (i = 0; i < clock->space->ranks; i++) {
        makespan = clock->time[i] > makespan ? clock->time[i] : makespan;
    }
    return makespan;
}

double search_clock_run(struct search_clock *clock, const struct search_order *order)
{
    int32_t rank;

    for (rank = 0; rank < clock->space->ranks; rank++) {
        search_clock_touch(clock, rank);
    }
    return search_clock_rerun(clock, order, SEARCH_NEVER);
}
