#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/search.h"
#include "scheduler/validate.h"
#include "search_fixture.h"

/* A problem with room for its arrays. Limits are in stashes of chunks. */
struct problem {
    struct search_variant variant;
    int32_t rank_of[FIXTURE_STAGES];
    struct fixture_costs costs;
    int64_t limit[FIXTURE_STAGES];
    int64_t stash[FIXTURE_STAGES];
};

/* Even costs F, I, W a rank; `cap` micro-batches on each rank, 0: no limit. */
static void fill(struct problem *problem, int32_t ranks, int32_t microbatches, int32_t chunks,
                 bool v)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, ranks, microbatches, true);
    int32_t i;

    memset(problem, 0, sizeof(*problem));
    shape.virtual_stages = chunks;
    for (i = 0; i < ranks * chunks; i++) {
        problem->rank_of[i] = i % ranks;
        problem->stash[i] = 1;
    }
    if (v) {
        fixture_place_v(ranks, problem->rank_of);
    }
    problem->variant = (struct search_variant){
        .shape = shape,
        .rank_of = problem->rank_of,
        .memory = {.stash = problem->stash, .together = true},
    };
}

static void cost(struct problem *problem, double F, double I, double W, double message)
{
    const struct plan_shape *shape = &problem->variant.shape;

    fixture_costs_even(&problem->costs, shape->ranks, shape->virtual_stages, F, I, W, message);
    problem->variant.costs = problem->costs.costs;
}

static void cap(struct problem *problem, int32_t microbatches)
{
    int32_t i;

    for (i = 0; i < problem->variant.shape.ranks; i++) {
        problem->limit[i] = (int64_t)microbatches * problem->variant.shape.virtual_stages;
    }
    problem->variant.memory.limit = problem->limit;
}

static struct search_result search(const struct problem *problem, int64_t evaluations)
{
    struct search_options options = {.seed = 1, .evaluations = evaluations};
    struct search_result result = {.plan = NULL};

    assert_int_equal(search_run(&problem->variant, 1, &options, &result), STATUS_OK);
    return result;
}

/* Whether the stashes of a rank never exceed its limit, by their count along the line. */
static bool keeps_limits(const struct problem *problem, const struct plan *compute)
{
    int32_t rank;
    int32_t i;

    for (rank = 0; problem->variant.memory.limit != NULL && rank < compute->shape.ranks; rank++) {
        int64_t held = 0;

        for (i = 0; i < compute->lines[rank].count; i++) {
            enum action_kind kind = (enum action_kind)compute->lines[rank].actions[i].kind;

            held += kind == ACTION_F ? 1 : 0;
            if (held > problem->limit[rank]) {
                return false;
            }
            held -= kind == ACTION_W || kind == ACTION_B ? 1 : 0;
        }
    }
    return true;
}

/* Lowered, validated, simulated. */
static double proved_makespan(const struct problem *problem, const struct plan *compute)
{
    struct simulation simulation;
    struct plan *lowered = NULL;
    double makespan;

    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    assert_int_equal(plan_validate(lowered), STATUS_OK);
    assert_int_equal(plan_simulate(lowered, &problem->variant.costs, &simulation), STATUS_OK);
    makespan = simulation.makespan;
    simulation_release(&simulation);
    plan_destroy(&lowered);
    return makespan;
}

/* The best schedule with a name that keeps the limits; INFINITY where none does. */
static double best_named(const struct problem *problem)
{
    double best = INFINITY;
    int schedule;

    for (schedule = 0; schedule < SCHEDULE_FORWARD_ONLY; schedule++) {
        struct plan_shape shape = problem->variant.shape;
        struct plan *compute = NULL;

        shape.schedule = (enum schedule)schedule;
        if (!schedule_takes_chunks(shape.schedule, shape.virtual_stages)) {
            continue;
        }
        assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
        if (memcmp(compute->rank_of, problem->rank_of,
                   (size_t)plan_stages(compute) * sizeof(int32_t)) == 0 &&
            keeps_limits(problem, compute)) {
            double makespan = proved_makespan(problem, compute);

            best = makespan < best ? makespan : best;
        }
        plan_destroy(&compute);
    }
    return best;
}

