/* How deep lanes have to be, and why there is one a direction: what an independent simulator found
 * for lines that receive right before and send right behind each compute action. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/depth.h"
#include "scheduler/generate.h"
#include "scheduler/graph.h"
#include "scheduler/lower.h"
#include "scheduler/simulate.h"

#define WITHOUT_END 1000

static struct plan *lowered_of(enum schedule schedule, int32_t p, int32_t m, int32_t v,
                               int32_t extra)
{
    struct plan_shape shape = fixture_shape(schedule, p, m, false);
    struct plan *compute = NULL;
    struct plan *lowered = NULL;

    shape.virtual_stages = v;
    shape.extra_in_flight = extra;
    assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    return lowered;
}

/* The walk of a line that blocks at every action, timed. */
struct clockwork {
    const struct graph *graph;
    double *ends;
    double makespan;
};

/* F = I = W = 1 a rank, messages at once. */
static void visit(void *context, struct graph_node node, const struct graph_edge *edges,
                  int32_t count)
{
    struct clockwork *clockwork = context;
    const struct plan *plan = clockwork->graph->plan;
    const struct action *action = &plan->lines[node.rank].actions[node.index];
    double share = 1.0 / plan->shape.virtual_stages;
    double end = 0.0;
    int32_t i;

    for (i = 0; i < count; i++) {
        double before = clockwork->ends[graph_number(clockwork->graph, edges[i].from)];

        end = before > end ? before : end;
    }
    if (action_is_compute((enum action_kind)action->kind)) {
        end += action->kind == ACTION_B ? 2.0 * share : share;
    }
    clockwork->ends[graph_number(clockwork->graph, node)] = end;
    clockwork->makespan = end > clockwork->makespan ? end : clockwork->makespan;
}

/* The makespan with `depth` buffers a lane, given back at receipt; -1 where the lines wait for each
 * other. */
static double makespan_in_line(const struct plan *plan, int32_t depth)
{
    struct plan_index index;
    struct graph graph = {
        .plan = plan, .index = &index, .rules = {.in_line = true, .depth = depth}};
    struct clockwork clockwork = {.graph = &graph};
    struct graph_walk walk;
    bool cyclic;

    assert_int_equal(plan_index_init(&index, plan), STATUS_OK);
    clockwork.ends = calloc((size_t)graph_nodes(&graph) + 1, sizeof(*clockwork.ends));
    assert_non_null(clockwork.ends);
    assert_int_equal(graph_walk_run(&graph, visit, &clockwork, &walk), STATUS_OK);
    cyclic = walk.cyclic;
    graph_walk_release(&walk);
    plan_index_release(&index);
    free(clockwork.ends);
    return cyclic ? -1.0 : clockwork.makespan;
}

static int32_t least_depth(const struct plan *plan)
{
    double shortest = makespan_in_line(plan, WITHOUT_END);
    int32_t depth = 1;

    assert_true(shortest > 0.0);
    while (makespan_in_line(plan, depth) < 0.0 || makespan_in_line(plan, depth) > shortest + 1e-9) {
        depth++;
        assert_true(depth < WITHOUT_END);
    }
    return depth;
}

static const struct {
    enum schedule schedule;
    int32_t p, m, v, extra;
    int32_t ends; /* depth at which the lines end */
    int32_t fast; /* and lose no time; 0 where the table has none */
} depths[] = {
    {SCHEDULE_GPIPE, 4, 8, 1, 0, 1, 1},
    {SCHEDULE_1F1B, 4, 8, 1, 0, 1, 1},
    {SCHEDULE_1F1B, 4, 8, 1, 3, 1, 1},
    {SCHEDULE_INTERLEAVED_1F1B, 4, 8, 2, 0, 1, 1},
    {SCHEDULE_INTERLEAVED_1F1B, 4, 8, 4, 0, 1, 1},
    {SCHEDULE_ZB_H1, 4, 8, 1, 0, 1, 1},
    {SCHEDULE_ZB_H2, 4, 8, 1, 0, 1, 1},
    {SCHEDULE_ZB_V, 4, 8, 2, 0, 1, 1},
    {SCHEDULE_V_HALF, 4, 8, 2, 0, 1, 1},
    {SCHEDULE_V_MIN, 4, 8, 2, 0, 1, 1},
    {SCHEDULE_BFS, 4, 8, 2, 0, 2, 4},
    {SCHEDULE_BFS, 4, 16, 2, 0, 4, 0},
    {SCHEDULE_BFS, 8, 16, 2, 0, 0, 8},
    {SCHEDULE_IZB, 4, 8, 2, 0, 2, 3},
    {SCHEDULE_IZB, 8, 16, 2, 0, 4, 6},
};

