#include "scheduler/search_room.h"

#include <stdlib.h>
#include <string.h>

/* Units of one more stash (F) or gradient set (I), with its landing buffer. */
static int64_t unit_of(const struct search_space *space, int32_t number)
{
    const struct search_type *type = &space->type[number];
    int64_t unit = type->kind == SEARCH_F ? search_stash(space, type->stage)
                                          : search_gradient(space, type->stage);

    if (!space->memory.together && type->producer != SEARCH_NONE) {
        unit += search_landing(space, type->stage);
    }
    return unit;
}

/* Landing buffers of a rank that are there whatever is in flight. */
static int64_t least_landing(const struct search_space *space, int32_t rank)
{
    int64_t units = 0;
    int32_t i;

    for (i = 0; i < space->chunks; i++) {
        int32_t stage = space->stage_of[rank * space->chunks + i];
        int kind;

        for (kind = SEARCH_F; kind <= SEARCH_I; kind++) {
            if (space->type[search_type_of(stage, (enum search_kind)kind)].lane_in != SEARCH_NONE) {
                units += search_landing(space, stage) * space->shape.lane_depth;
            }
        }
    }
    return units;
}

bool search_room_init(struct search_room *room, const struct search_space *space)
{
    size_t types = (size_t)space->stages * SEARCH_KINDS;
    int32_t type;
    int32_t rank;

    *room = (struct search_room){.space = space};
    room->held = calloc(2 * types, sizeof(*room->held));
    room->need = calloc((size_t)space->ranks, sizeof(*room->need));
    if (room->held == NULL || room->need == NULL) {
        search_room_release(room);
        return false;
    }
    room->peak = room->held + types;
    for (rank = 0; rank < space->ranks; rank++) {
        room->need[rank] = search_fixed(space, rank) + least_landing(space, rank);
    }
    for (type = 0; type < space->stages * SEARCH_KINDS; type++) {
        if (space->type[type].kind != SEARCH_W && !space->memory.together) {
            room->peak[type] = 1;
            room->need[space->type[type].rank] += unit_of(space, type);
        }
    }
    return true;
}

void search_room_release(struct search_room *room)
{
    free(room->held);
    free(room->need);
    memset(room, 0, sizeof(*room));
}

/* Where chunks share: what is held once every W that can be done has been, all that the oldest
 * micro-batch still needs is there, and the F of `next` has been. */
static int64_t need_of_oldest(const struct search_room *room, const int32_t *put, int32_t next)
{
    const struct search_space *space = room->space;
    int32_t rank = space->type[next].rank;
    int64_t need = room->need[rank] + unit_of(space, next);
    int64_t largest = 0;
    int32_t oldest = INT32_MAX;
    int32_t i;

    for (i = 0; i < space->chunks; i++) {
        int32_t w = search_type_of(space->stage_of[rank * space->chunks + i], SEARCH_W);

        oldest = put[w] < oldest ? put[w] : oldest;
    }
    for (i = 0; i < space->chunks; i++) {
        int32_t f = search_type_of(space->stage_of[rank * space->chunks + i], SEARCH_F);
        int64_t gradient = unit_of(space, f + SEARCH_I);

        need -= (put[f + SEARCH_I] - put[f + SEARCH_W]) * (unit_of(space, f) + gradient);
        need += put[f] + (f == next ? 1 : 0) <= oldest ? unit_of(space, f) : 0;
        largest = gradient > largest ? gradient : largest;
    }
    return need + largest;
}

bool search_room_admits(const struct search_room *room, const int32_t *put, int32_t type)
{
    const struct search_space *space = room->space;
    int32_t rank = space->type[type].rank;
    int64_t unit = unit_of(space, type);
    int64_t limit;

    if (space->memory.limit == NULL) {
        return true;
    }
    limit = space->memory.limit[rank];
    if (!space->memory.together) {
        return room->held[type] < room->peak[type] || room->need[rank] + unit <= limit;
    }
    if (room->need[rank] + unit > limit) {
        return false;
    }
    return space->type[type].kind != SEARCH_F || need_of_oldest(room, put, type) <= limit;
}

void search_room_take(struct search_room *room, int32_t type)
{
    const struct search_space *space = room->space;
    enum search_kind kind = space->type[type].kind;
    int32_t rank = space->type[type].rank;

    if (kind == SEARCH_W) {
        room->held[type - SEARCH_W + SEARCH_F]--;
        room->held[type - SEARCH_W + SEARCH_I]--;
        if (space->memory.together) {
            room->need[rank] -= unit_of(space, type - SEARCH_W + SEARCH_F) +
                                unit_of(space, type - SEARCH_W + SEARCH_I);
        }
        return;
    }
    room->held[type]++;
    if (space->memory.together) {
        room->need[rank] += unit_of(space, type);
    } else if (room->held[type] > room->peak[type]) {
        room->peak[type] = room->held[type];
        room->need[rank] += unit_of(space, type);
    }
}
