#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/partition.h"

#define MOST_STAGES 16
#define MOST_LAYERS 12

/* A small generator of whole numbers, so that the cases are the same everywhere. */
static uint64_t state_of_cases;

static int32_t draw(int32_t below)
{
    state_of_cases = state_of_cases * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((state_of_cases >> 33) % (uint64_t)below);
}

struct random_case {
    struct partition_problem problem;
    int32_t rank_of[MOST_STAGES];
    double cost[MOST_LAYERS];
    double speed[MOST_STAGES];
    int64_t boundary[MOST_LAYERS + 1];
    int64_t limit[MOST_STAGES];
    int64_t fixed[MOST_LAYERS];
    int64_t stash[MOST_LAYERS];
    int32_t in_flight[MOST_STAGES];
};

/* What is compared, the most important first: largest load, second largest, bytes, squares. */
struct quality {
    double value[4];
};

static bool better(const struct quality *a, const struct quality *b, int numbers)
{
    int i = 0;

    while (i < numbers - 1 && a->value[i] == b->value[i]) {
        i++;
    }
    return a->value[i] < b->value[i];
}

/* What one virtual stage with layers from `layer` on adds to its rank. */
static void add_stage(const struct random_case *c, int32_t stage, int32_t layer, int32_t count,
                      double *load, int64_t *need)
{
    const struct partition_problem *problem = &c->problem;
    int32_t i;

    for (i = layer; i < layer + count; i++) {
        *load += c->cost[i];
        *need += c->fixed[i] + c->in_flight[stage] * c->stash[i];
    }
    if (stage == 0) {
        *load += problem->first_cost;
        *need += problem->first_bytes;
    }
    if (stage == problem->ranks * problem->virtual_stages - 1) {
        *load += problem->last_cost;
        *need += problem->last_bytes;
    }
}

/* What the boundaries between virtual stages move. */
static double boundaries_of(const struct random_case *c, const int32_t *counts)
{
    int32_t stages = c->problem.ranks * c->problem.virtual_stages;
    double bytes = 0.0;
    int32_t layer = 0;
    int32_t stage;

    for (stage = 0; stage < stages - 1 && c->problem.boundary_bytes != NULL; stage++) {
        layer += counts[stage];
        bytes += (double)c->boundary[layer];
    }
    return bytes;
}

/* Largest, second largest and squares of the loads. */
static void take_load(struct quality *quality, double load)
{
    quality->value[3] += load * load;
    if (load > quality->value[0]) {
        quality->value[1] = quality->value[0];
        quality->value[0] = load;
    } else if (load > quality->value[1]) {
        quality->value[1] = load;
    }
}

/* By the definition: false where the split does not fit. */
static bool judge(const struct random_case *c, const int32_t *counts, struct quality *quality_out)
{
    const struct partition_problem *problem = &c->problem;
    int32_t stages = problem->ranks * problem->virtual_stages;
    int32_t rank;
    bool fits = true;

    *quality_out = (struct quality){.value = {-1.0, -1.0, boundaries_of(c, counts), 0.0}};
    for (rank = 0; rank < problem->ranks; rank++) {
        double load = 0.0;
        int64_t need = 0;
        int32_t layer = 0;
        int32_t stage;

        for (stage = 0; stage < stages; layer += counts[stage], stage++) {
            if (c->rank_of[stage] == rank) {
                add_stage(c, stage, layer, counts[stage], &load, &need);
            }
        }
        load /= problem->speed != NULL ? c->speed[rank] : 1.0;
        fits = fits && (problem->memory_limit == NULL || need <= c->limit[rank]);
        take_load(quality_out, load);
    }
    return fits;
}

/* Tries every split. False where none fits. */
static bool best_of_all(const struct random_case *c, int numbers, struct quality *best_out)
{
    int32_t stages = c->problem.ranks * c->problem.virtual_stages;
    int32_t counts[MOST_STAGES] = {0};
    bool found = false;
    int32_t at = 0;
    int32_t left = c->problem.layers;

    /* Counts as an odometer: all but the last are free, the last takes what is left. */
    for (;;) {
        struct quality quality;

        counts[stages - 1] = left;
        if (judge(c, counts, &quality) && (!found || better(&quality, best_out, numbers))) {
            *best_out = quality;
            found = true;
        }
        counts[stages - 1] = 0;
        for (at = 0; at < stages - 1; at++) {
            if (left > 0) {
                counts[at]++;
                left--;
                break;
            }
            left += counts[at];
            counts[at] = 0;
        }
        if (at == stages - 1) {
            return found;
        }
    }
}

