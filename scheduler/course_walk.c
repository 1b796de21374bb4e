#include <stdlib.h>
#include <string.h>

#include "scheduler/course.h"
#include "scheduler/course_word.h"

/* Events are bits, a row a kind and virtual stage: a message is gone, and its last reader has ended. */
enum event {
    SENT,                   /* SENT + direction */
    FREED = LANE_DIRECTIONS /* FREED + direction */
};

#define EVENTS     ((size_t)2 * LANE_DIRECTIONS)
#define BITS       ((size_t)64)
#define LINE_WORDS ((size_t)8) /* of a cache line */
#define NO_BIT     SIZE_MAX

/* What a rank stands at; it waits for one thing at most. */
struct stand {
    int64_t next;   /* word */
    size_t message; /* bit of SENT that it waits for, or NO_BIT */
    int32_t lane;   /* whose out buffer it waits for, or ACTION_NONE */
};

/* A SEND that its line has passed and that has not gone: at most one a lane. */
struct pending {
    size_t freed; /* bit of FREED that it waits for, or NO_BIT */
    int32_t microbatch;
};

/*
 * Each rank goes along its words as far as it gets, and one that waits is put on the stack by whoever
 * brings what it waits for. A SEND that waits for a landing buffer goes the moment that its reader
 * ends: everything else that it needs stands before it in its line.
 */
struct walk {
    const struct course *course;
    bool trains;
    size_t row;              /* bits */
    uint64_t *bits;          /* owns; [event · stages + stage][row] */
    struct stand *stands;    /* owns; [rank] */
    struct pending *pending; /* owns; [lane] */
    int32_t *stack;          /* owns; ranks that may get on, each once at most */
    int32_t stack_count;
    int32_t owner_waits; /* rank whose SYNC waits for the head's, or ACTION_NONE */
    bool synced;
    int64_t unsent;
};

static bool walk_init(struct walk *walk, const struct course *course)
{
    const struct plan_index *index = course->index;
    int32_t ranks = course->plan->shape.ranks;
    size_t lines = ((size_t)index->microbatches + LINE_WORDS * BITS - 1) / (LINE_WORDS * BITS);
    size_t words = (lines | 1) * LINE_WORDS; /* odd: rows of stages lie in different cache sets */

    *walk = (struct walk){.course = course,
                          .trains = plan_trains(course->plan),
                          .row = words * BITS,
                          .stack_count = ranks,
                          .owner_waits = ACTION_NONE};
    walk->bits = calloc(EVENTS * (size_t)index->stages * words, sizeof(*walk->bits));
    walk->stands = malloc((size_t)ranks * sizeof(*walk->stands));
    walk->pending = malloc(((size_t)index->lanes + 1) * sizeof(*walk->pending));
    walk->stack = malloc((size_t)ranks * sizeof(*walk->stack));
    if (walk->bits == NULL || walk->stands == NULL || walk->pending == NULL ||
        walk->stack == NULL) {
        return false;
    }
    for (int32_t rank = 0; rank < ranks; rank++) {
        walk->stands[rank] =
            (struct stand){.next = course->first[rank], .message = NO_BIT, .lane = ACTION_NONE};
        walk->stack[rank] = ranks - 1 - rank;
    }
    /* NO_BIT has all bits set. */
    memset(walk->pending, 0xff, ((size_t)index->lanes + 1) * sizeof(*walk->pending));
    return true;
}

static void walk_release(struct walk *walk)
{
    free(walk->bits);
    free(walk->stands);
    free(walk->pending);
    free(walk->stack);
}

static size_t bit_of(const struct walk *walk, int event, int32_t stage, int32_t microbatch)
{
    return ((size_t)event * (size_t)walk->course->index->stages + (size_t)stage) * walk->row +
           (size_t)microbatch;
}

static bool has(const struct walk *walk, size_t bit)
{
    return (walk->bits[bit / BITS] >> (bit % BITS) & 1) != 0;
}

static void set(struct walk *walk, size_t bit)
{
    walk->bits[bit / BITS] |= (uint64_t)1 << (bit % BITS);
}

static void push(struct walk *walk, int32_t rank)
{
    __builtin_prefetch(&walk->course->words[walk->stands[rank].next]);
    walk->stack[walk->stack_count++] = rank;
}

/* A message of `direction` into `stage` goes. */
static void send(struct walk *walk, enum lane_direction direction, int32_t stage,
                 int32_t microbatch)
{
    size_t bit = bit_of(walk, SENT + (int)direction, stage, microbatch);
    int32_t rank = walk->course->plan->rank_of[stage];

    set(walk, bit);
    if (walk->stands[rank].message == bit) {
        walk->stands[rank].message = NO_BIT;
        push(walk, rank);
    }
}

/* The last reader of a message has ended; `end` is the receiver's. */
static void release(struct walk *walk, enum lane_direction direction, int32_t stage,
                    int32_t microbatch, const struct course_end *end)
{
    size_t bit = bit_of(walk, FREED + (int)direction, stage, microbatch);
    struct pending *pending;

    if (end->lane_in == ACTION_NONE) {
        return;
    }
    set(walk, bit);
    pending = &walk->pending[end->lane_in];
    if (pending->freed != bit) {
        return;
    }
    pending->freed = NO_BIT;
    walk->unsent--;
    send(walk, direction, stage, pending->microbatch);
    if (walk->stands[end->sender].lane == end->lane_in) {
        walk->stands[end->sender].lane = ACTION_NONE;
        push(walk, end->sender);
    }
}

