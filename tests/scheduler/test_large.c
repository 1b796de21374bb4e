/* Plans of many ranks: what making and proving them takes grows with their actions and no faster. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/graph.h"
#include "scheduler/plan_index.h"
#include "scheduler/prove.h"

/* Every node is visited once, after what it waits for. */
struct visits {
    const struct graph *graph;
    uint8_t *visited;
    int64_t count;
    int64_t too_early;
};

static void visit(void *context, struct graph_node node, const struct graph_edge *edges,
                  int32_t count)
{
    struct visits *visits = context;

    for (int32_t i = 0; i < count; i++) {
        visits->too_early += visits->visited[graph_number(visits->graph, edges[i].from)] == 0;
    }
    visits->visited[graph_number(visits->graph, node)]++;
    visits->count++;
}

/* Walks the plan of the shape; returns its actions, and how often a rank got on. */
static int64_t walk_through(const struct plan_shape *shape, struct graph_rules rules,
                            int64_t *turns_out)
{
    struct plan *plan = NULL;
    struct plan_index index;
    struct graph graph = {.rules = rules};
    struct graph_walk walk;
    struct visits visits = {.graph = &graph};
    int64_t nodes;

    assert_int_equal(plan_prove(shape, NULL, &plan), STATUS_OK);
    assert_int_equal(plan_index_init(&index, plan), STATUS_OK);
    graph.plan = plan;
    graph.index = &index;
    nodes = graph_nodes(&graph);
    visits.visited = test_calloc((size_t)nodes, 1);
    assert_int_equal(graph_walk_run(&graph, visit, &visits, &walk), STATUS_OK);
    assert_false(walk.cyclic);
    assert_int_equal(visits.count, nodes);
    assert_int_equal(visits.too_early, 0);
    *turns_out = walk.turns;
    graph_walk_release(&walk);
    test_free(visits.visited);
    plan_index_release(&index);
    plan_destroy(&plan);
    return nodes;
}

static struct plan_shape shape_of(enum schedule schedule, int32_t ranks, int32_t microbatches,
                                  int32_t chunks)
{
    struct plan_shape shape = fixture_shape(schedule, ranks, microbatches, true);

    shape.virtual_stages = chunks;
    return shape;
}

/* 1F1B of 256 ranks and 1,024 micro-batches: F, I, W of each, SEND and RECV in both directions between
 * neighbours; B stays whole on the first rank; two SYNCs, and a STEP a rank. */
static void a_plan_of_many_ranks_has_the_actions_of_its_closed_form(void **state)
{
    const struct plan_shape shape = shape_of(SCHEDULE_1F1B, 256, 1024, 1);
    int64_t turns = 0;

    (void)state;
    assert_int_equal(walk_through(&shape, (struct graph_rules){.unbounded = false}, &turns),
                     1024 * (3 * 256 - 1) + 4 * 255 * 1024 + 2 + 256);
}

/* A rank gets on because a message or a landing buffer came, so once a message at most, and once to
 * begin with: SENDs are less than a third of the actions. */
static void check_turns(const struct plan_shape *shape)
{
    for (int rules = 0; rules < 3; rules++) {
        struct graph_rules rule = {.unbounded = rules == 1, .in_line = rules == 2, .depth = 64};
        int64_t turns = 0;
        int64_t nodes = walk_through(shape, rule, &turns);

        if (turns > nodes) {
            fail_msg("%s, pp %d, m %d: %lld turns for %lld actions", schedule_text(shape->schedule),
                     shape->ranks, shape->microbatches, (long long)turns, (long long)nodes);
        }
    }
}

static void turns_are_linear_in_the_messages(void **state)
{
    static const struct {
        enum schedule schedule;
        int32_t ranks;
        int32_t microbatches;
        int32_t chunks;
    } cases[] = {{SCHEDULE_1F1B, 256, 256, 1}, {SCHEDULE_1F1B, 32, 2048, 1},
                 {SCHEDULE_1F1B, 512, 16, 1},  {SCHEDULE_GPIPE, 64, 256, 1},
                 {SCHEDULE_ZB_H1, 64, 256, 1}, {SCHEDULE_INTERLEAVED_1F1B, 64, 256, 2},
                 {SCHEDULE_ZB_V, 64, 256, 2},  {SCHEDULE_FORWARD_ONLY, 64, 1024, 1},
                 {SCHEDULE_BFS, 16, 64, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan_shape shape =
            shape_of(cases[i].schedule, cases[i].ranks, cases[i].microbatches, cases[i].chunks);

        check_turns(&shape);
    }
}

/* What a stage process keeps: its line as it was, and the buffers of all. */
static void a_line_that_is_kept_is_the_same(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 4, 8, true);
    uint64_t hash = plan_line_hash(plan, 2);
    int32_t count = plan->lines[2].count;
    struct plan_buffers next = *plan_buffers_of(plan, 3, 0);

    (void)state;
    assert_int_equal(plan_keep_line(plan, 2), STATUS_OK);
    assert_int_equal(plan_line_hash(plan, 2), hash);
    assert_int_equal(plan->lines[2].count, count);
    assert_int_equal(plan->lines[1].count, 0);
    assert_null(plan->lines[3].actions);
    assert_memory_equal(plan_buffers_of(plan, 3, 0), &next, sizeof(next));
    assert_int_equal(plan_keep_line(plan, 2), STATUS_OK);
    assert_int_equal(plan_line_hash(plan, 2), hash);
    plan_destroy(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_of_many_ranks_has_the_actions_of_its_closed_form),
        cmocka_unit_test(turns_are_linear_in_the_messages),
        cmocka_unit_test(a_line_that_is_kept_is_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
