/*
 * layout_grid -- every legal layout of a small model, and a set of them in which each pair of
 * settings that can stand together does.
 */
#ifndef TESTS_STAGES_LAYOUT_GRID_H
#define TESTS_STAGES_LAYOUT_GRID_H

#include <stdbool.h>
#include <stddef.h>

enum layout_factor {
    FACTOR_PP,
    FACTOR_TP,
    FACTOR_DP,
    FACTOR_VIRTUAL_STAGES,
    FACTOR_MICRO_BATCH,
    FACTOR_SCHEDULE, /* index in layout_schedules */
    FACTOR_TIED,
    FACTOR_MASKED,
    FACTOR_EARLY_SEND,
    FACTORS
};

#define LAYOUT_GLOBAL_BATCH 8
#define LAYOUT_LEVELS_MOST  10

#define LAYOUT_SCHEDULES 10

extern const char *const layout_schedules[LAYOUT_SCHEDULES];

struct layout_point {
    int level[FACTORS]; /* the values themselves: pp 4, tp 2, … */
};

/* Whether the first and the last stage are on one rank, so that no copy of a tied embedding is. */
bool layout_is_v(const struct layout_point *point);

/* All legal layouts, in a fixed order; the caller frees *points_out. */
size_t layout_grid_all(struct layout_point **points_out);

/* Some of `points` that cover every pair of values that occurs in any of them: greedy, so not the
 * smallest set, but always the same one. Marks them in chosen_out. */
size_t layout_grid_cover(const struct layout_point *points, size_t count, bool *chosen_out);

#endif /* TESTS_STAGES_LAYOUT_GRID_H */