/* What every result must be. */
static void check_result(const struct problem *problem, const struct search_result *result)
{
    assert_true(keeps_limits(problem, result->plan));
    assert_true(proved_makespan(problem, result->plan) == result->makespan);
    assert_true(result->bound > 0.0 && result->bound <= result->makespan);
    assert_true(result->gap >= 0.0);
    assert_true(strlen(result->origin) > 0);
}

struct table_row {
    int32_t chunks;
    bool v;
    int32_t cap;
    double found; /* by a search of the same kind, elsewhere */
};

/* p 4, m 8, 10/14/7 a chunk, c 2: facts that another program found with up to 10^5 evaluations. */
static void what_others_have_found_is_found(void **state)
{
    static const struct table_row rows[] = {
        {1, false, 4, 323.0}, {2, false, 4, 577.0}, {2, true, 4, 560.0},
        {2, true, 3, 617.0},  {2, true, 2, 757.0},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double chunks = rows[i].chunks;
        struct problem problem;
        struct search_result result;

        fill(&problem, 4, 8, rows[i].chunks, rows[i].v);
        cost(&problem, 10.0 * chunks, 14.0 * chunks, 7.0 * chunks, 2.0);
        cap(&problem, rows[i].cap);
        result = search(&problem, 50000);
        check_result(&problem, &result);
        if (result.makespan > 1.01 * rows[i].found) {
            fail_msg("row %zu: found %g, expected %g", i, result.makespan, rows[i].found);
        }
        search_result_release(&result);
    }
}

static void draw_costs(struct problem *problem, struct fixture_draw *draw)
{
    const struct plan_shape *shape = &problem->variant.shape;
    int32_t stage;

    cost(problem, 10.0, 14.0, 7.0, 0.5 * fixture_draw(draw, 5));
    for (stage = 0; stage < shape->ranks * shape->virtual_stages; stage++) {
        problem->costs.F[stage] *= 0.5 + 0.01 * fixture_draw(draw, 101);
        problem->costs.I[stage] *= 0.5 + 0.01 * fixture_draw(draw, 101);
        problem->costs.W[stage] *= 0.5 + 0.01 * fixture_draw(draw, 101);
    }
}

/* 200 sets of costs, with and without limits, one chunk, loop and V. */
static void nothing_is_longer_than_the_best_schedule_with_a_name(void **state)
{
    struct fixture_draw draw = {.state = 21};
    int32_t limited = 0;
    int32_t n;

    (void)state;
    for (n = 0; n < 200; n++) {
        int32_t ranks = 2 + fixture_draw(&draw, 4);
        int32_t chunks = 1 + fixture_draw(&draw, 2);
        struct problem problem;
        struct search_result result;
        double named;

        fill(&problem, ranks, 1 + fixture_draw(&draw, 10), chunks,
             chunks == 2 && fixture_draw(&draw, 2) == 0);
        draw_costs(&problem, &draw);
        if (fixture_draw(&draw, 2) == 0) {
            cap(&problem, 1 + fixture_draw(&draw, ranks));
        }
        named = best_named(&problem);
        result = search(&problem, 1000);
        check_result(&problem, &result);
        assert_true(result.makespan <= named);
        assert_true(result.named_makespan <= named); /* it knows more: extra in flight */
        limited += problem.variant.memory.limit != NULL ? 1 : 0;
        search_result_release(&result);
    }
    assert_in_range(limited, 60, 140);
}

/* Heavy first and last virtual stages, or each by chance: as embedding, head and unlike layers do. */
static void make_uneven(struct problem *problem, struct fixture_draw *draw)
{
    const struct plan_shape *shape = &problem->variant.shape;
    int32_t last = shape->ranks * shape->virtual_stages - 1;
    double factor = 1.5 + 0.01 * fixture_draw(draw, 101);

    if (fixture_draw(draw, 2) == 0) {
        draw_costs(problem, draw);
        return;
    }
    cost(problem, 10.0, 14.0, 7.0, 1.0);
    problem->costs.F[0] *= factor;
    problem->costs.I[0] *= factor;
    problem->costs.W[0] *= factor;
    problem->costs.F[last] *= factor;
    problem->costs.I[last] *= factor;
    problem->costs.W[last] *= factor;
}

/* Uneven virtual stages and tight memory: p/2 or p-1 micro-batches a rank, where a schedule with a name
 * fits at all. */
