#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/search.h"
#include "search_fixture.h"

/* Small enough that every order of every rank can be looked at. Landing buffers are never full here:
 * they are as many as the micro-batches, or more. */
#define MOST_RANKS  3
#define MOST_STAGES 4
#define MOST_OPS    18
#define MOST_LINES  4000

enum {
    F,
    I,
    W
};

/* An op of a line: kind, virtual stage, micro-batch. */
struct op {
    int8_t kind;
    int8_t stage;
    int8_t microbatch;
};

struct line {
    struct op ops[MOST_OPS];
    int32_t count;
};

struct small {
    int32_t ranks;
    int32_t microbatches;
    int32_t chunks;
    int32_t rank_of[MOST_STAGES];
    struct fixture_costs costs;
    int64_t limit[MOST_RANKS]; /* stashes of chunks, 0: none */
    struct line *lines[MOST_RANKS];
    int32_t line_count[MOST_RANKS];
    int32_t done[MOST_STAGES][3]; /* while lines are listed */
};

/* Ways of one micro-batch on a rank: forwards up, backwards down. */
static bool may_follow(const struct small *small, int32_t rank, int32_t kind, int32_t stage)
{
    int32_t stages = small->ranks * small->chunks;
    int32_t next = small->done[stage][kind];
    int32_t other;

    if (next == small->microbatches || (kind != F && small->done[stage][kind - 1] <= next)) {
        return false;
    }
    for (other = 0; other < stages; other++) {
        if (small->rank_of[other] == rank &&
            ((kind == F && other < stage) || (kind == I && other > stage)) &&
            small->done[other][kind] <= next) {
            return false;
        }
    }
    return true;
}

static int64_t held_by(const struct small *small, int32_t rank)
{
    int64_t held = 0;
    int32_t stage;

    for (stage = 0; stage < small->ranks * small->chunks; stage++) {
        if (small->rank_of[stage] == rank) {
            held += small->done[stage][F] - small->done[stage][W];
        }
    }
    return held;
}

/* All orders of a rank that begin with `line`. */
static void list_lines(struct small *small, int32_t rank, struct line *line)
{
    int32_t kind;
    int32_t stage;

    if (line->count == 3 * small->chunks * small->microbatches) {
        assert_true(small->line_count[rank] < MOST_LINES);
        small->lines[rank][small->line_count[rank]++] = *line;
        return;
    }
    for (stage = 0; stage < small->ranks * small->chunks; stage++) {
        for (kind = F; kind <= W; kind++) {
            if (small->rank_of[stage] != rank || !may_follow(small, rank, kind, stage)) {
                continue;
            }
            line->ops[line->count++] = (struct op){.kind = (int8_t)kind,
                                                   .stage = (int8_t)stage,
                                                   .microbatch = (int8_t)small->done[stage][kind]};
            small->done[stage][kind]++;
            if (small->limit[0] == 0 || held_by(small, rank) <= small->limit[rank]) {
                list_lines(small, rank, line);
            }
            small->done[stage][kind]--;
            line->count--;
        }
    }
}

static double cost_of(const struct small *small, struct op op)
{
    const struct fixture_costs *costs = &small->costs;

    return op.kind == F   ? costs->F[op.stage]
           : op.kind == I ? costs->I[op.stage]
                          : costs->W[op.stage];
}

/* Ends of ops, -1: not yet. */
struct ends {
    double at[MOST_STAGES][3][3];
};

/* When the input of `op` is there; -1: not known yet. */
static double input_of(const struct small *small, const struct ends *ends, struct op op)
{
    int32_t stages = small->ranks * small->chunks;
    int32_t from = op.kind == F ? op.stage - 1 : op.kind == I ? op.stage + 1 : -1;
    double end;

    if (from < 0 || from >= stages) {
        return 0.0;
    }
    end = ends->at[from][(int)op.kind][(int)op.microbatch];
    if (end < 0.0 || small->rank_of[from] == small->rank_of[op.stage]) {
        return end;
    }
    return end + small->costs.costs.message;
}

/* As far as the rank comes; whether it came on. */
static bool advance(const struct small *small, struct ends *ends, const struct line *line,
                    int32_t *at, double *time)
{
    int32_t begin = *at;

    while (*at < line->count) {
        struct op op = line->ops[*at];
        double input = input_of(small, ends, op);

        if (input < 0.0) {
            break;
        }
        *time = (input > *time ? input : *time) + cost_of(small, op);
        ends->at[op.stage][(int)op.kind][(int)op.microbatch] = *time;
        ++*at;
    }
    return *at > begin;
}

/* -1: a deadlock. */
static double makespan_of(const struct small *small, const struct line *const *lines)
{
    int32_t at[MOST_RANKS] = {0};
    double time[MOST_RANKS] = {0.0};
    double makespan = 0.0;
    struct ends ends;
    bool moved = true;
    int32_t rank;
    int32_t left = 0;
    int32_t i;

    for (i = 0; i < MOST_STAGES * 9; i++) {
        ends.at[i / 9][i / 3 % 3][i % 3] = -1.0;
    }
    while (moved) {
        moved = false;
        left = 0;
        for (rank = 0; rank < small->ranks; rank++) {
            moved = advance(small, &ends, lines[rank], &at[rank], &time[rank]) || moved;
            left += lines[rank]->count - at[rank];
        }
    }
    for (rank = 0; rank < small->ranks; rank++) {
        makespan = time[rank] > makespan ? time[rank] : makespan;
    }
    return left > 0 ? -1.0 : makespan;
}

