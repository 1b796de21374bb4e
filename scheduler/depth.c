#include "scheduler/depth.h"

#include <stdbool.h>
#include <stdlib.h>

#include "scheduler/graph.h"
#include "scheduler/large.h"
#include "scheduler/stopwatch.h"

/* Two makespans that differ by less are the same sum in another order. */
#define SAME_MAKESPAN 1e-9

/* A plan that is asked at one depth after another. */
struct question {
    const struct plan *plan;
    const struct plan_index *index;
    const struct plan_costs *costs; /* NULL where only the end counts */
    double *ends;                   /* owns; by graph_number(), of one walk */
    double shortest;                /* makespan without bounds */
};

/* Whether `depth` is enough. */
typedef enum status (*enough_fn)(const struct question *question, int32_t depth, bool *enough_out);

/* More messages than any chunk gets never wait. */
static int32_t most_depth(const struct plan *plan)
{
    return plan->shape.microbatches * plan->shape.virtual_stages;
}

/* The least depth that is enough, 0 where not even the largest is: doubles, then halves. */
static enum status search(const struct question *question, enough_fn enough, int32_t *depth_out)
{
    int32_t most = most_depth(question->plan);
    int32_t low = 0; /* not enough, or no depth */
    int32_t high = 1;
    bool found = false;

    TRY(enough(question, high, &found));
    while (!found) {
        if (high >= most) {
            *depth_out = 0;
            return STATUS_OK;
        }
        low = high;
        high = high > most / 2 ? most : high * 2;
        TRY(enough(question, high, &found));
    }
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;

        TRY(enough(question, middle, &found));
        *(found ? &high : &low) = middle;
    }
    *depth_out = high;
    return STATUS_OK;
}

static enum status is_acyclic(const struct question *question, struct graph_rules rules,
                              bool *acyclic_out)
{
    struct graph graph = {.plan = question->plan, .index = question->index, .rules = rules};
    struct graph_walk walk;

    TRY(graph_walk_run(&graph, NULL, NULL, &walk));
    *acyclic_out = !walk.cyclic;
    graph_walk_release(&walk);
    return STATUS_OK;
}

static enum status ends_in_line(const struct question *question, int32_t depth, bool *enough_out)
{
    return is_acyclic(question, (struct graph_rules){.in_line = true, .depth = depth}, enough_out);
}

/* The rules of the plan as if it had been lowered with `depth`. */
static struct graph_rules at_depth(const struct question *question, int32_t depth)
{
    return (struct graph_rules){.deeper = depth - question->plan->shape.lane_depth};
}

static enum status ends(const struct question *question, int32_t depth, bool *enough_out)
{
    return is_acyclic(question, at_depth(question, depth), enough_out);
}

/* The makespan under `rules`; -1 where the plan deadlocks. */
static enum status measure(const struct question *question, struct graph_rules rules,
                           double *makespan_out)
{
    struct graph graph = {.plan = question->plan, .index = question->index, .rules = rules};
    struct stopwatch stopwatch = {.graph = &graph, .costs = question->costs, .end = question->ends};
    struct graph_walk walk;

    TRY(graph_walk_run(&graph, stopwatch_visit, &stopwatch, &walk));
    *makespan_out = walk.cyclic ? -1.0 : stopwatch.makespan;
    graph_walk_release(&walk);
    return STATUS_OK;
}

static enum status is_fast(const struct question *question, int32_t depth, bool *enough_out)
{
    double makespan;

    TRY(measure(question, at_depth(question, depth), &makespan));
    *enough_out = makespan >= 0.0 && makespan <= question->shortest * (1.0 + SAME_MAKESPAN);
    return STATUS_OK;
}

static enum status begin(struct plan_index *index, const struct plan *lowered)
{
    if (!lowered->lowered) {
        return status_fail(STATUS_ERR_REFUSED, "depth: the plan is not lowered yet");
    }
    return plan_index_init(index, lowered);
}

static enum status check_found(int32_t depth)
{
    return depth > 0 ? STATUS_OK
                     : status_fail(STATUS_ERR_REFUSED,
                                   "plan refused: it deadlocks at every depth of the lanes");
}

enum status plan_min_depth_indexed(const struct plan *lowered, const struct plan_index *index,
                                   int32_t *depth_out)
{
    const struct question question = {.plan = lowered, .index = index};

    TRY(search(&question, ends_in_line, depth_out));
    return check_found(*depth_out);
}

enum status plan_min_depth(const struct plan *lowered, int32_t *depth_out)
{
    struct plan_index index;
    enum status status;

    TRY(begin(&index, lowered));
    status = plan_min_depth_indexed(lowered, &index, depth_out);
    plan_index_release(&index);
    return status;
}

enum status plan_free_depth(const struct plan *lowered, const struct plan_index *index,
                            int32_t *depth_out)
{
    const struct question question = {.plan = lowered, .index = index};

    return search(&question, ends, depth_out);
}

enum status plan_perf_depth_indexed(const struct plan *lowered, const struct plan_index *index,
                                    const struct plan_costs *costs, int32_t *depth_out)
{
    struct question question = {.plan = lowered, .index = index, .costs = costs};
    const struct graph graph = {.plan = lowered, .index = index};
    size_t nodes = (size_t)graph_nodes(&graph);
    enum status status;

    question.ends = large_alloc(nodes, sizeof(*question.ends));
    if (question.ends == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "depth: no memory for %zu actions", nodes);
    }
    TRY_OR(done, status,
           measure(&question, (struct graph_rules){.unbounded = true}, &question.shortest));
    TRY_OR(done, status, search(&question, is_fast, depth_out));
    status = check_found(*depth_out);

done:
    free(question.ends);
    return status;
}

enum status plan_perf_depth(const struct plan *lowered, const struct plan_costs *costs,
                            int32_t *depth_out)
{
    struct plan_index index;
    enum status status;

    TRY(begin(&index, lowered));
    status = plan_perf_depth_indexed(lowered, &index, costs, depth_out);
    plan_index_release(&index);
    return status;
}
