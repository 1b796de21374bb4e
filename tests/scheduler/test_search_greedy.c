#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/search_clock.h"
#include "scheduler/search_greedy.h"
#include "search_fixture.h"

struct rig {
    struct fixture_costs costs;
    struct search_space space;
    struct search_order order;
    struct search_clock clock;
    int32_t rank_of[FIXTURE_STAGES];
    int64_t limit[FIXTURE_STAGES];
    int64_t stash[FIXTURE_STAGES];
    int64_t gradient[FIXTURE_STAGES];
};

/* A stash of a chunk is 2 units and a gradient set 1. */
static void make(struct rig *rig, int32_t ranks, int32_t microbatches, bool v, int64_t limit,
                 bool together)
{
    int32_t chunks = v ? 2 : 1;
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, ranks, microbatches, true);
    struct search_memory memory = {
        .limit = rig->limit, .stash = rig->stash, .gradient = rig->gradient, .together = together};
    int32_t i;

    memset(rig, 0, sizeof(*rig));
    shape.virtual_stages = chunks;
    fixture_costs_even(&rig->costs, ranks, chunks, 10.0, 14.0, 7.0, 1.0);
    for (i = 0; i < ranks * chunks; i++) {
        rig->rank_of[i] = i % ranks;
        rig->limit[i] = limit;
        rig->stash[i] = 2;
        rig->gradient[i] = 1;
    }
    if (v) {
        fixture_place_v(ranks, rig->rank_of);
    }
    assert_int_equal(
        search_space_init(&rig->space, &shape, rig->rank_of, &rig->costs.costs, &memory),
        STATUS_OK);
    assert_int_equal(search_order_init(&rig->order, &rig->space), STATUS_OK);
    assert_int_equal(search_clock_init(&rig->clock, &rig->space), STATUS_OK);
}

static void release(struct rig *rig)
{
    search_clock_release(&rig->clock);
    search_order_release(&rig->order);
    search_space_release(&rig->space);
}

static void check_rules(struct rig *rig, const char *what, int units)
{
    int32_t rule;

    for (rule = 0; rule < SEARCH_RULES; rule++) {
        struct search_rule of = search_rule_number(rule);
        bool found = false;
        double makespan;

        assert_int_equal(search_greedy_run(&of, &rig->order, &found), STATUS_OK);
        makespan = found ? search_clock_run(&rig->clock, &rig->order) : SEARCH_NEVER;
        if (makespan >= SEARCH_NEVER) {
            fail_msg("rule %d, %s, %d units: no order", rule, what, units);
        }
    }
}

/* With room for one micro-batch on each rank, and for more, every rule comes to an end and keeps the
 * limit. A V takes all chunks of a micro-batch at once, which a rule without the bankers' care would
 * not leave room for. */
static void a_tight_limit_stops_no_rule(void **state)
{
    /* One micro-batch: its stashes, and a gradient set a chunk or one for all. */
    static const struct {
        const char *what;
        bool v;
        bool together;
        int32_t least;
    } kinds[] = {
        {"one chunk, apart", false, false, 3},
        {"V, apart", true, false, 6},
        {"one chunk, together", false, true, 3},
        {"V, together", true, true, 5},
    };
    int32_t extra;

    (void)state;
    for (extra = 0; extra < 6; extra++) {
        size_t kind;

        for (kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
            int32_t units = kinds[kind].least + extra;
            struct rig rig;

            make(&rig, 4, 6, kinds[kind].v, units, kinds[kind].together);
            check_rules(&rig, kinds[kind].what, units);
            release(&rig);
        }
    }
}

/* No limit, even costs: what one rank has to do, and the way there and back of one micro-batch, are
 * bounds; I first with W into every wait is close to them. */
static void rules_make_good_orders(void **state)
{
    struct search_rule rule = {.extra = 2};
    bool found = false;
    struct rig rig;
    double makespan;

    (void)state;
    make(&rig, 4, 8, false, 1000, true);
    assert_int_equal(search_greedy_run(&rule, &rig.order, &found), STATUS_OK);
    assert_true(found);
    makespan = search_clock_run(&rig.clock, &rig.order);
    /* 8 · 31 on rank 3, which begins at 3 · 10 + 3 · 1; 1F1B would be 8 · 31 + 3 · 31 and messages. */
    assert_true(makespan >= 8 * 31.0 + 33.0);
    assert_true(makespan < 8 * 31.0 + 3 * 31.0);
    release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tight_limit_stops_no_rule),
        cmocka_unit_test(rules_make_good_orders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