/* Of all orders of all ranks; -1: none fits. */
static double best_of_all(struct small *small)
{
    int32_t chosen[MOST_RANKS] = {0};
    const struct line *lines[MOST_RANKS];
    double best = -1.0;
    int32_t rank;

    for (rank = 0; rank < small->ranks; rank++) {
        struct line line = {.count = 0};

        small->line_count[rank] = 0;
        list_lines(small, rank, &line);
        if (small->line_count[rank] == 0) {
            return -1.0;
        }
    }
    for (;;) {
        double makespan;

        for (rank = 0; rank < small->ranks; rank++) {
            lines[rank] = &small->lines[rank][chosen[rank]];
        }
        makespan = makespan_of(small, lines);
        if (makespan >= 0.0 && (best < 0.0 || makespan < best)) {
            best = makespan;
        }
        for (rank = 0; rank < small->ranks && ++chosen[rank] == small->line_count[rank]; rank++) {
            chosen[rank] = 0;
        }
        if (rank == small->ranks) {
            return best;
        }
    }
}

static void fill_small(struct small *small, int32_t ranks, int32_t microbatches, int32_t chunks,
                       struct fixture_draw *draw)
{
    int32_t stages = ranks * chunks;
    bool limited = fixture_draw(draw, 2) == 0;
    int32_t i;

    small->ranks = ranks;
    small->microbatches = microbatches;
    small->chunks = chunks;
    for (i = 0; i < stages; i++) {
        small->rank_of[i] = i % ranks;
        small->costs.F[i] = 1 + fixture_draw(draw, 9);
        small->costs.I[i] = 1 + fixture_draw(draw, 9);
        small->costs.W[i] = fixture_draw(draw, 9);
    }
    if (chunks == 2 && fixture_draw(draw, 2) == 0) {
        fixture_place_v(ranks, small->rank_of);
    }
    for (i = 0; i < ranks; i++) {
        small->limit[i] = limited ? chunks + fixture_draw(draw, 3) : 0;
    }
    small->costs.costs = (struct plan_costs){.F = small->costs.F,
                                             .I = small->costs.I,
                                             .W = small->costs.W,
                                             .message = fixture_draw(draw, 3)};
}

static void check_small(struct small *small)
{
    static const int64_t one[MOST_STAGES] = {1, 1, 1, 1};
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, small->ranks, small->microbatches, true);
    struct search_variant variant = {.rank_of = small->rank_of,
                                     .costs = small->costs.costs,
                                     .memory = {.limit = small->limit[0] > 0 ? small->limit : NULL,
                                                .stash = one,
                                                .together = true}};
    struct search_options options = {.seed = 1, .evaluations = 6000};
    struct search_result result;
    double expected = best_of_all(small);
    int saved;
    enum status status;

    shape.virtual_stages = small->chunks;
    variant.shape = shape;
    saved = fixture_mute();
    status = search_run(&variant, 1, &options, &result);
    fixture_unmute(saved);
    assert_int_equal(status, expected >= 0.0 ? STATUS_OK : STATUS_ERR_REFUSED);
    if (status == STATUS_OK) {
        if (result.makespan != expected) {
            fail_msg("%d ranks, %d micro-batches, %d chunks: found %g (%s), the best is %g",
                     small->ranks, small->microbatches, small->chunks, result.makespan,
                     result.origin, expected);
        }
        assert_true(result.bound <= expected);
        search_result_release(&result);
    }
}

static void check_smalls(int32_t ranks, int32_t microbatches, int32_t chunks, int32_t cases)
{
    struct fixture_draw draw = {.state = (uint64_t)(ranks * 100 + microbatches * 10 + chunks)};
    struct small *small = calloc(1, sizeof(*small));
    int32_t i;

    assert_non_null(small);
    for (i = 0; i < ranks; i++) {
        small->lines[i] = calloc(MOST_LINES, sizeof(struct line));
        assert_non_null(small->lines[i]);
    }
    for (i = 0; i < cases; i++) {
        fill_small(small, ranks, microbatches, chunks, &draw);
        check_small(small);
    }
    for (i = 0; i < ranks; i++) {
        free(small->lines[i]);
    }
    free(small);
}

static void two_ranks_get_the_best_of_all_orders(void **state)
{
    (void)state;
    check_smalls(2, 2, 1, 100);
    check_smalls(2, 3, 1, 100);
}

static void three_ranks_get_the_best_of_all_orders(void **state)
{
    (void)state;
    check_smalls(3, 2, 1, 60);
    check_smalls(3, 3, 1, 12);
}

static void two_chunks_a_rank_get_the_best_of_all_orders(void **state)
{
    (void)state;
    check_smalls(2, 1, 2, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_get_the_best_of_all_orders),
        cmocka_unit_test(three_ranks_get_the_best_of_all_orders),
        cmocka_unit_test(two_chunks_a_rank_get_the_best_of_all_orders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
