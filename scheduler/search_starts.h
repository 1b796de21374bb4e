/*
 * search_starts -- the orders that a search begins from: every schedule with a name, and every rule.
 *
 * Private to search*.c.
 */
#ifndef SCHEDULER_SEARCH_STARTS_H
#define SCHEDULER_SEARCH_STARTS_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/search_order.h"
#include "scheduler/search_space.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SEARCH_STARTS_MOST 6
#define SEARCH_ORIGIN      96

struct search_start {
    int32_t space; /* number of it */
    double makespan;
    struct search_order order; /* owns */
    char origin[SEARCH_ORIGIN];
};

/* A schedule with a name, lowered as such: its lanes may be deeper than those of a file. */
struct search_named {
    int32_t space;
    double makespan; /* SEARCH_NEVER: none fits */
    int64_t need;    /* units of its fullest rank */
    struct plan_shape shape;
};

struct search_starts {
    const struct search_space *spaces; /* borrows */
    int32_t space_count;
    struct search_start start[SEARCH_STARTS_MOST]; /* the best, the shortest first */
    int32_t count;
    struct search_named named; /* the best of its kind */
    int64_t least_excess; /* units by which the rank that is fullest exceeds its limit in the plan
                                  that comes nearest to fitting; INT64_MAX: none was looked at */
    int64_t need;         /* of that rank there */
    int32_t fullest;      /* that rank */
    int64_t evaluations;  /* orders that were timed */
};

/* Times all schedules that have an order of each space's chunks and placement, then the rules, at most
 * `evaluations` orders. */
enum status search_starts_make(struct search_starts *starts, const struct search_space *spaces,
                               int32_t count, int64_t evaluations);

void search_starts_release(struct search_starts *starts);

/* The name of a schedule with what it was given, "1f1b, 2 more in flight". */
void search_named_print(const struct plan_shape *shape, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_STARTS_H */
