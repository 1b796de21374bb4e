#include "tests/stages/mutant_run.h"

#include <string.h>

#include "tests/scheduler/fake_token.h"

/* What can happen next. */
enum event_kind {
    EVENT_BEGIN,
    EVENT_END,
    EVENT_PROGRESS,
    EVENT_KINDS
};

#define PROGRESS_BIT (1U << 31)

struct event {
    enum event_kind kind;
    int32_t rank;
    int32_t index; /* of PROGRESS: none */
};

/* How the next event is picked. */
struct taste {
    bool in_line;     /* the worker of the CPU */
    bool even;        /* else by a rank that each action has for the whole run */
    uint32_t lazy;    /* bit (kind of action · 2 + end): put off */
    uint32_t sleeper; /* bit a rank: put off */
    bool hurry;       /* the action at `rank`, `index` comes before all others … */
    bool delay;       /* … or behind them */
    int32_t rank;
    int32_t index;
};

struct line_state {
    int32_t compute;    /* the next compute action that may begin or end */
    int32_t at;         /* in line: the action that is issued next */
    int32_t open;       /* everything before it has ended */
    int32_t step;       /* the first STEP that has not begun, or the end of the line */
    int32_t steps_done; /* STEPs ended */
};

struct run {
    struct mutant_world *world;
    const struct plan *plan;
    struct taste taste;
    struct dice dice;
    uint64_t ranking;
    struct line_state lines[MUTANT_RANKS];
    struct event best; /* of those that could be next */
    uint64_t best_key;
    bool found;
};

static const struct action *action_at(const struct run *run, int32_t rank, int32_t index)
{
    return &run->plan->lines[rank].actions[index];
}

static bool is_compute(const struct action *action)
{
    return action_is_compute((enum action_kind)action->kind);
}

static enum work_state *state_at(const struct run *run, int32_t rank, int32_t index)
{
    return &run->world->ranks[rank].state[index];
}

/* An event's place among those of a moment: the largest happens. Above the chance, one bit each for
 * what is not put off. */
static uint64_t key_of(struct run *run, enum event_kind kind, int32_t rank, int32_t index)
{
    const struct taste *taste = &run->taste;
    uint64_t place = ((uint64_t)rank * 1000 + (uint64_t)(index + 1)) * EVENT_KINDS + kind;
    uint64_t key = taste->even ? dice_next(&run->dice) : fake_mix(run->ranking ^ place);
    bool focus = rank == taste->rank && index == taste->index;
    uint32_t bit = PROGRESS_BIT;

    if (kind != EVENT_PROGRESS && action_at(run, rank, index)->kind < ACTION_KINDS) {
        bit = 1U << (action_at(run, rank, index)->kind * 2U + (kind == EVENT_END ? 1U : 0U));
    }
    key >>= 4;
    key |= focus && taste->hurry ? UINT64_C(1) << 63 : 0;
    key |= focus && taste->delay ? 0 : UINT64_C(1) << 62;
    key |= (taste->lazy & bit) != 0 ? 0 : UINT64_C(1) << 61;
    key |= (taste->sleeper >> (uint32_t)rank & 1U) != 0 ? 0 : UINT64_C(1) << 60;
    return key;
}

/* Keeps the event if it comes before all others of this moment. */
static void offer(struct run *run, enum event_kind kind, int32_t rank, int32_t index)
{
    uint64_t key = key_of(run, kind, rank, index);

    if (!run->found || key > run->best_key) {
        run->found = true;
        run->best_key = key;
        run->best = (struct event){.kind = kind, .rank = rank, .index = index};
    }
}

/* Whether action `other` has ended as far as a dependency needs it. In line, a message is looked at
 * here, when somebody waits for it. */
static bool has_ended(struct run *run, int32_t rank, int32_t other)
{
    if (*state_at(run, rank, other) == WORK_ENDED) {
        return true;
    }
    return run->taste.in_line && action_at(run, rank, other)->kind == ACTION_RECV &&
           mutant_world_receive(run->world, rank, other, true);
}