static void place(struct random_case *c, bool ends)
{
    int32_t p = c->problem.ranks;
    int32_t stage;

    for (stage = 0; stage < p * c->problem.virtual_stages; stage++) {
        c->rank_of[stage] = ends && stage >= p ? 2 * p - 1 - stage : stage % p;
    }
    c->problem.rank_of = c->rank_of;
}

static void fill_case(struct random_case *c, int32_t ranks, int32_t v, bool ends, int32_t layers)
{
    int32_t i;

    memset(c, 0, sizeof(*c));
    c->problem = (struct partition_problem){.ranks = ranks,
                                            .virtual_stages = v,
                                            .layers = layers,
                                            .cost = c->cost,
                                            .first_cost = draw(3) == 0 ? draw(12) : 0.0,
                                            .last_cost = draw(3) == 0 ? draw(12) : 0.0};
    place(c, ends);
    for (i = 0; i < layers; i++) {
        c->cost[i] = draw(2) == 0 ? draw(10) : 1 + draw(3);
        c->fixed[i] = draw(5);
        c->stash[i] = draw(4);
    }
    for (i = 0; i <= layers; i++) {
        c->boundary[i] = draw(4);
    }
    for (i = 0; i < ranks; i++) {
        c->speed[i] = 0.5 * (1 << draw(3)); /* quotients and their squares compare exactly */
        c->limit[i] = 4 + draw(30);
    }
    for (i = 0; i < ranks * v; i++) {
        c->in_flight[i] = 1 + draw(3);
    }
    if (draw(3) == 0) {
        c->problem.speed = c->speed;
    }
    if (draw(3) == 0) {
        c->problem.memory_limit = c->limit;
        c->problem.fixed_bytes = c->fixed;
        c->problem.stash_bytes = c->stash;
        c->problem.in_flight = c->in_flight;
        c->problem.first_bytes = draw(4);
        c->problem.last_bytes = draw(4);
    }
}

/* Whether it was found feasible. */
static bool check_against_all(const struct random_case *c, int numbers)
{
    int32_t counts[MOST_STAGES];
    struct quality expected = {.value = {0.0}};
    struct quality found;
    bool feasible = best_of_all(c, numbers, &expected);
    int saved = fixture_mute();
    enum status status = partition_make(&c->problem, counts);
    int i;

    fixture_unmute(saved);
    assert_int_equal(status, feasible ? STATUS_OK : STATUS_ERR_REFUSED);
    if (!feasible) {
        assert_non_null(strstr(status_last()->message, "its limit is"));
        return false;
    }
    assert_true(judge(c, counts, &found));
    for (i = 0; i < numbers; i++) {
        if (found.value[i] != expected.value[i]) {
            fail_msg("number %d is %g, the best of all splits has %g", i, found.value[i],
                     expected.value[i]);
        }
    }
    return true;
}

static void one_chunk_a_rank_is_the_best_of_all_splits(void **state)
{
    int refused = 0;
    int32_t n;

    (void)state;
    state_of_cases = 1;
    for (n = 0; n < 4000; n++) {
        struct random_case c;

        fill_case(&c, 1 + draw(5), 1, false, draw(9));
        if (draw(2) == 0) {
            c.problem.boundary_bytes = c.boundary;
        }
        refused += check_against_all(&c, 4) ? 0 : 1;
    }
    assert_in_range(refused, 40, 1500);
}

static void a_v_has_the_least_two_largest_loads_of_all_splits(void **state)
{
    int refused = 0;
    int32_t n;

    (void)state;
    state_of_cases = 2;
    for (n = 0; n < 3000; n++) {
        struct random_case c;

        fill_case(&c, 1 + draw(3), 2, true, draw(10));
        refused += check_against_all(&c, 2) ? 0 : 1;
    }
    assert_in_range(refused, 40, 1200);
}

