#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/deadlock.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"

#define MOST_RANKS  3
#define MOST_LINE   64
#define MOST_STAGES (2 * MOST_RANKS)
#define FAR_AWAY    1000
#define ROUNDS      400

static int32_t cycle_length(const struct plan *plan, struct graph_rules rules)
{
    struct plan_index index;
    struct graph graph = {.plan = plan, .index = &index, .rules = rules};
    struct deadlock deadlock;
    int32_t count;

    assert_int_equal(plan_index_init(&index, plan), STATUS_OK);
    assert_int_equal(deadlock_find(&graph, &deadlock), STATUS_OK);
    count = deadlock.count;
    deadlock_release(&deadlock);
    plan_index_release(&index);
    return count;
}

/* RECV before and SEND behind each compute action, in one line, both ends meeting: the lowering
 * that a first attempt makes, on a transport without buffers. */
static void a_blocking_line_without_buffers_is_for_gpipe_only(void **state)
{
    static const struct graph_rules rendezvous = {.in_line = true, .depth = 0};
    int32_t p;
    int32_t m;

    (void)state;
    for (p = 2; p <= 5; p++) {
        for (m = 2; m <= 9; m++) {
            struct plan *gpipe = fixture_lowered(SCHEDULE_GPIPE, p, m, false);
            struct plan *one = fixture_lowered(SCHEDULE_1F1B, p, m, false);

            assert_int_equal(cycle_length(gpipe, rendezvous), 0);
            assert_true(cycle_length(one, rendezvous) > 0);
            plan_destroy(&gpipe);
            plan_destroy(&one);
        }
    }
}

static void one_buffer_a_lane_frees_a_blocking_line_of_1f1b(void **state)
{
    static const struct graph_rules buffered = {.in_line = true, .depth = 1};
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 4, 8, false);

    (void)state;
    assert_int_equal(cycle_length(plan, buffered), 0);
    plan_destroy(&plan);
}