/* A dependency that is not an earlier action of the line has no ticket, and never will. */
static bool depends_ended(struct run *run, int32_t rank, int32_t index)
{
    const struct action *action = action_at(run, rank, index);

    for (int d = 0; d < ACTION_DEPENDS && action->depends[d] != ACTION_NONE; d++) {
        int32_t other = action->depends[d];

        if (other < 0 || other >= run->plan->lines[rank].count) {
            mutant_world_fault(run->world, OUTCOME_OUTSIDE, rank, index, "a dependency");
            return false;
        }
        if (other >= index || !has_ended(run, rank, other)) {
            return false;
        }
    }
    return true;
}

/* Whether every compute action and REDUCE before `index` has ended: what the executor waits for
 * before STEP, and REDUCE comes behind in the stream. */
static bool work_ended(const struct run *run, int32_t rank, int32_t index)
{
    for (int32_t i = run->lines[rank].open; i < index; i++) {
        const struct action *action = action_at(run, rank, i);

        if ((is_compute(action) || action->kind == ACTION_REDUCE) &&
            *state_at(run, rank, i) != WORK_ENDED) {
            return false;
        }
    }
    return true;
}

/* STEP is a round trip: every rank has begun as many. */
static bool others_step(const struct run *run, int32_t rank)
{
    for (int32_t other = 0; other < run->plan->shape.ranks; other++) {
        if (run->world->ranks[other].steps <= run->lines[rank].steps_done) {
            return false;
        }
    }
    return true;
}

/* Whether an action that has begun could end now. */
static bool can_end(const struct run *run, int32_t rank, int32_t index)
{
    const struct action *action = action_at(run, rank, index);
    int32_t head = run->plan->rank_of[plan_stages(run->plan) - 1];

    if (action->kind == ACTION_SEND) {
        return false; /* ends by itself, when it is copied */
    }
    if (action->kind == ACTION_STEP) {
        return others_step(run, rank);
    }
    if (action->kind == ACTION_SYNC && rank != head) {
        return run->world->syncs > 0;
    }
    return true;
}

/* In line: behind the last action the executor waits for every ticket, also for messages that
 * nobody has waited for. */
static void receive_rest(struct run *run, int32_t rank)
{
    int32_t i = run->lines[rank].open;

    while (i < run->plan->lines[rank].count &&
           (action_at(run, rank, i)->kind != ACTION_RECV || has_ended(run, rank, i))) {
        i++;
    }
}

/* In line: the one action that is being issued. */
static void offer_in_line(struct run *run, int32_t rank)
{
    struct line_state *line = &run->lines[rank];
    int32_t count = run->plan->lines[rank].count;

    while (line->at < count && action_at(run, rank, line->at)->kind == ACTION_RECV &&
           depends_ended(run, rank, line->at)) {
        line->at++; /* no work */
    }
    if (line->at >= count) {
        receive_rest(run, rank);
        return;
    }
    if (*state_at(run, rank, line->at) == WORK_BEGUN) {
        if (can_end(run, rank, line->at)) {
            offer(run, EVENT_END, rank, line->at);
        }
        return;
    }
    if (depends_ended(run, rank, line->at) &&
        (action_at(run, rank, line->at)->kind != ACTION_STEP ||
         !mutant_world_sending(run->world, rank))) {
        offer(run, EVENT_BEGIN, rank, line->at);
    }
}

static bool can_begin_ahead(struct run *run, int32_t rank, int32_t index)
{
    const struct action *action = action_at(run, rank, index);
    bool last = action->kind == ACTION_REDUCE || action->kind == ACTION_STEP;

    if (is_compute(action) && run->lines[rank].compute != index) {
        return false;
    }
    return depends_ended(run, rank, index) && (!last || work_ended(run, rank, index));
}

static bool arrived_ahead(struct run *run, int32_t rank, int32_t index)
{
    return depends_ended(run, rank, index) && mutant_world_receive(run->world, rank, index, false);
}

/* Ahead: everything up to the first STEP that has not begun is issued. A message is noticed when it
 * is there, or later: when its event is picked. */
static void offer_ahead(struct run *run, int32_t rank)
{
    struct line_state *line = &run->lines[rank];
    int32_t count = run->plan->lines[rank].count;

    for (int32_t i = line->open; i < count && i <= line->step; i++) {
        enum work_state state = *state_at(run, rank, i);

        if (state == WORK_NEW && action_at(run, rank, i)->kind == ACTION_RECV) {
            (void)arrived_ahead(run, rank, i);
        } else if (state == WORK_NEW && can_begin_ahead(run, rank, i)) {
            offer(run, EVENT_BEGIN, rank, i);
        } else if (state == WORK_BEGUN && can_end(run, rank, i)) {
            offer(run, EVENT_END, rank, i);
        }
    }
}

