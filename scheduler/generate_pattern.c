/*
 * generate_pattern -- v_half, v_min: a pattern of six slots, repeated for every micro-batch.
 *
 * Time is in slots of one chunk's F, I or W, all equally long. On a V each micro-batch has four
 * slots on a rank, F and I of both chunks, at fixed offsets; six slots later the next micro-batch
 * has the same, so that two slots in six are left for its two W, which fill free slots in the order
 * of their I. The offsets decide how long a stash lives, and so how many there are. (Qi et al. 2024,
 * "Pipeline parallelism with controllable memory".)
 *
 * The repeated pattern begins and ends with free slots that nothing fills. They are pulled out: in
 * the order of their slots, each F and I goes to the first free slot behind what it needs at which
 * its rank never holds more stashes than the pattern is made for. As W only fills, it gives way.
 */
#include <stdlib.h>
#include <string.h>

#include "scheduler/generate_order.h"

#define PERIOD 6

/* Slots of all ranks: under a gigabyte. Beyond it a pattern is no plan that anybody waits for. */
#define MOST_SLOTS ((size_t)1 << 26)

/* What a micro-batch has in the pattern, in the order of its slots. */
enum part {
    PART_F_DOWN,
    PART_F_UP,
    PART_I_UP,
    PART_I_DOWN,
    PARTS
};

/* A rank behind a slot, W in free slots counted. */
struct level {
    int32_t stashes;
    int32_t pending; /* I whose W has not run */
};

struct slots {
    struct plan *plan;
    int32_t count;  /* of a rank */
    int32_t most;   /* stashes of chunks a rank */
    int32_t *cells; /* owns; [rank · count + slot]: microbatch · PARTS + part, or ACTION_NONE */
    int32_t *at;    /* owns; [(microbatch · PARTS + part) · p + rank]: its slot */
    int32_t *taken; /* owns; [rank]: the slots up to the last one that is taken */
    struct level *levels; /* owns; before each of those slots, and behind the last */
};

/* The slot of `part` of micro-batch 0 on a rank. */
static int32_t offset_of(const struct plan_shape *shape, int32_t rank, enum part part)
{
    int32_t p = shape->ranks;
    int32_t r = rank;
    int32_t d;

    if (shape->schedule == SCHEDULE_V_MIN) {
        const int32_t offsets[PARTS] = {r, 2 * p - 1 - r, 2 * p + r, 4 * p - 1 - r};

        d = p % 3 == 0 ? 2 : 0;
        return offsets[part] + (part >= PART_I_UP ? d : 0);
    }
    const int32_t offsets[PARTS] = {2 * r, 3 * p - 2 - r, 3 * p + 2 * r - 1, 6 * p - 2 - r};

    d = p % 2 == 0 ? 3 : 0;
    return offsets[part] + (part >= PART_I_UP ? d : 0);
}

/* Stashes of chunks that the pattern is made for: two chunks a micro-batch. */
static int32_t most_stashes(const struct plan_shape *shape)
{
    return shape->schedule == SCHEDULE_V_MIN ? (shape->ranks + 4) / 3 * 2
                                             : (shape->ranks + 2) / 2 * 2;
}

static bool is_forward(enum part part)
{
    return part == PART_F_DOWN || part == PART_F_UP;
}

static enum status slots_init(struct slots *slots, struct plan *plan)
{
    const struct plan_shape *shape = &plan->shape;
    size_t ranks = (size_t)shape->ranks;
    size_t parts = (size_t)shape->microbatches * PARTS * ranks;
    size_t cells;

