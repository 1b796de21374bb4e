/*
 * search_clock -- how long an order takes, and whether it is one: in microseconds, without
 * allocating.
 *
 * The same rules, and to the bit the same numbers, as lowering the order (schedule file), proving and
 * simulating it: an order has a time exactly when the lowered plan is valid, and it is the makespan of
 * plan_simulate() at the same costs. Landing buffers and out buffers bind as lowering numbers them;
 * costs.unbounded is not for a search.
 */
#ifndef SCHEDULER_SEARCH_CLOCK_H
#define SCHEDULER_SEARCH_CLOCK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/search_order.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is said of an order that deadlocks, mixes up messages, or needs too much memory. */
#define SEARCH_NEVER INFINITY

/* The last message that went into a lane. */
struct search_lane {
    double end;      /* of what made it */
    int64_t release; /* number of the op that must end before it leaves, or SEARCH_NONE */
    int32_t sent;
    int32_t received;
};

/* What a chunk of a rank holds, or holds at most. */
struct search_held {
    int32_t stashes;
    int32_t gradients;
    int32_t local_f; /* landing buffers written by a chunk of the same rank */
    int32_t local_b;
};

/* What is known of a rank's line, and how far the clock is in it. */
struct search_line {
    bool touched;    /* nothing is known */
    bool legal;      /* each op stands behind those of its rank that it needs */
    int64_t need;    /* units of memory */
    int32_t cursor;  /* place of the next op */
    int64_t awaited; /* number of the op that the next one waits for, or SEARCH_NONE */
    double ready;    /* end of the op before and of its SEND */
    double rest;     /* time of the ops to come */
    double work;     /* time of all */
};

struct search_clock {
    const struct search_space *space; /* borrows */
    /* By op number, of the last run with a time: */
    double *end;      /* owns */
    int64_t *because; /* number of the op that it had to wait for, or SEARCH_NONE */
    int32_t *place;   /* in the line of its rank */
    /* By rank: */
    double *time;  /* end of its last op */
    int64_t *last; /* number of that op */
    /* Private to search_clock.c: */
    struct search_line *lines; /* by rank */
    int32_t *sequence;         /* by op number; of its message in its lane */
    struct search_held *held;  /* by virtual stage */
    struct search_held *peak;
    int32_t *next; /* by type: while a line is read, micro-batches of it so far */
    struct search_lane *lanes;
    double cutoff;
    void *memory; /* owns all of the above */
};

enum status search_clock_init(struct search_clock *clock, const struct search_space *space);
void search_clock_release(struct search_clock *clock);

/* SEARCH_NEVER where there is no such plan. */
double search_clock_run(struct search_clock *clock, const struct search_order *order);

/* The same for an order of which only the lines said by search_clock_touch() differ from the one that
 * ran before; SEARCH_NEVER also where it is sure that it takes longer than `cutoff`. */
double search_clock_rerun(struct search_clock *clock, const struct search_order *order,
                          double cutoff);
void search_clock_touch(struct search_clock *clock, int32_t rank);

/* Units of memory that `rank` needs; 0 where none are said. For an order that has just been run. */
int64_t search_clock_need(const struct search_clock *clock, int32_t rank);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_CLOCK_H */