static void where_memory_is_tight_or_stages_uneven_it_gains(void **state)
{
    struct fixture_draw draw = {.state = 22};
    double logs = 0.0;
    int32_t compared = 0;
    int32_t only_found = 0;
    int32_t n;

    (void)state;
    for (n = 0; n < 60; n++) {
        int32_t ranks = 3 + fixture_draw(&draw, 3);
        bool v = fixture_draw(&draw, 2) == 0;
        const int32_t caps[] = {(ranks + 1) / 2, ranks - 1};
        struct problem problem;
        struct search_result result;
        double named;

        fill(&problem, ranks, 2 * ranks, v ? 2 : 1, v);
        make_uneven(&problem, &draw);
        cap(&problem, caps[fixture_draw(&draw, 2)]);
        named = best_named(&problem);
        result = search(&problem, 10000);
        check_result(&problem, &result);
        if (named < INFINITY) {
            logs += log(named / result.makespan);
            compared++;
        } else {
            only_found++;
        }
        search_result_release(&result);
    }
    assert_true(compared >= 15);
    assert_true(only_found >= 5); /* one chunk under p: no schedule with a name fits */
    if (exp(logs / compared) < 1.05) {
        fail_msg("the gain is %.4f in the geometric mean of %d", exp(logs / compared), compared);
    }
}

static void expect_same_plan(const struct plan *a, const struct plan *b)
{
    int32_t rank;

    for (rank = 0; rank < a->shape.ranks; rank++) {
        assert_int_equal(a->lines[rank].count, b->lines[rank].count);
        assert_memory_equal(a->lines[rank].actions, b->lines[rank].actions,
                            (size_t)a->lines[rank].count * sizeof(struct action));
    }
}

/* The seed decides, and nothing else. */
static void the_same_seed_gives_the_same_plan(void **state)
{
    struct problem problem;
    struct search_result a;
    struct search_result b;

    (void)state;
    fill(&problem, 4, 8, 2, true);
    cost(&problem, 20.0, 28.0, 14.0, 2.0);
    cap(&problem, 3);
    a = search(&problem, 3000);
    b = search(&problem, 3000);
    expect_same_plan(a.plan, b.plan);
    assert_true(a.makespan == b.makespan);
    assert_true(a.evaluations == b.evaluations && a.evaluations <= 3000);
    search_result_release(&a);
    search_result_release(&b);
}

/* Which of two placements is better depends on the memory. */
static void the_best_of_several_variants_is_taken(void **state)
{
    struct search_options options = {.seed = 1, .evaluations = 4000};
    struct problem problems[2];
    struct search_variant variants[2];
    struct search_result result;
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        fill(&problems[i], 4, 8, 1 + i, i == 1);
        cost(&problems[i], 20.0, 28.0, 14.0, 0.0);
        cap(&problems[i], 2);
        problems[i].costs.costs.F = problems[i].costs.F;
        variants[i] = problems[i].variant;
        result = search(&problems[i], 4000);
        search_result_release(&result);
    }
    assert_int_equal(search_run(variants, 2, &options, &result), STATUS_OK);
    check_result(&problems[result.variant], &result);
    assert_int_equal(result.variant, 1);
    search_result_release(&result);
}

static void what_fits_nowhere_is_refused_with_need_and_limit(void **state)
{
    struct search_options options = {.seed = 1, .evaluations = 1000};
    struct search_result result;
    struct problem problem;
    int saved = fixture_mute();

    (void)state;
    fill(&problem, 2, 4, 2, true);
    cost(&problem, 1.0, 1.0, 1.0, 0.0);
    cap(&problem, 1);
    problem.limit[1] = 1; /* a micro-batch has two chunks there */
    assert_int_equal(search_run(&problem.variant, 1, &options, &result), STATUS_ERR_REFUSED);
    fixture_unmute(saved);
    assert_non_null(strstr(status_last()->message, "rank 1 needs "));
    assert_non_null(strstr(status_last()->message, "its limit is 1;"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_have_found_is_found),
        cmocka_unit_test(nothing_is_longer_than_the_best_schedule_with_a_name),
        cmocka_unit_test(where_memory_is_tight_or_stages_uneven_it_gains),
        cmocka_unit_test(the_same_seed_gives_the_same_plan),
        cmocka_unit_test(the_best_of_several_variants_is_taken),
        cmocka_unit_test(what_fits_nowhere_is_refused_with_need_and_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