    memset(slots, 0, sizeof(*slots));
    slots->plan = plan;
    slots->most = most_stashes(shape);
    slots->count = PERIOD * (shape->microbatches + shape->ranks);
    cells = (size_t)slots->count * ranks;
    if (cells > MOST_SLOTS) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan: schedule %s of pp %d and num_microbatches %d takes %zu slots, "
                           "expected at most %zu",
                           schedule_text(shape->schedule), shape->ranks, shape->microbatches, cells,
                           MOST_SLOTS);
    }
    slots->cells = malloc(cells * sizeof(*slots->cells));
    slots->at = malloc(parts * sizeof(*slots->at));
    slots->taken = calloc(ranks, sizeof(*slots->taken));
    slots->levels = calloc(cells + ranks, sizeof(*slots->levels));
    if (slots->cells == NULL || slots->at == NULL || slots->taken == NULL ||
        slots->levels == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan: no memory for %zu slots of a pattern",
                           cells);
    }
    memset(slots->cells, 0xff, cells * sizeof(*slots->cells));
    return STATUS_OK;
}

static void slots_release(struct slots *slots)
{
    free(slots->cells);
    free(slots->at);
    free(slots->taken);
    free(slots->levels);
}

static int32_t *cells_of(const struct slots *slots, int32_t rank)
{
    return slots->cells + (size_t)rank * (size_t)slots->count;
}

static struct level *levels_of(const struct slots *slots, int32_t rank)
{
    return slots->levels + (size_t)rank * ((size_t)slots->count + 1);
}

static int32_t *at_of(const struct slots *slots, int32_t microbatch, enum part part, int32_t rank)
{
    return &slots->at[((size_t)microbatch * PARTS + (size_t)part) *
                          (size_t)slots->plan->shape.ranks +
                      (size_t)rank];
}

/* The level behind a slot that holds `cell`. */
static struct level step(struct level level, int32_t cell)
{
    if (cell == ACTION_NONE) {
        bool weight = level.pending > 0;

        return (struct level){level.stashes - weight, level.pending - weight};
    }
    return is_forward((enum part)(cell % PARTS)) ? (struct level){level.stashes + 1, level.pending}
                                                 : (struct level){level.stashes, level.pending + 1};
}

/* Before `slot`, which may lie behind all that are taken: W runs there until none is left. */
static struct level level_at(const struct slots *slots, int32_t rank, int32_t slot)
{
    int32_t taken = slots->taken[rank];
    struct level level = levels_of(slots, rank)[slot < taken ? slot : taken];
    int32_t weights = slot - taken;

    if (weights <= 0) {
        return level;
    }
    weights = weights < level.pending ? weights : level.pending;
    return (struct level){level.stashes - weights, level.pending - weights};
}

/* Whether the rank can hold everything from `slot` on with `cell` there. */
static bool fits(const struct slots *slots, int32_t rank, int32_t slot, int32_t cell)
{
    const int32_t *cells = cells_of(slots, rank);
    struct level level = step(level_at(slots, rank, slot), cell);

    for (slot++; slot < slots->taken[rank] && level.stashes <= slots->most; slot++) {
        level = step(level, cells[slot]);
    }
    return level.stashes <= slots->most;
}

static void take(struct slots *slots, int32_t rank, int32_t slot, int32_t cell)
{
    int32_t *cells = cells_of(slots, rank);
    struct level *levels = levels_of(slots, rank);
    int32_t taken = slots->taken[rank];
    int32_t i;

    for (i = taken; i < slot; i++) {
        levels[i + 1] = step(levels[i], ACTION_NONE);
    }
    slots->taken[rank] = slot + 1 > taken ? slot + 1 : taken;
    cells[slot] = cell;
    for (i = slot; i < slots->taken[rank]; i++) {
        levels[i + 1] = step(levels[i], cells[i]);
    }
}

static int32_t behind(int32_t slot, int32_t other)
{
    return other + 1 > slot ? other + 1 : slot;
}

/* The first slot behind what the part needs: the same chunk's on the rank before, what it goes on
 * from on the same rank, and the same of the micro-batch before. */
static int32_t first_slot(const struct slots *slots, int32_t rank, int32_t microbatch,
                          enum part part)
{
    bool down = part == PART_F_DOWN || part == PART_I_UP; /* from rank 0 to rank p-1 */
    int32_t before = down ? rank - 1 : rank + 1;
    int32_t slot = 0;