static void the_cycle_is_printed_as_a_ring(void **state)
{
    struct plan *compute = fixture_text("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n");
    struct plan *plan = NULL;
    struct plan_index index;
    struct graph graph = {.index = &index};
    struct deadlock deadlock;
    char text[1024];

    (void)state;
    compute->shape.early_send = false;
    assert_int_equal(plan_lower(compute, &plan), STATUS_OK);
    graph.plan = plan;
    assert_int_equal(plan_index_init(&index, plan), STATUS_OK);
    assert_int_equal(deadlock_find(&graph, &deadlock), STATUS_OK);
    assert_int_equal(deadlock.count, 8);
    deadlock_print(&deadlock, plan, text, sizeof(text));
    assert_string_equal(text, "rank 0 #2 0RECV_B0 -(message)-> rank 1 #6 1SEND_B0 -(depends)-> "
                              "rank 1 #5 1B0 -(order)-> rank 1 #3 1F1 -(depends)-> rank 1 #2 "
                              "1RECV_F1 -(message)-> rank 0 #5 0SEND_F1 -(depends)-> rank 0 #4 "
                              "0F1 -(order)-> rank 0 #3 0B0 -(depends)-> rank 0 #2 0RECV_B0");
    deadlock_print(&deadlock, plan, text, 64);
    assert_true(strlen(text) < 64);
    assert_string_equal(text + strlen(text) - 4, " ...");
    deadlock_release(&deadlock);
    plan_index_release(&index);
    plan_destroy(&plan);
    plan_destroy(&compute);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Mixes the forwards and backwards of a line at random, each in their order, and no backward before
 * its own forward. */
static void mix(struct plan_line *line, uint32_t *seed)
{
    struct action forwards[MOST_LINE] = {{.kind = ACTION_F}};
    struct action backwards[MOST_LINE] = {{.kind = ACTION_B}};
    int32_t half = line->count / 2;
    int32_t f = 0;
    int32_t b = 0;
    int32_t i;

    assert_true(line->count <= MOST_LINE);
    for (i = 0; i < line->count; i++) {
        *(line->actions[i].kind == ACTION_F ? &forwards[f++] : &backwards[b++]) = line->actions[i];
    }
    f = b = 0;
    for (i = 0; i < line->count; i++) {
        bool ready = false;
        int32_t k;

        for (k = 0; k < f && b < half; k++) {
            ready = ready || (forwards[k].virtual_stage == backwards[b].virtual_stage &&
                              forwards[k].microbatch == backwards[b].microbatch);
        }
        line->actions[i] =
            f < half && (!ready || next_random(seed) % 2 == 0) ? forwards[f++] : backwards[b++];
    }
}

/* Ranks of one or two chunks whose forwards and backwards go in the order of interleaved 1F1B, but
 * mixed at random, over lanes of random depth: right but for their waits. */
static struct plan *random_plan(uint32_t *seed)
{
    int32_t p = 2 + (int32_t)(next_random(seed) % (MOST_RANKS - 1));
    int32_t m = 2 + (int32_t)(next_random(seed) % 3);
    int32_t v = m < 4 ? 1 + (int32_t)(next_random(seed) % 2) : 1;
    struct plan_shape shape = fixture_shape(SCHEDULE_INTERLEAVED_1F1B, p, m, false);
    struct plan *compute = NULL;
    struct plan *plan = NULL;
    int32_t rank;
    int32_t i;

    shape.virtual_stages = v;
    shape.early_send = next_random(seed) % 2 == 0;
    assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
    for (rank = 0; rank < p; rank++) {
        mix(&compute->lines[rank], seed);
    }
    assert_int_equal(plan_lower(compute, &plan), STATUS_OK);
    for (i = 0; i < p * v; i++) {
        if (plan->buffers[i].landing_f > 0) {
            plan->buffers[i].landing_f = 1 + (int32_t)(next_random(seed) % 3);
        }
        if (plan->buffers[i].landing_b > 0) {
            plan->buffers[i].landing_b = 1 + (int32_t)(next_random(seed) % 2);
        }
    }
    plan_destroy(&compute);
    return plan;
}

/* A small machine that runs a plan: what has ended, and what lies in each receiver's landing
 * buffers. It knows the rules of buffers and lines, and nothing of graphs. */
struct machine {
    const struct plan *plan;
    bool ended[MOST_RANKS][MOST_LINE];
    int32_t landed[MOST_STAGES][LANE_DIRECTIONS]; /* messages sent to a virtual stage, less those
                                                     released */
    bool out_taken[MOST_RANKS][MOST_RANKS][LANE_DIRECTIONS]; /* by sender and receiver */
};

static bool has_ended(const struct machine *machine, int32_t rank, const struct action *like,
                      enum action_kind kind, enum lane_direction direction, int32_t stage)
{
    const struct plan_line *line = &machine->plan->lines[rank];
    int32_t i;

    for (i = 0; i < line->count; i++) {
        const struct action *action = &line->actions[i];

        if (action->kind == kind && action->direction == direction &&
            action->virtual_stage == stage && action->microbatch == like->microbatch) {
            return machine->ended[rank][i];
        }
    }
    return true;
}

static bool sends(const struct machine *machine, const struct action *action,
                  enum lane_direction direction)
{
    int32_t last = plan_stages(machine->plan) - 1;

    return action->kind == ACTION_W ? false
                                    : action->virtual_stage != (direction == LANE_F ? last : 0);
}

/* The rank of the virtual stage that a message goes to; loops have no neighbours on one rank. */
static int32_t receiver(const struct machine *machine, int32_t rank, enum lane_direction direction)
{
    int32_t p = machine->plan->shape.ranks;

    return (rank + (direction == LANE_F ? 1 : p - 1)) % p;
}

static bool compute_can_run(const struct machine *machine, int32_t rank, int32_t i)
{
    const struct plan_line *line = &machine->plan->lines[rank];
    const struct action *action = &line->actions[i];
    enum lane_direction direction = action->kind == ACTION_F ? LANE_F : LANE_B;
    int32_t before;

    for (before = 0; before < i; before++) {
        if (action_is_compute((enum action_kind)line->actions[before].kind) &&
            !machine->ended[rank][before]) {
            return false;
        }
    }
    if (sends(machine, action, direction) &&
        machine->out_taken[rank][receiver(machine, rank, direction)][direction]) {
        return false;
    }
    return action->kind == ACTION_W ||
           has_ended(machine, rank, action, ACTION_RECV, direction, action->virtual_stage);
}

static bool send_can_run(const struct machine *machine, int32_t rank, const struct action *action)
{
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t stage = action->virtual_stage + (direction == LANE_F ? 1 : -1);
    const struct plan_buffers *buffers =
        &machine->plan->buffers[action->peer * machine->plan->shape.virtual_stages +
                                stage / machine->plan->shape.ranks];
    int32_t room = direction == LANE_F ? buffers->landing_f : buffers->landing_b;
    enum action_kind maker = direction == LANE_F ? ACTION_F : ACTION_I;

    return has_ended(machine, rank, action, maker, LANE_F, action->virtual_stage) &&
           has_ended(machine, rank, action, maker == ACTION_I ? ACTION_B : ACTION_F, LANE_F,
                     action->virtual_stage) &&
           machine->landed[stage][direction] < room;
}

static bool can_run(const struct machine *machine, int32_t rank, int32_t i)
{
    const struct action *action = &machine->plan->lines[rank].actions[i];

    if (action->kind == ACTION_SEND) {
        return send_can_run(machine, rank, action);
    }
    if (action->kind == ACTION_RECV) {
        return has_ended(machine, action->peer, action, ACTION_SEND,
                         (enum lane_direction)action->direction,
                         action->virtual_stage + (action->direction == LANE_F ? -1 : 1));
    }
    return !action_is_compute((enum action_kind)action->kind) || compute_can_run(machine, rank, i);
}

static void run(struct machine *machine, int32_t rank, int32_t i)
{
    const struct action *action = &machine->plan->lines[rank].actions[i];
    enum lane_direction direction = action->kind == ACTION_F ? LANE_F : LANE_B;

    machine->ended[rank][i] = true;
    if (action->kind == ACTION_SEND) {
        int32_t stage = action->virtual_stage + (action->direction == LANE_F ? 1 : -1);

        machine->landed[stage][action->direction]++;
        machine->out_taken[rank][action->peer][action->direction] = false;
    } else if (action_is_compute((enum action_kind)action->kind)) {
        if (sends(machine, action, direction)) {
            machine->out_taken[rank][receiver(machine, rank, direction)][direction] = true;
        }
        if (action->kind == ACTION_I || action->kind == ACTION_B) {
            machine->landed[action->virtual_stage][LANE_F]--;
        }
        if (action->kind == ACTION_W || action->kind == ACTION_B) {
            machine->landed[action->virtual_stage][LANE_B]--;
        }
    }
}

/* Runs what can run on one rank; counts what has ended there in all. */
static int32_t run_rank(struct machine *machine, int32_t rank)
{
    int32_t ended = 0;
    int32_t i;

    for (i = 0; i < machine->plan->lines[rank].count; i++) {
        if (!machine->ended[rank][i] && can_run(machine, rank, i)) {
            run(machine, rank, i);
        }
        ended += machine->ended[rank][i];
    }
    return ended;
}

/* Runs whatever can run until nothing can; whether everything has ended. */
static bool machine_finishes(const struct plan *plan)
{
    struct machine machine = {.plan = plan};
    int32_t before = -1;
    int32_t ended = 0;
    int32_t all = 0;
    int32_t rank;

    while (ended > before) {
        before = ended;
        ended = 0;
        all = 0;
        for (rank = 0; rank < plan->shape.ranks; rank++) {
            ended += run_rank(&machine, rank);
            all += plan->lines[rank].count;
        }
    }
    return ended == all;
}

/* Shortest paths between all pairs, the plain way; the shortest way from a node back to itself. */
static int32_t shortest_cycle(const struct plan *plan, const struct plan_index *index)
{
    static int32_t far[MOST_RANKS * MOST_LINE][MOST_RANKS * MOST_LINE];
    struct graph graph = {.plan = plan, .index = index};
    int64_t nodes = graph_nodes(&graph);
    struct graph_node node = {.rank = 0, .index = -1};
    int32_t shortest = FAR_AWAY;
    int64_t a;
    int64_t b;
    int64_t c;

    for (a = 0; a < nodes; a++) {
        for (b = 0; b < nodes; b++) {
            far[a][b] = FAR_AWAY;
        }
    }
    while (graph_next(&graph, &node)) {
        struct graph_edge edges[GRAPH_EDGES];
        int32_t count = graph_edges(&graph, node, edges);

        while (count-- > 0) {
            far[graph_number(&graph, node)][graph_number(&graph, edges[count].from)] = 1;
        }
    }
    for (c = 0; c < nodes; c++) {
        for (a = 0; a < nodes; a++) {
            for (b = 0; b < nodes; b++) {
                int32_t through = far[a][c] + far[c][b];

                far[a][b] = through < far[a][b] ? through : far[a][b];
            }
        }
    }
    for (a = 0; a < nodes; a++) {
        shortest = far[a][a] < shortest ? far[a][a] : shortest;
    }
    return shortest == FAR_AWAY ? 0 : shortest;
}

static void the_verdict_is_that_of_a_run_and_the_cycle_is_a_shortest_one(void **state)
{
    uint32_t seed = 7;
    int deadlocks = 0;
    int i;

    (void)state;
    for (i = 0; i < ROUNDS; i++) {
        struct plan *plan = random_plan(&seed);
        struct plan_index index;
        int32_t found = cycle_length(plan, (struct graph_rules){.depth = 0});

        assert_int_equal(found == 0, machine_finishes(plan));
        assert_int_equal(plan_index_init(&index, plan), STATUS_OK);
        assert_int_equal(found, shortest_cycle(plan, &index));
        deadlocks += found > 0;
        plan_index_release(&index);
        plan_destroy(&plan);
    }
    assert_true(deadlocks > ROUNDS / 10);
    assert_true(deadlocks < ROUNDS * 9 / 10);
}

/* The actions at `first` … `last` of a line, the first of them taken to the end of the others. */
static void put_behind(struct plan *plan, int32_t rank, int32_t first, int32_t last)
{
    struct action *actions = plan->lines[rank].actions;
    struct action moved = actions[first];
    int32_t i;
    int d;

    memmove(&actions[first], &actions[first + 1], (size_t)(last - first) * sizeof(*actions));
    actions[last] = moved;
    for (i = first; i < plan->lines[rank].count; i++) {
        for (d = 0; d < ACTION_DEPENDS; d++) {
            int32_t *other = &actions[i].depends[d];

            if (*other >= first && *other <= last) {
                *other = *other == first ? last : *other - 1;
            }
        }
    }
}

/* Whoever walks the line waits in 1B0 for an answer to the message that stands behind it. */
static void a_send_behind_the_wait_for_its_answer_is_a_deadlock(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 3, 1, false);
    int32_t send = fixture_find(plan, 1, "1SEND_F0");

    (void)state;
    assert_int_equal(cycle_length(plan, (struct graph_rules){.depth = 0}), 0);
    put_behind(plan, 1, send, send + 1); /* behind 1RECV_B0, where nobody waits yet */
    assert_int_equal(cycle_length(plan, (struct graph_rules){.depth = 0}), 0);
    put_behind(plan, 1, send + 1, send + 2);
    assert_string_equal(fixture_line(plan, 1), "1RECV_F0 1F0 1RECV_B0 1B0 1SEND_F0 1SEND_B0 STEP");
    /* 1SEND_F0, 2RECV_F0, 2F0, 2B0, 2SEND_B0, 1RECV_B0, 1B0 */
    assert_int_equal(cycle_length(plan, (struct graph_rules){.depth = 0}), 7);
    plan_destroy(&plan);
}