/* Of which message the SEND of `microbatch` waits for the landing buffer; COURSE_NOTHING where it may go. */
static uint32_t freed_before(const struct course_end *end, const uint32_t *word, int32_t microbatch)
{
    if (end->told) {
        return word[1];
    }
    return microbatch < end->landings ? COURSE_NOTHING : (uint32_t)(microbatch - end->landings);
}

static void pass_send(struct walk *walk, enum lane_direction direction,
                      const struct course_end *end, const uint32_t *word, int32_t microbatch)
{
    uint32_t before = freed_before(end, word, microbatch);
    size_t bit = before == COURSE_NOTHING
                     ? NO_BIT
                     : bit_of(walk, FREED + (int)direction, end->target, (int32_t)before);

    if (bit == NO_BIT || has(walk, bit)) {
        send(walk, direction, end->target, microbatch);
        return;
    }
    walk->pending[end->lane_out] = (struct pending){.freed = bit, .microbatch = microbatch};
    walk->unsent++;
}

/* Whether the rank at `stand` has to wait for the message into its action or for its out buffer. */
static bool waits(const struct walk *walk, struct stand *stand, enum lane_direction direction,
                  int32_t stage, int32_t microbatch)
{
    const struct course *course = walk->course;
    const struct course_end *end =
        &course->ends[(size_t)direction * (size_t)course->index->stages + (size_t)stage];

    if (end->lane_in != ACTION_NONE) {
        size_t bit = bit_of(walk, SENT + (int)direction, stage, microbatch);

        if (!has(walk, bit)) {
            stand->message = bit;
            return true;
        }
    }
    if (end->lane_out != ACTION_NONE && walk->pending[end->lane_out].freed != NO_BIT) {
        stand->lane = end->lane_out;
        return true;
    }
    return false;
}

/* A compute action; false where the rank stays at it. */
static bool pass_compute(struct walk *walk, struct stand *stand, enum course_kind kind,
                         int32_t stage, int32_t microbatch)
{
    const struct course *course = walk->course;
    const struct course_end *forward = &course->ends[stage];
    const struct course_end *backward =
        &course->ends[(size_t)course->index->stages + (size_t)stage];

    if (kind != COURSE_W &&
        waits(walk, stand, kind == COURSE_F ? LANE_F : LANE_B, stage, microbatch)) {
        return false;
    }
    if (kind == COURSE_F ? !walk->trains : kind != COURSE_W) {
        release(walk, LANE_F, stage, microbatch, forward);
    }
    if (kind == COURSE_W || kind == COURSE_B) {
        release(walk, LANE_B, stage, microbatch, backward);
    }
    return true;
}

/* The head's SYNC lets the owner's go; false where the owner's has to wait. */
static bool pass_sync(struct walk *walk, int32_t rank)
{
    if (rank == walk->course->plan->rank_of[0]) {
        walk->owner_waits = walk->synced ? ACTION_NONE : rank;
        return walk->synced;
    }
    walk->synced = true;
    if (walk->owner_waits != ACTION_NONE) {
        push(walk, walk->owner_waits);
        walk->owner_waits = ACTION_NONE;
    }
    return true;
}

static void advance(struct walk *walk, int32_t rank)
{
    const struct course *course = walk->course;
    const int32_t *stages =
        &course->index->stage_of[(size_t)rank * (size_t)course->plan->shape.virtual_stages];
    struct stand *stand = &walk->stands[rank];
    int bits = course->chunk_bits;

    while (stand->next < course->last[rank]) {
        const uint32_t *word = &course->words[stand->next];
        enum course_kind kind = course_word_kind(*word);
        int32_t microbatch = (int32_t)course_word_microbatch(*word, bits);
        int32_t stage = stages[course_word_chunk(*word, bits)];

        if (kind < COURSE_SEND) {
            if (!pass_compute(walk, stand, kind, stage, microbatch)) {
                return;
            }
        } else if (kind == COURSE_SYNC) {
            if (!pass_sync(walk, rank)) {
                return;
            }
        } else {
            enum lane_direction direction = (enum lane_direction)(kind - COURSE_SEND);
            const struct course_end *end =
                &course->ends[(size_t)direction * (size_t)course->index->stages + (size_t)stage];

            pass_send(walk, direction, end, word, microbatch);
            stand->next += end->told ? 1 : 0;
        }
        stand->next++;
    }
}

enum status course_walk(const struct course *course, bool *complete_out)
{
    struct walk walk;
    bool complete = true;

    if (!walk_init(&walk, course)) {
        walk_release(&walk);
        return status_fail(STATUS_ERR_NO_MEMORY, "validation: no memory for %d ranks",
                           course->plan->shape.ranks);
    }
    while (walk.stack_count > 0) {
        advance(&walk, walk.stack[--walk.stack_count]);
    }
    complete = walk.unsent == 0;
    for (int32_t rank = 0; rank < course->plan->shape.ranks && complete; rank++) {
        complete = walk.stands[rank].next == course->last[rank];
    }
    walk_release(&walk);
    *complete_out = complete;
    return STATUS_OK;
}