    if (before >= 0 && before < slots->plan->shape.ranks) {
        slot = behind(slot, *at_of(slots, microbatch, part, before));
    } else if (part != PART_F_DOWN) {
        /* The turn: F comes back up on the last rank, I begins and goes back down on both ends. */
        slot = behind(slot, *at_of(slots, microbatch, (enum part)(part - 1), rank));
    }
    if (!is_forward(part)) {
        slot = behind(slot,
                      *at_of(slots, microbatch, part == PART_I_UP ? PART_F_UP : PART_F_DOWN, rank));
    }
    return microbatch > 0 ? behind(slot, *at_of(slots, microbatch - 1, part, rank)) : slot;
}

/* The slot of the pattern itself is always one where it fits: everything before it has moved to
 * earlier slots only. */
static void place(struct slots *slots, int32_t rank, int32_t cell, int32_t pattern, bool pulled)
{
    int32_t microbatch = cell / PARTS;
    enum part part = (enum part)(cell % PARTS);
    int32_t slot = pulled ? first_slot(slots, rank, microbatch, part) : pattern;

    while (slot < pattern &&
           (cells_of(slots, rank)[slot] != ACTION_NONE || !fits(slots, rank, slot, cell))) {
        slot++;
    }
    take(slots, rank, slot, cell);
    *at_of(slots, microbatch, part, rank) = slot;
}

/* Offsets of a rank leave different rests over the period, so that it has one part a slot at most. */
static void place_slot(struct slots *slots, int32_t rank, int32_t slot, bool pulled)
{
    const struct plan_shape *shape = &slots->plan->shape;
    int part;

    for (part = 0; part < PARTS; part++) {
        int32_t since = slot - offset_of(shape, rank, (enum part)part);

        if (since >= 0 && since % PERIOD == 0 && since / PERIOD < shape->microbatches) {
            place(slots, rank, since / PERIOD * PARTS + part, slot, pulled);
        }
    }
}

static void add_part(struct order *order, int32_t cell)
{
    static const int32_t chunks[PARTS] = {0, 1, 1, 0};
    enum part part = (enum part)(cell % PARTS);

    order_add(order, is_forward(part) ? ACTION_F : ACTION_I, cell / PARTS, chunks[part]);
}

/* Reads the slots of a rank as its line. The W of a free slot is that of the oldest I. */
static enum status write_line(const struct slots *slots, int32_t rank)
{
    struct order order = {.plan = slots->plan, .rank = rank};
    const int32_t *cells = cells_of(slots, rank);
    int32_t weights = 2 * slots->plan->shape.microbatches;
    int32_t slot = 0;
    int32_t done = 0;
    int32_t oldest = 0; /* slot from which the next I is looked for */

    for (; slot < slots->taken[rank] || done < weights; slot++) {
        int32_t cell = slot < slots->taken[rank] ? cells[slot] : ACTION_NONE;

        if (cell != ACTION_NONE) {
            add_part(&order, cell);
            continue;
        }
        while (oldest < slot && (oldest >= slots->taken[rank] || cells[oldest] == ACTION_NONE ||
                                 is_forward((enum part)(cells[oldest] % PARTS)))) {
            oldest++;
        }
        if (oldest < slot) {
            order_add(&order, ACTION_W, cells[oldest] / PARTS,
                      cells[oldest] % PARTS == PART_I_UP ? 1 : 0);
            oldest++;
            done++;
        }
    }
    return order.status;
}

enum status order_pattern(struct plan *plan, bool pulled)
{
    struct slots slots;
    enum status status = slots_init(&slots, plan);
    int32_t slot;
    int32_t rank;

    for (slot = 0; status == STATUS_OK && slot < slots.count; slot++) {
        for (rank = 0; rank < plan->shape.ranks; rank++) {
            place_slot(&slots, rank, slot, pulled);
        }
    }
    for (rank = 0; rank < plan->shape.ranks && status == STATUS_OK; rank++) {
        status = write_line(&slots, rank);
    }
    slots_release(&slots);
    return status;
}
