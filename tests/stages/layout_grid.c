#include "tests/stages/layout_grid.h"

#include <stdlib.h>
#include <string.h>

const char *const layout_schedules[LAYOUT_SCHEDULES] = {
    "gpipe", "1f1b", "interleaved_1f1b", "bfs", "zb_h1", "zb_h2", "izb", "zb_v", "v_half", "v_min"};

/* By schedule: chunks a rank at least and at most; one of izb is zb_h1, and of bfs gpipe. Whether
 * it has whole backwards, which early send splits. */
static const struct {
    int least, most;
    bool splits;
} traits[LAYOUT_SCHEDULES] = {{1, 1, true},  {1, 1, true},  {1, 3, true},  {2, 3, true},
                              {1, 1, false}, {1, 1, false}, {2, 3, false}, {2, 2, false},
                              {2, 2, false}, {2, 2, false}};

static const int levels[FACTORS][LAYOUT_LEVELS_MOST + 1] = {
    [FACTOR_PP] = {1, 2, 3, 4, -1},       [FACTOR_TP] = {1, 2, 4, -1},
    [FACTOR_DP] = {1, 2, 4, -1},          [FACTOR_VIRTUAL_STAGES] = {1, 2, 3, -1},
    [FACTOR_MICRO_BATCH] = {1, 2, 4, -1}, [FACTOR_SCHEDULE] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1},
    [FACTOR_TIED] = {0, 1, -1},           [FACTOR_MASKED] = {0, 1, -1},
    [FACTOR_EARLY_SEND] = {0, 1, -1},
};

static int level_count(int factor)
{
    int count = 0;

    while (levels[factor][count] >= 0) {
        count++;
    }
    return count;
}

/* Not what no run can be: a batch that does not divide, chunks that the schedule has not. Nor twice
 * the same plan. */
static bool is_legal(const struct layout_point *point)
{
    int schedule = point->level[FACTOR_SCHEDULE];
    int chunks = point->level[FACTOR_VIRTUAL_STAGES];

    return point->level[FACTOR_DP] * point->level[FACTOR_MICRO_BATCH] <= LAYOUT_GLOBAL_BATCH &&
           chunks >= traits[schedule].least && chunks <= traits[schedule].most &&
           (traits[schedule].splits || point->level[FACTOR_EARLY_SEND] != 0);
}

bool layout_is_v(const struct layout_point *point)
{
    return traits[point->level[FACTOR_SCHEDULE]].least == 2 &&
           traits[point->level[FACTOR_SCHEDULE]].most == 2;
}

/* Point `number` of the full product. */
static struct layout_point point_at(size_t number)
{
    struct layout_point point;

    for (int factor = 0; factor < FACTORS; factor++) {
        size_t count = (size_t)level_count(factor);

        point.level[factor] = levels[factor][number % count];
        number /= count;
    }
    return point;
}

size_t layout_grid_all(struct layout_point **points_out)
{
    size_t product = 1;
    size_t count = 0;
    struct layout_point *points = NULL;

    for (int factor = 0; factor < FACTORS; factor++) {
        product *= (size_t)level_count(factor);
    }
    points = calloc(product, sizeof(*points));
    for (size_t i = 0; points != NULL && i < product; i++) {
        points[count] = point_at(i);
        count += is_legal(&points[count]) ? 1 : 0;
    }
    *points_out = points;
    return count;
}

/* Pairs that are still to be covered, by factors and values; values are below VALUES. */
#define VALUES 10

struct pairs {
    bool open[FACTORS][VALUES][FACTORS][VALUES];
    int count;
};

static int count_new(const struct pairs *pairs, const struct layout_point *point)
{
    int found = 0;

    for (int a = 0; a < FACTORS; a++) {
        for (int b = a + 1; b < FACTORS; b++) {
            found += pairs->open[a][point->level[a]][b][point->level[b]] ? 1 : 0;
        }
    }
    return found;
}

static void set_pairs(struct pairs *pairs, const struct layout_point *point, bool open)
{
    for (int a = 0; a < FACTORS; a++) {
        for (int b = a + 1; b < FACTORS; b++) {
            bool *pair = &pairs->open[a][point->level[a]][b][point->level[b]];

            pairs->count += (open ? 1 : 0) - (*pair ? 1 : 0);
            *pair = open;
        }
    }
}

size_t layout_grid_cover(const struct layout_point *points, size_t count, bool *chosen_out)
{
    static struct pairs pairs;
    size_t chosen = 0;

    memset(&pairs, 0, sizeof(pairs));
    memset(chosen_out, 0, count * sizeof(*chosen_out));
    for (size_t i = 0; i < count; i++) {
        set_pairs(&pairs, &points[i], true);
    }
    while (pairs.count > 0) {
        size_t best = 0;
        int best_new = 0;

        for (size_t i = 0; i < count; i++) {
            int found = count_new(&pairs, &points[i]);

            if (found > best_new) {
                best = i;
                best_new = found;
            }
        }
        set_pairs(&pairs, &points[best], false);
        chosen_out[best] = true;
        chosen++;
    }
    return chosen;
}