static void lanes_are_as_deep_as_the_table_says(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        struct plan *plan =
            lowered_of(depths[i].schedule, depths[i].p, depths[i].m, depths[i].v, depths[i].extra);
        int32_t depth = 0;

        assert_int_equal(plan_min_depth(plan, &depth), STATUS_OK);
        if (depths[i].ends != 0) {
            assert_int_equal(depth, depths[i].ends);
        }
        if (depths[i].fast != 0) {
            assert_int_equal(least_depth(plan), depths[i].fast);
        }
        plan_destroy(&plan);
    }
}

static void without_a_buffer_only_gpipe_ends(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        struct plan *plan =
            lowered_of(depths[i].schedule, depths[i].p, depths[i].m, depths[i].v, depths[i].extra);
        bool ends = makespan_in_line(plan, 0) > 0.0;

        assert_int_equal(ends, depths[i].schedule == SCHEDULE_GPIPE);
        plan_destroy(&plan);
    }
}

/* Every p in 2, 3, 4, 5, 8, one to four chunks: the balanced groups never wait for themselves. */
static void balanced_groups_end_for_every_number_of_micro_batches(void **state)
{
    static const int32_t ranks[] = {2, 3, 4, 5, 8};
    static const enum schedule schedules[] = {SCHEDULE_INTERLEAVED_1F1B, SCHEDULE_IZB};
    int32_t v;
    int32_t m;
    size_t i;

    (void)state;
    for (i = 0; i < 10; i++) {
        int32_t p = ranks[i / 2];

        for (v = 1; v <= 4; v++) {
            for (m = 1; m <= 4 * p + 2; m++) {
                struct plan *plan = lowered_of(schedules[i % 2], p, m, v, 0);

                assert_true(makespan_in_line(plan, WITHOUT_END) > 0.0);
                plan_destroy(&plan);
            }
        }
    }
}

/* The next message from `rank` to `peer` behind `*at`, or the next one there from `peer`; NULL
 * behind the last. */
static const struct action *next_message(const struct plan *plan, int32_t rank, int32_t peer,
                                         enum action_kind kind, int32_t *at)
{
    const struct plan_line *line = &plan->lines[rank];

    for (; *at < line->count; (*at)++) {
        const struct action *action = &line->actions[*at];

        if (action->kind == kind && action->peer == peer) {
            return &line->actions[(*at)++];
        }
    }
    return NULL;
}

/* Messages from `rank` to `peer` that come out of one queue in another order than they are taken. */
static int32_t count_swapped(const struct plan *plan, int32_t rank, int32_t peer)
{
    int32_t sent = 0;
    int32_t taken = 0;
    int32_t swapped = 0;
    const struct action *send;

    while ((send = next_message(plan, rank, peer, ACTION_SEND, &sent)) != NULL) {
        const struct action *receive = next_message(plan, peer, rank, ACTION_RECV, &taken);
        enum lane_direction direction = (enum lane_direction)send->direction;

        assert_non_null(receive);
        swapped += receive->direction != send->direction ||
                   receive->microbatch != send->microbatch ||
                   receive->virtual_stage != plan_target(plan, send->virtual_stage, direction);
    }
    return swapped;
}

/* Takes the plan. */
static bool one_queue_a_peer_mixes_up(struct plan *plan)
{
    int32_t swapped = 0;
    int32_t rank;
    int32_t peer;

    for (rank = 0; rank < plan->shape.ranks; rank++) {
        for (peer = 0; peer < plan->shape.ranks; peer++) {
            swapped += count_swapped(plan, rank, peer);
        }
    }
    plan_destroy(&plan);
    return swapped > 0;
}

/* Lanes a direction are what plan_validate() accepts in every other test. v_half on two ranks and
 * v_min on two and three keep the order of their pattern, in which both ends are equally far apart. */
static void one_queue_a_peer_hands_over_wrong_messages_on_a_v(void **state)
{
    int32_t p;

    (void)state;
    for (p = 2; p <= 8; p++) {
        int32_t m = 2 * p;

        assert_true(one_queue_a_peer_mixes_up(lowered_of(SCHEDULE_ZB_V, p, m, 2, 0)));
        assert_int_equal(one_queue_a_peer_mixes_up(lowered_of(SCHEDULE_V_HALF, p, m, 2, 0)), p > 2);
        assert_int_equal(one_queue_a_peer_mixes_up(lowered_of(SCHEDULE_V_MIN, p, m, 2, 0)), p > 3);
        assert_false(one_queue_a_peer_mixes_up(lowered_of(SCHEDULE_1F1B, p, m, 1, 0)));
        assert_int_equal(one_queue_a_peer_mixes_up(lowered_of(SCHEDULE_IZB, p, m, 2, 0)), p == 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_are_as_deep_as_the_table_says),
        cmocka_unit_test(without_a_buffer_only_gpipe_ends),
        cmocka_unit_test(balanced_groups_end_for_every_number_of_micro_batches),
        cmocka_unit_test(one_queue_a_peer_hands_over_wrong_messages_on_a_v),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
