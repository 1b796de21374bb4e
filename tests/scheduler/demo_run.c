#include "tests/scheduler/demo_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/simulate.h"
#include "scheduler/trace.h"

#define MOST_STAGES 64

/* One step of one rank while it is laid out. */
struct pen {
    struct trace_rank *rank;
    int32_t step;
    double offset_ms;  /* begin of the step */
    double cursor_ms;  /* end of the last compute action, within the step */
    int32_t wait_peer; /* of the RECV before the next compute action, or -1 */
};

static void put(const struct pen *pen, enum trace_kind kind, double begin_ms, double end_ms,
                const struct action *action, int32_t index)
{
    struct span span = {.kind = kind,
                        .begin_ns = (int64_t)((pen->offset_ms + begin_ms) * 1e6),
                        .end_ns = (int64_t)((pen->offset_ms + end_ms) * 1e6)};

    for (int arg = 0; arg < SPAN_ARGS; arg++) {
        span.args[arg] = ACTION_NONE;
    }
    span.args[TRACE_ARG_STEP] = pen->step;
    span.args[TRACE_ARG_EVALUATION] = 0;
    if (action != NULL) {
        span.args[TRACE_ARG_MICROBATCH] = action->microbatch;
        span.args[TRACE_ARG_VIRTUAL_STAGE] = action->virtual_stage;
        span.args[TRACE_ARG_PEER] = action->peer;
        span.args[TRACE_ARG_SEQUENCE] = action->sequence;
        span.args[TRACE_ARG_DIRECTION] = action->direction;
        span.args[TRACE_ARG_INDEX] = index;
        span.args[TRACE_ARG_SLICES] = action->slices > 0 ? action->slices : ACTION_NONE;
        span.bytes = kind == TRACE_SEND ? 3145728 : 0;
    }
    assert_int_equal(trace_rank_append(pen->rank, &span), STATUS_OK);
}

static void put_compute(struct pen *pen, const struct action *action, int32_t index, double begin,
                        double end)
{
    static const enum trace_kind kinds[] = {
        [ACTION_F] = TRACE_F, [ACTION_I] = TRACE_I, [ACTION_W] = TRACE_W, [ACTION_B] = TRACE_B};

    if (begin > pen->cursor_ms + 1e-6) {
        struct action wait = *action;

        wait.peer = pen->wait_peer;
        put(pen, TRACE_WAIT, pen->cursor_ms, begin, &wait, index);
    }
    put(pen, kinds[action->kind], begin, end, action, index);
    pen->cursor_ms = end;
    pen->wait_peer = ACTION_NONE;
}

static void put_line(struct pen *pen, const struct plan_line *line,
                     const struct simulation *simulation, int32_t rank,
                     const struct demo_config *config)
{
    for (int32_t index = 0; index < line->count; index++) {
        const struct action *action = &line->actions[index];
        double begin = simulation->begin[rank][index];
        double end = simulation->end[rank][index];

        if (action_is_compute((enum action_kind)action->kind)) {
            put_compute(pen, action, index, begin, end);
        } else if (action->kind == ACTION_SEND) {
            put(pen, TRACE_SEND, begin, end, action, index);
        } else if (action->kind == ACTION_RECV) {
            /* Lowering puts a RECV right before its use, which begins at the next index. */
            put(pen, TRACE_RECV, pen->cursor_ms, simulation->begin[rank][index + 1], action, index);
            pen->wait_peer = action->peer;
        } else if (action->kind == ACTION_SYNC && rank > 0) {
            put(pen, TRACE_SYNC, begin, begin + config->sync_ms, NULL, index);
        } else if (action->kind == ACTION_REDUCE) {
            put(pen, TRACE_REDUCE, begin, begin + config->reduce_ms, NULL, index);
        }
    }
}

static void put_step(struct trace_run *run, const struct plan *plan,
                     const struct simulation *simulation, const struct demo_config *config,
                     int32_t step)
{
    double step_ms = simulation->makespan + 2.0 * config->update_ms;

    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        struct pen pen = {.rank = &run->ranks[rank],
                          .step = config->first_step + step,
                          .offset_ms = step * step_ms,
                          .wait_peer = ACTION_NONE};

        put_line(&pen, &plan->lines[rank], simulation, rank, config);
        if (config->update_ms > 0.0) {
            put(&pen, TRACE_STEP, pen.cursor_ms, simulation->makespan + config->update_ms, NULL,
                plan->lines[rank].count - 1);
            put(&pen, TRACE_OPTIMIZER, simulation->makespan + config->update_ms, step_ms, NULL,
                plan->lines[rank].count - 1);
        }
    }
}

static void scale_costs(const struct demo_config *config, double *costs, double ms)
{
    int32_t stages = config->shape.ranks * config->shape.virtual_stages;

    assert_true(stages <= MOST_STAGES);
    for (int32_t stage = 0; stage < stages; stage++) {
        costs[stage] = ms * (1.0 + config->slope * stage);
    }
}

void demo_run_make(const struct demo_config *config, const char *name, struct trace_run *run_out)
{
    double table[3][MOST_STAGES];
    struct plan_costs costs = {
        .F = table[0], .I = table[1], .W = table[2], .message = config->message_ms};
    struct simulation simulation;
    struct plan *compute = NULL;
    struct plan *plan = NULL;

    assert_int_equal(plan_generate(&config->shape, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &plan), STATUS_OK);
    scale_costs(config, table[0], config->forward_ms);
    scale_costs(config, table[1], config->input_ms);
    scale_costs(config, table[2], config->weight_ms);
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    memset(run_out, 0, sizeof(*run_out));
    run_out->name = strdup(name);
    run_out->count = (size_t)config->shape.ranks;
    run_out->ranks = calloc(run_out->count, sizeof(*run_out->ranks));
    assert_non_null(run_out->name);
    assert_non_null(run_out->ranks);
    for (int32_t rank = 0; rank < config->shape.ranks; rank++) {
        run_out->ranks[rank].rank = run_out->ranks[rank].pipeline_rank = rank;
        run_out->ranks[rank].complete = true;
    }
    for (int32_t step = 0; step < config->steps; step++) {
        put_step(run_out, plan, &simulation, config, step);
    }
    trace_run_arrange(run_out);
    simulation_release(&simulation);
    plan_destroy(&plan);
    plan_destroy(&compute);
}

void demo_run_write(const struct trace_run *run, const char *run_dir)
{
    for (size_t index = 0; index < run->count; index++) {
        const struct trace_rank *rank = &run->ranks[index];
        struct trace_writer *writer = NULL;
        struct span_ring ring;
        char path[4096];
        struct trace_writer_config config = {.path = path,
                                             .run_name = run->name,
                                             .rank = rank->rank,
                                             .pipeline_rank = rank->pipeline_rank,
                                             .most_bytes = (uint64_t)1 << 30,
                                             .origin_ns = 0};

        (void)snprintf(path, sizeof(path), "%s/trace/rank-%d.json", run_dir, (int)rank->rank);
        assert_int_equal(span_ring_init(&ring, rank->count + 1), STATUS_OK);
        assert_int_equal(trace_writer_open(&config, &writer), STATUS_OK);
        for (size_t item = 0; item < rank->count; item++) {
            span_ring_put(&ring, &rank->spans[item]);
        }
        assert_int_equal(trace_writer_drain(writer, &ring), STATUS_OK);
        assert_int_equal(trace_writer_close(&writer), STATUS_OK);
        span_ring_release(&ring);
    }
}
