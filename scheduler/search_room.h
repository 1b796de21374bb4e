/*
 * search_room -- what ranks hold while an order is being made, and what may still come.
 *
 * Private to search_greedy.c. Landing buffers count as they are planned: with the stashes and
 * gradient sets that they go with.
 */
#ifndef SCHEDULER_SEARCH_ROOM_H
#define SCHEDULER_SEARCH_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/search_space.h"

#ifdef __cplusplus
extern "C" {
#endif

struct search_room {
    const struct search_space *space;
    int32_t *held; /* owns; [type F or I]: stashes, gradient sets of a virtual stage */
    int32_t *peak; /* the same at most; 1 from the begin, as each needs one */
    int64_t *need; /* owns; [rank]: units of all peaks, or of what is held where chunks share */
};

/* False where memory is short; nothing is held then. */
bool search_room_init(struct search_room *room, const struct search_space *space);
void search_room_release(struct search_room *room);

/* Whether the next F or I of `type` can have its buffers now, and the oldest micro-batch of the rank
 * can still be brought to its end behind it. `put` says how many of each type have been. */
bool search_room_admits(const struct search_room *room, const int32_t *put, int32_t type);

/* The next one of `type` has its place in the order. */
void search_room_take(struct search_room *room, int32_t type);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_ROOM_H */
