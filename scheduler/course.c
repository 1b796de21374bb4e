#include "scheduler/course.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/course_word.h"
#include "scheduler/graph.h"
#include "scheduler/large.h"

/* Of a virtual stage and micro-batch at most: F, I and W, and a SEND of each direction of two words. */
#define CELL_WORDS ((size_t)7)

static int bits_for(int32_t count)
{
    int bits = 0;

    while ((int64_t)1 << bits < count) {
        bits++;
    }
    return bits;
}

static void begin_end(struct course *course, int32_t stage, enum lane_direction direction)
{
    const struct plan *plan = course->plan;
    const struct plan_index *index = course->index;
    int32_t source = plan_source(plan, stage, direction);
    int32_t target = plan_target(plan, stage, direction);
    struct course_end *end =
        &course->ends[(size_t)direction * (size_t)index->stages + (size_t)stage];

    *end = (struct course_end){.lane_in = ACTION_NONE, .lane_out = ACTION_NONE, .target = target};
    if (source != ACTION_NONE) {
        end->lane_in = index->lane_of[direction][stage];
        end->sender = plan->rank_of[source];
    }
    if (target != ACTION_NONE) {
        const struct plan_buffers *buffers =
            plan_buffers_of(plan, plan->rank_of[target], plan->chunk_of[target]);

        end->lane_out = index->lane_of[direction][target];
        end->landings = direction == LANE_F ? buffers->landing_f : buffers->landing_b;
    }
}

enum status course_init(struct course *course, const struct plan *plan,
                        const struct plan_index *index)
{
    size_t ranks = (size_t)plan->shape.ranks;
    size_t stages = (size_t)index->stages;
    size_t words = CELL_WORDS * stages * (size_t)index->microbatches + LANE_DIRECTIONS;

    *course = (struct course){.plan = plan, .index = index};
    course->chunk_bits = bits_for(plan->shape.virtual_stages);
    course->ends = calloc(LANE_DIRECTIONS * stages, sizeof(*course->ends));
    course->first = calloc(2 * ranks, sizeof(*course->first));
    course->last_send = malloc(((size_t)index->lanes + 1) * sizeof(*course->last_send));
    course->words = large_alloc(words, sizeof(*course->words));
    if (course->ends == NULL || course->first == NULL || course->last_send == NULL ||
        course->words == NULL) {
        course_release(course);
        return status_fail(STATUS_ERR_NO_MEMORY, "validation: no memory for %zu words", words);
    }
    course->last = course->first + ranks;
    memset(course->last_send, 0xff, ((size_t)index->lanes + 1) * sizeof(*course->last_send));
    for (int32_t stage = 0; stage < index->stages; stage++) {
        begin_end(course, stage, LANE_F);
        begin_end(course, stage, LANE_B);
    }
    return STATUS_OK;
}

void course_release(struct course *course)
{
    free(course->ends);
    free(course->first);
    free(course->last_send);
    free(course->words);
    *course = (struct course){.plan = NULL};
}

/* Whether `other`, which `action` names, is no message, or one that `action` has to name and was found to:
 * its own, or the SEND of its own lane before. Its earlier half is mostly far back in the line, so
 * that is recognized by its place. */
static bool may_name(const struct course *course, const struct action *action,
                     const struct plan_line *line, int32_t other)
{
    const struct plan_index *index = course->index;
    enum lane_direction direction = action->kind == ACTION_F ? LANE_F : LANE_B;
    size_t end = (size_t)direction * (size_t)index->stages + (size_t)action->virtual_stage;
    size_t cell = plan_index_cell(index, action->virtual_stage, action->microbatch);
    uint8_t kind;

    if (other == index->place[action->kind == ACTION_W ? PLACE_I : PLACE_F][cell]) {
        return true;
    }
    if (action->kind != ACTION_W && (other == index->place[plan_place_receive(direction)][cell] ||
                                     (course->ends[end].lane_out != ACTION_NONE &&
                                      other == course->last_send[course->ends[end].lane_out]))) {
        return true;
    }
    kind = line->actions[other].kind;
    return kind != ACTION_SEND && kind != ACTION_RECV;
}

static bool names_own_messages(const struct course *course, const struct action *action,
                               const struct plan_line *line)
{
    for (int i = 0; i < ACTION_DEPENDS && action->depends[i] != ACTION_NONE; i++) {
        if (!may_name(course, action, line, action->depends[i])) {
            return false;
        }
    }
    return true;
}

/* STEP may name messages, which lowering never lets it do. */
static bool names_no_message(const struct action *action, const struct plan_line *line)
{
    for (int i = 0; i < ACTION_DEPENDS && action->depends[i] != ACTION_NONE; i++) {
        uint8_t kind = line->actions[action->depends[i]].kind;

        if (kind == ACTION_SEND || kind == ACTION_RECV) {
            return false;
        }
    }
    return true;
}

static void put(struct course *course, const struct action *action, enum course_kind kind)
{
    course->words[course->count++] =
        course_word(kind, action->chunk, (uint32_t)action->microbatch, course->chunk_bits);
}

static void put_send(struct course *course, const struct action *action, int32_t at)
{
    const struct plan_index *index = course->index;
    const struct graph graph = {.plan = course->plan, .index = index};
    enum lane_direction direction = (enum lane_direction)action->direction;
    struct course_end *end =
        &course->ends[(size_t)direction * (size_t)index->stages + (size_t)action->virtual_stage];
    int32_t freed = action->microbatch;

    course->last_send[end->lane_out] = at;
    put(course, action, (enum course_kind)(COURSE_SEND + (int)direction));
    end->told = index->shuffled[direction][end->target];
    if (end->told) {
        course->words[course->count++] =
            graph_freed(&graph, direction, end->target, &freed) ? (uint32_t)freed : COURSE_NOTHING;
    }
}

bool course_add_action(struct course *course, int32_t rank, int32_t i)
{
    const struct plan_line *line = &course->plan->lines[rank];
    const struct action *action = &line->actions[i];

    switch ((enum action_kind)action->kind) {
    case ACTION_F:
        put(course, action, COURSE_F);
        return names_own_messages(course, action, line);
    case ACTION_I:
        put(course, action, COURSE_I);
        return names_own_messages(course, action, line);
    case ACTION_W:
        put(course, action, COURSE_W);
        return names_own_messages(course, action, line);
    case ACTION_B:
        put(course, action, COURSE_B);
        return names_own_messages(course, action, line);
    case ACTION_SEND:
        put_send(course, action, i);
        return true;
    case ACTION_SYNC:
        course->words[course->count++] = course_word(COURSE_SYNC, 0, 0, course->chunk_bits);
        return true;
    case ACTION_STEP:
        return names_no_message(action, line);
    default:
        return true;
    }
}

void course_join(struct course *course, const struct course *other)
{
    for (int32_t rank = 0; rank < course->plan->shape.ranks; rank++) {
        if (other->last[rank] > other->first[rank]) {
            course->first[rank] = course->count + other->first[rank];
            course->last[rank] = course->count + other->last[rank];
        }
    }
    memcpy(course->words + course->count, other->words,
           (size_t)other->count * sizeof(*course->words));
    course->count += other->count;
    for (int32_t end = 0; end < LANE_DIRECTIONS * other->index->stages; end++) {
        course->ends[end].told |= other->ends[end].told;
    }
}

void course_begin_line(struct course *course, int32_t rank)
{
    course->first[rank] = course->count;
}

void course_end_line(struct course *course, int32_t rank)
{
    course->last[rank] = course->count;
}
