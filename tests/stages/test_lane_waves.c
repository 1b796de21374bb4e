/* Waves of lanes: every pair once, and no rank twice in a wave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stages/lane_waves.h"

#define RANKS_MOST  9
#define STAGES_MOST 64

/* Which ranks follow one another in the placement, by a table of its own. */
static int32_t count_neighbours(const int32_t *rank_of, int32_t stages,
                                int32_t joined[RANKS_MOST][RANKS_MOST])
{
    int32_t pairs = 0;

    for (int32_t i = 0; i < RANKS_MOST * RANKS_MOST; i++) {
        joined[i / RANKS_MOST][i % RANKS_MOST] = 0;
    }
    for (int32_t stage = 1; stage < stages; stage++) {
        int32_t a = rank_of[stage - 1];
        int32_t b = rank_of[stage];

        pairs += a != b && joined[a][b] == 0;
        joined[a][b] = 1;
        joined[b][a] = 1;
    }
    return pairs;
}

static int32_t check(const int32_t *rank_of, int32_t stages)
{
    int32_t joined[RANKS_MOST][RANKS_MOST];
    int32_t busy[STAGES_MOST][RANKS_MOST] = {{0}};
    int32_t pairs = count_neighbours(rank_of, stages, joined);
    struct lane_waves waves;
    int32_t count;

    assert_int_equal(lane_waves_init(&waves, rank_of, stages), STATUS_OK);
    assert_int_equal(waves.pair_count, pairs);
    for (int32_t i = 0; i < waves.pair_count; i++) {
        const struct lane_pair *pair = &waves.pairs[i];

        assert_true(pair->low < pair->high && joined[pair->low][pair->high] == 1);
        joined[pair->low][pair->high] = 0; /* not a second time */
        assert_in_range(pair->wave, 0, waves.count - 1);
        assert_int_equal(busy[pair->wave][pair->low]++, 0);
        assert_int_equal(busy[pair->wave][pair->high]++, 0);
        assert_int_equal(lane_waves_of(&waves, pair->low, pair->high), pair->wave);
        assert_int_equal(lane_waves_of(&waves, pair->high, pair->low), pair->wave);
    }
    count = waves.count;
    lane_waves_release(&waves);
    lane_waves_release(&waves);
    return count;
}

static void a_chain_takes_two_waves_and_two_ranks_one(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= RANKS_MOST; ranks++) {
        int32_t rank_of[RANKS_MOST];

        for (int32_t stage = 0; stage < ranks; stage++) {
            rank_of[stage] = stage;
        }
        assert_int_equal(check(rank_of, ranks), ranks == 1 ? 0 : ranks == 2 ? 1 : 2);
    }
}

/* Chunks go around: 0 1 2 0 1 2 ... */
static void a_ring_takes_two_waves_or_three_where_it_is_odd(void **state)
{
    (void)state;
    for (int32_t ranks = 2; ranks <= RANKS_MOST; ranks++) {
        int32_t rank_of[3 * RANKS_MOST];

        for (int32_t stage = 0; stage < 3 * ranks; stage++) {
            rank_of[stage] = stage % ranks;
        }
        assert_int_equal(check(rank_of, 3 * ranks), ranks == 2 ? 1 : 2 + ranks % 2);
    }
}

/* 0 1 2 3 3 2 1 0: there and back over the same pairs. */
static void a_v_takes_as_many_as_a_chain(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= RANKS_MOST; ranks++) {
        int32_t rank_of[2 * RANKS_MOST];

        for (int32_t stage = 0; stage < 2 * ranks; stage++) {
            rank_of[stage] = stage < ranks ? stage : 2 * ranks - 1 - stage;
        }
        assert_int_equal(check(rank_of, 2 * ranks), ranks == 1 ? 0 : ranks == 2 ? 1 : 2);
    }
}

/* Any placement, and each one twice: the waves follow from it alone. */
static void random_placements_are_covered_alike_each_time(void **state)
{
    uint32_t seed = 7;

    (void)state;
    for (int turn = 0; turn < 500; turn++) {
        int32_t rank_of[STAGES_MOST];
        int32_t stages = 0;

        for (; stages < STAGES_MOST / 2 + turn % (STAGES_MOST / 2); stages++) {
            seed = seed * 1664525U + 1013904223U;
            rank_of[stages] = (int32_t)((seed >> 16) % RANKS_MOST);
        }
        assert_int_equal(check(rank_of, stages), check(rank_of, stages));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_takes_two_waves_and_two_ranks_one),
        cmocka_unit_test(a_ring_takes_two_waves_or_three_where_it_is_odd),
        cmocka_unit_test(a_v_takes_as_many_as_a_chain),
        cmocka_unit_test(random_placements_are_covered_alike_each_time),
    };

    return cmocka_run_group_tests_name("lane_waves", tests, NULL, NULL);
}