/* A SEND that waits for more than its message would hold up what stands behind it in the line. */
static void a_message_that_waits_for_a_message_is_refused(void **state)
{
    static const char *const waits[] = {"1SEND_F1", "1RECV_F1"};
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 3, 2, false);
        int32_t at = fixture_find(plan, 1, waits[i]);
        struct plan_index index;
        int saved = fixture_mute();
        enum status status;

        plan->lines[1].actions[at].depends[i == 0 ? 1 : 0] = fixture_find(plan, 1, "1RECV_F0");
        status = plan_index_init(&index, plan);
        fixture_unmute(saved);
        assert_int_equal(status, STATUS_ERR_REFUSED);
        assert_non_null(strstr(status_last()->message, "may not wait for action 0"));
        plan_destroy(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blocking_line_without_buffers_is_for_gpipe_only),
        cmocka_unit_test(one_buffer_a_lane_frees_a_blocking_line_of_1f1b),
        cmocka_unit_test(the_cycle_is_printed_as_a_ring),
        cmocka_unit_test(the_verdict_is_that_of_a_run_and_the_cycle_is_a_shortest_one),
        cmocka_unit_test(a_send_behind_the_wait_for_its_answer_is_a_deadlock),
        cmocka_unit_test(a_message_that_waits_for_a_message_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