/* No promise of the best, but never far from it, and limits are kept. Half of the cases have none. */
static void a_loop_is_mostly_the_best_and_keeps_limits(void **state)
{
    int32_t best = 0;
    int32_t limited = 0;
    int32_t n;

    (void)state;
    state_of_cases = 3;
    for (n = 0; n < 1000; n++) {
        int32_t counts[MOST_STAGES];
        struct quality expected = {.value = {0.0}};
        struct quality found;
        struct random_case c;
        int saved = fixture_mute();
        enum status status;

        fill_case(&c, 2 + draw(2), 2, false, 4 + draw(6));
        status = partition_make(&c.problem, counts);
        fixture_unmute(saved);
        if (c.problem.memory_limit != NULL) {
            assert_true(status == STATUS_OK || status == STATUS_ERR_REFUSED);
            assert_true(status == STATUS_ERR_REFUSED || judge(&c, counts, &found));
            limited += status == STATUS_OK ? 1 : 0;
            continue;
        }
        assert_int_equal(status, STATUS_OK);
        assert_true(best_of_all(&c, 1, &expected));
        assert_true(judge(&c, counts, &found));
        assert_true(found.value[0] >= expected.value[0]);
        assert_true(found.value[0] <= 1.5 * expected.value[0]);
        best += found.value[0] == expected.value[0] ? 1 : 0;
    }
    assert_in_range(limited, 100, 340);
    assert_in_range(best, 520, 1000);
}

static void expect_split(const double *cost, int32_t layers, int32_t ranks, const int32_t *expected)
{
    struct partition_problem problem = {
        .ranks = ranks, .virtual_stages = 1, .layers = layers, .cost = cost};
    int32_t counts[MOST_STAGES];
    int32_t i;

    assert_int_equal(partition_make(&problem, counts), STATUS_OK);
    for (i = 0; i < ranks; i++) {
        assert_int_equal(counts[i], expected[i]);
    }
}

/* Where "largest minus smallest" goes wrong: [1,5,2,2] has 5 and not 6, [2,9,4,5] has 9, not 11. */
static void the_largest_load_counts_and_not_the_difference(void **state)
{
    static const double first[] = {1.0, 5.0, 2.0, 2.0};
    static const double second[] = {2.0, 9.0, 4.0, 5.0};
    static const int32_t first_split[] = {1, 1, 2};
    static const int32_t second_split[] = {1, 1, 2};

    (void)state;
    expect_split(first, 4, 3, first_split);
    expect_split(second, 4, 3, second_split);
}

/* Nine tenths add up to different sums in different orders: they count as equal all the same. */
static void equal_layers_are_split_evenly_the_last_ones_fewer(void **state)
{
    static const double tenths[12] = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
    static const int32_t three[] = {4, 4, 4};
    static const int32_t five[] = {3, 3, 2, 2, 2};
    static const int32_t seven[] = {2, 2, 2, 2, 2, 1, 1};

    (void)state;
    expect_split(tenths, 12, 3, three);
    expect_split(tenths, 12, 5, five);
    expect_split(tenths, 12, 7, seven);
}

static void more_ranks_than_layers_leave_some_empty(void **state)
{
    static const double cost[] = {3.0, 2.0};
    struct partition_problem problem = {.ranks = 2, .virtual_stages = 2, .layers = 2, .cost = cost};
    static const int32_t rank_of[] = {0, 1, 1, 0};
    static const int32_t split[] = {1, 1, 0, 0};
    int32_t counts[4];

    (void)state;
    expect_split(cost, 2, 4, split);
    problem.rank_of = rank_of;
    problem.last_cost = 2.0;
    assert_int_equal(partition_make(&problem, counts), STATUS_OK);
    /* Rank 0 has the head, 2, and one of the layers; 3 + 2 | 2 or 2 + 2 | 3: the latter is not
     * contiguous from the left alone, but from both ends. */
    assert_int_equal(counts[0] + counts[3], 1);
    assert_int_equal(counts[1] + counts[2], 1);
    assert_int_equal(counts[3], 1);
}

/* Four layers a rank are 2 + 2, not 4 + 0; a head as long as two, or one, has none beside it, or one; three layers are
 * 2 + 1. */
static void chunks_of_a_rank_on_a_v_are_alike(void **state)
{
    static const double cost[] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    static const int32_t rank_of[] = {0, 1, 1, 0};
    static const int32_t rank_of_three[] = {0, 1, 2, 2, 1, 0};
    struct partition_problem problem = {
        .ranks = 2, .virtual_stages = 2, .layers = 8, .cost = cost, .rank_of = rank_of};
    int32_t counts[6];

    (void)state;
    assert_int_equal(partition_make(&problem, counts), STATUS_OK);
    assert_true(counts[0] == 2 && counts[1] == 2 && counts[2] == 2 && counts[3] == 2);
    problem.layers = 6;
    problem.last_cost = 2.0;
    assert_int_equal(partition_make(&problem, counts), STATUS_OK);
    assert_true(counts[0] == 2 && counts[1] == 2 && counts[2] == 2 && counts[3] == 0);
    problem.layers = 7;
    problem.last_cost = 1.0;
    assert_int_equal(partition_make(&problem, counts), STATUS_OK);
    assert_true(counts[0] == 2 && counts[1] == 2 && counts[2] == 2 && counts[3] == 1);
    problem = (struct partition_problem){
        .ranks = 3, .virtual_stages = 2, .layers = 9, .cost = cost, .rank_of = rank_of_three};
    assert_int_equal(partition_make(&problem, counts), STATUS_OK);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(counts[rank] + counts[5 - rank], 3);
        assert_in_range(counts[rank], 1, 2);
    }
}