/* Moves on what a line knows of itself. */
static void advance(struct run *run, int32_t rank)
{
    struct line_state *line = &run->lines[rank];
    int32_t count = run->plan->lines[rank].count;

    while (line->open < count && *state_at(run, rank, line->open) == WORK_ENDED) {
        line->open++;
    }
    while (line->compute < count && (!is_compute(action_at(run, rank, line->compute)) ||
                                     *state_at(run, rank, line->compute) == WORK_ENDED)) {
        line->compute++;
    }
    while (line->step < count && (action_at(run, rank, line->step)->kind != ACTION_STEP ||
                                  *state_at(run, rank, line->step) != WORK_NEW)) {
        line->step++;
    }
}

/* Finds what could happen, and picks one. False where nothing can. */
static bool pick(struct run *run)
{
    run->found = false;
    for (int32_t rank = 0; rank < run->plan->shape.ranks; rank++) {
        advance(run, rank);
        if (run->taste.in_line) {
            offer_in_line(run, rank);
        } else {
            offer_ahead(run, rank);
        }
        if (mutant_world_can_progress(run->world, rank)) {
            offer(run, EVENT_PROGRESS, rank, ACTION_NONE);
        }
    }
    return run->found;
}

static void begin(struct run *run, int32_t rank, int32_t index)
{
    mutant_world_start(run->world, rank, index);
    if (run->taste.in_line && action_at(run, rank, index)->kind == ACTION_SEND) {
        run->lines[rank].at++; /* posted; it may stay pending */
    }
}

static void end(struct run *run, int32_t rank, int32_t index)
{
    mutant_world_finish(run->world, rank, index);
    run->lines[rank].steps_done += action_at(run, rank, index)->kind == ACTION_STEP;
    if (run->taste.in_line) {
        run->lines[rank].at++;
    }
}

static void happen(struct run *run)
{
    const struct event *event = &run->best;

    if (event->kind == EVENT_PROGRESS) {
        mutant_world_progress(run->world, event->rank);
    } else if (event->kind == EVENT_BEGIN) {
        begin(run, event->rank, event->index);
    } else {
        end(run, event->rank, event->index);
    }
}

static bool all_ended(struct run *run)
{
    for (int32_t rank = 0; rank < run->plan->shape.ranks; rank++) {
        advance(run, rank);
        if (run->lines[rank].open < run->plan->lines[rank].count) {
            return false;
        }
    }
    return true;
}

static struct taste choose_taste(struct dice *dice)
{
    struct taste taste = {.in_line = dice_roll(dice, 3) == 0,
                          .even = dice_roll(dice, 3) == 0,
                          .hurry = dice_roll(dice, 3) == 0,
                          .delay = dice_roll(dice, 3) == 0};

    if (dice_roll(dice, 2) != 0) {
        taste.lazy = (uint32_t)dice_next(dice);
        taste.lazy &= (uint32_t)dice_next(dice); /* a quarter of the kinds */
    }
    if (dice_roll(dice, 2) != 0) {
        taste.sleeper = 1U << (uint32_t)dice_roll(dice, MUTANT_RANKS);
    }
    return taste;
}

enum outcome mutant_run(struct mutant_world *world, const struct plan *plan, int32_t rank,
                        int32_t index, uint64_t seed)
{
    struct run run = {.world = world, .plan = plan, .dice = {.state = fake_mix(seed)}};

    run.taste = choose_taste(&run.dice);
    run.taste.rank = rank;
    run.taste.index = index;
    run.ranking = dice_next(&run.dice);
    mutant_world_begin(world, plan);
    while (world->outcome == OUTCOME_RIGHT && pick(&run)) {
        if (world->outcome == OUTCOME_RIGHT) {
            happen(&run);
        }
    }
    if (world->outcome == OUTCOME_RIGHT) {
        if (all_ended(&run)) {
            mutant_world_check_end(world);
        } else {
            mutant_world_fault(world, OUTCOME_HANG, ACTION_NONE, ACTION_NONE, "nobody can go on");
        }
    }
    mutant_world_drain(world);
    return world->outcome;
}