static void what_fits_nowhere_is_refused_with_need_and_limit(void **state)
{
    static const double cost[] = {1.0, 1.0, 1.0};
    static const int64_t fixed[] = {100, 100, 100};
    static const int64_t stash[] = {10, 10, 10};
    static const int32_t in_flight[] = {2, 1};
    static const int64_t limit[] = {150, 205};
    struct partition_problem problem = {.ranks = 2,
                                        .virtual_stages = 1,
                                        .layers = 3,
                                        .cost = cost,
                                        .memory_limit = limit,
                                        .fixed_bytes = fixed,
                                        .stash_bytes = stash,
                                        .in_flight = in_flight};
    int32_t counts[2];
    int saved = fixture_mute();

    (void)state;
    /* One and two layers: 120 of 150 and 220 of 205, 15 too many; two and one: 240 of 150. */
    assert_int_equal(partition_make(&problem, counts), STATUS_ERR_REFUSED);
    fixture_unmute(saved);
    assert_non_null(strstr(status_last()->message, "rank 1 needs 220 bytes, its limit is 205"));
}

static void costs_that_make_no_sense_are_refused(void **state)
{
    double cost[] = {1.0, -1.0};
    double speed[] = {1.0, 0.0};
    struct partition_problem problem = {.ranks = 2, .virtual_stages = 1, .layers = 2, .cost = cost};
    int32_t counts[2];
    int saved = fixture_mute();

    (void)state;
    assert_int_equal(partition_make(&problem, counts), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "layer 1 is -1"));
    cost[1] = 1.0;
    problem.speed = speed;
    assert_int_equal(partition_make(&problem, counts), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "speed of rank 1 is 0"));
    fixture_unmute(saved);
}

/* Wants 1, 0, 0, 5 and counts how often it is asked. */
struct wish {
    int32_t asked;
};

static enum status far_from_wish(void *context, const int32_t *counts, double *value_out)
{
    static const int32_t wanted[] = {1, 0, 0, 5};
    struct wish *wish = context;
    int32_t i;

    wish->asked++;
    *value_out = 0.0;
    for (i = 0; i < 4; i++) {
        *value_out += abs(counts[i] - wanted[i]);
    }
    return STATUS_OK;
}

static void polishing_follows_the_callers_evaluation(void **state)
{
    static const double cost[] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    struct partition_problem problem = {.ranks = 2, .virtual_stages = 2, .layers = 6, .cost = cost};
    int32_t counts[] = {2, 2, 1, 1};
    struct wish wish = {.asked = 0};
    double value = -1.0;

    (void)state;
    assert_int_equal(partition_polish(&problem, far_from_wish, &wish, 500, counts), STATUS_OK);
    assert_int_equal(far_from_wish(&wish, counts, &value), STATUS_OK);
    assert_true(value == 0.0);
    wish.asked = 0;
    counts[0] = 2;
    counts[3] = 4;
    assert_int_equal(partition_polish(&problem, far_from_wish, &wish, 3, counts), STATUS_OK);
    assert_int_equal(wish.asked, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_chunk_a_rank_is_the_best_of_all_splits),
        cmocka_unit_test(a_v_has_the_least_two_largest_loads_of_all_splits),
        cmocka_unit_test(a_loop_is_mostly_the_best_and_keeps_limits),
        cmocka_unit_test(the_largest_load_counts_and_not_the_difference),
        cmocka_unit_test(equal_layers_are_split_evenly_the_last_ones_fewer),
        cmocka_unit_test(more_ranks_than_layers_leave_some_empty),
        cmocka_unit_test(chunks_of_a_rank_on_a_v_are_alike),
        cmocka_unit_test(what_fits_nowhere_is_refused_with_need_and_limit),
        cmocka_unit_test(costs_that_make_no_sense_are_refused),
        cmocka_unit_test(polishing_follows_the_callers_evaluation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
