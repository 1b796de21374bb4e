#include "scheduler/trace_bubble.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/trace.h"
#include "scheduler/trace_event.h"
#include "scheduler/trace_steps.h"

static const char *const cause_texts[] = {
#define X(id, text) text,
    TRACE_BUBBLE_TABLE(X)
#undef X
};

/* What a span says of a moment; of several, the first here counts. */
enum layer {
    LAYER_COMPUTE,
    LAYER_UPDATE,
    LAYER_TRANSFER,
    LAYER_COPY,
    LAYER_RECV,
    LAYER_WAIT,
    LAYERS
};

/* A span of one rank begins or ends. */
struct edge {
    int64_t ns;
    int32_t step;
    int32_t peer;
    uint8_t layer; /* enum layer */
    bool begins;
};

/* One rank's edges while they are gone through. */
struct sweep {
    const struct trace_step *step;
    struct trace_bubble_rank *rank;
    int32_t stages;
    int64_t first_ns; /* of the rank's compute in this step */
    int64_t last_ns;
    int64_t at_ns;
    int64_t open[LAYERS];  /* spans that lie over this moment */
    int32_t peers[LAYERS]; /* of the one that began last */
};

const char *trace_bubble_text(enum trace_bubble_cause cause)
{
    return cause_texts[cause];
}

static enum layer layer_of(const struct span *span)
{
    switch (span->kind) {
    case TRACE_F:
    case TRACE_I:
    case TRACE_W:
    case TRACE_B:
        return LAYER_COMPUTE;
    case TRACE_OPTIMIZER:
    case TRACE_DATA:
        return LAYER_UPDATE;
    case TRACE_REDUCE:
    case TRACE_GATHER:
    case TRACE_SYNC:
        return LAYER_TRANSFER;
    case TRACE_SEND:
        return LAYER_COPY;
    case TRACE_RECV:
        return LAYER_RECV;
    case TRACE_WAIT:
        return LAYER_WAIT;
    default:
        return LAYERS; /* the wait in STEP is the drain */
    }
}

static int compare_edges(const void *left_item, const void *right_item)
{
    const struct edge *left = left_item;
    const struct edge *right = right_item;

    if (left->step != right->step) {
        return left->step < right->step ? -1 : 1;
    }
    if (left->ns != right->ns) {
        return left->ns < right->ns ? -1 : 1;
    }
    return (int)left->begins - (int)right->begins; /* what ends, first */
}

/* Two edges of every span that says something; NULL where memory is short. */
static struct edge *gather_edges(const struct trace_rank *rank, size_t *count_out)
{
    struct edge *edges = calloc(2 * rank->count + 1, sizeof(*edges));
    size_t used = 0;

    for (size_t item = 0; edges != NULL && item < rank->count; item++) {
        const struct span *span = &rank->spans[item];
        struct edge edge = {.ns = span->begin_ns,
                            .step = span->args[TRACE_ARG_STEP],
                            .peer = span->args[TRACE_ARG_PEER],
                            .layer = (uint8_t)layer_of(span),
                            .begins = true};

        if (edge.layer == LAYERS || span->args[TRACE_ARG_EVALUATION] == 1 ||
            span->end_ns <= span->begin_ns) {
            continue;
        }
        edges[used++] = edge;
        edge.ns = span->end_ns;
        edge.begins = false;
        edges[used++] = edge;
    }
    if (edges != NULL) {
        qsort(edges, used, sizeof(*edges), compare_edges);
    }
    *count_out = used;
    return edges;
}

/* The innermost of what lies over this moment; LAYERS where nothing does. */
static enum layer top_layer(const struct sweep *sweep)
{
    int layer = 0;

    while (layer < LAYERS && sweep->open[layer] == 0) {
        layer++;
    }
    return (enum layer)layer;
}

static bool waits_for(const struct sweep *sweep, enum layer layer)
{
    return sweep->peers[layer] >= 0 && sweep->peers[layer] < sweep->stages;
}

/* A gap of the line, or a wait for a neighbour. A wait within a RECV is for its message. */
static enum trace_bubble_cause wait_cause(const struct sweep *sweep)
{
    if (sweep->open[LAYER_WAIT] > 0 && sweep->open[LAYER_RECV] > 0) {
        return waits_for(sweep, LAYER_RECV) ? TRACE_BUBBLE_MESSAGE : TRACE_BUBBLE_HOST;
    }
    return sweep->open[LAYER_WAIT] > 0 && waits_for(sweep, LAYER_WAIT) ? TRACE_BUBBLE_BUFFER
                                                                       : TRACE_BUBBLE_HOST;
}

static enum trace_bubble_cause cause_of(const struct sweep *sweep)
{
    switch (top_layer(sweep)) {
    case LAYER_UPDATE:
        return TRACE_BUBBLE_UPDATE;
    case LAYER_TRANSFER:
        return TRACE_BUBBLE_TRANSFER;
    case LAYER_COPY:
        return TRACE_BUBBLE_COPY;
    default:
        break;
    }
    if (sweep->at_ns < sweep->first_ns) {
        return TRACE_BUBBLE_WARM_UP;
    }
    return sweep->at_ns >= sweep->last_ns ? TRACE_BUBBLE_DRAIN : wait_cause(sweep);
}

/* Nothing begins or ends between at_ns and `ns`. */
static void count_piece(struct sweep *sweep, int64_t ns)
{
    double piece = (double)(ns - sweep->at_ns);
    enum trace_bubble_cause cause = TRACE_BUBBLE_HOST;

    if (sweep->open[LAYER_COMPUTE] > 0) {
        sweep->rank->busy_ns += piece;
        return;
    }
    cause = cause_of(sweep);
    sweep->rank->cause_ns[cause] += piece;
    if (cause == TRACE_BUBBLE_MESSAGE) {
        sweep->rank->message_ns[sweep->peers[LAYER_RECV]] += piece;
    } else if (cause == TRACE_BUBBLE_BUFFER) {
        sweep->rank->buffer_ns[sweep->peers[LAYER_WAIT]] += piece;
    }
}

/* Goes on to `ns`, or to the end of the span. */
static void go_on(struct sweep *sweep, int64_t ns)
{
    ns = ns > sweep->step->end_ns ? sweep->step->end_ns : ns;
    if (ns > sweep->at_ns) {
        count_piece(sweep, ns);
        sweep->at_ns = ns;
    }
}

/* First begin and last end of the rank's compute; the span's end where it has none. */
static void find_ends(struct sweep *sweep, const struct edge *edges, size_t count)
{
    sweep->first_ns = sweep->step->end_ns;
    sweep->last_ns = sweep->step->end_ns;
    for (size_t index = 0; index < count; index++) {
        if (edges[index].layer == LAYER_COMPUTE) {
            sweep->first_ns = edges[index].ns < sweep->first_ns ? edges[index].ns : sweep->first_ns;
            sweep->last_ns = edges[index].ns;
        }
    }
}

static void sweep_step(struct sweep *sweep, const struct edge *edges, size_t count)
{
    find_ends(sweep, edges, count);
    memset(sweep->open, 0, sizeof(sweep->open));
    sweep->at_ns = sweep->step->begin_ns;
    for (size_t index = 0; index < count; index++) {
        const struct edge *edge = &edges[index];

        go_on(sweep, edge->ns);
        sweep->open[edge->layer] += edge->begins ? 1 : -1;
        if (edge->begins) {
            sweep->peers[edge->layer] = edge->peer;
        }
    }
    go_on(sweep, sweep->step->end_ns);
}

/* A rank without an edge in a step has waited for all of it. */
static enum status sweep_rank(const struct trace_rank *rank, const struct trace_step *steps,
                              size_t step_count, int32_t stages, struct trace_bubble_rank *sum)
{
    struct sweep sweep = {.rank = sum, .stages = stages};
    size_t count = 0;
    size_t begin = 0;
    struct edge *edges = gather_edges(rank, &count);

    if (edges == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: the bubble in %zu spans", rank->count);
    }
    for (size_t index = 0; index < step_count; index++) {
        size_t end = 0;

        while (begin < count && edges[begin].step < steps[index].step) {
            begin++;
        }
        for (end = begin; end < count && edges[end].step == steps[index].step; end++) {
        }
        sweep.step = &steps[index];
        sweep_step(&sweep, edges + begin, end - begin);
        begin = end;
    }
    free(edges);
    return STATUS_OK;
}

static enum status sum_rank(const struct trace_rank *rank, const struct trace_step *steps,
                            size_t step_count, int32_t stages, struct trace_bubble_rank *sum)
{
    sum->rank = rank->rank;
    sum->pipeline_rank = rank->pipeline_rank;
    sum->message_ns = calloc((size_t)stages + 1, sizeof(*sum->message_ns));
    sum->buffer_ns = calloc((size_t)stages + 1, sizeof(*sum->buffer_ns));
    if (sum->message_ns == NULL || sum->buffer_ns == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: waits for %d stages", (int)stages);
    }
    return sweep_rank(rank, steps, step_count, stages, sum);
}

enum status trace_bubble_make(const struct trace_run *run, struct trace_bubble *bubble_out)
{
    struct trace_bubble bubble = {.stages = trace_run_stages(run), .count = run->count};
    struct trace_step *steps = NULL;
    size_t step_count = 0;
    enum status status = STATUS_OK;

    TRY(trace_steps_find(run, &steps, &step_count));
    bubble.steps = (int32_t)step_count;
    for (size_t index = 0; index < step_count; index++) {
        bubble.span_ns += (double)(steps[index].end_ns - steps[index].begin_ns);
    }
    bubble.ranks = calloc(run->count + 1, sizeof(*bubble.ranks));
    if (bubble.ranks == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "trace: the bubble of %zu ranks", run->count);
        goto fail;
    }
    for (size_t index = 0; index < run->count; index++) {
        TRY_OR(
            fail, status,
            sum_rank(&run->ranks[index], steps, step_count, bubble.stages, &bubble.ranks[index]));
    }
    free(steps);
    *bubble_out = bubble;
    return STATUS_OK;
fail:
    free(steps);
    trace_bubble_release(&bubble);
    return status;
}

void trace_bubble_release(struct trace_bubble *bubble)
{
    for (size_t index = 0; bubble->ranks != NULL && index < bubble->count; index++) {
        free(bubble->ranks[index].message_ns);
        free(bubble->ranks[index].buffer_ns);
    }
    free(bubble->ranks);
    memset(bubble, 0, sizeof(*bubble));
}

static void print_waits(const struct trace_bubble *bubble, const struct trace_bubble_rank *rank,
                        FILE *out)
{
    for (int32_t stage = 0; stage < bubble->stages; stage++) {
        if (rank->message_ns[stage] > 0.0) {
            (void)fprintf(out, "  message of stage %d %.1f%%", (int)stage,
                          100.0 * rank->message_ns[stage] / bubble->span_ns);
        }
        if (rank->buffer_ns[stage] > 0.0) {
            (void)fprintf(out, "  buffer of stage %d %.1f%%", (int)stage,
                          100.0 * rank->buffer_ns[stage] / bubble->span_ns);
        }
    }
}

enum status trace_bubble_print(const struct trace_bubble *bubble, FILE *out)
{
    if (bubble->span_ns <= 0.0) {
        return STATUS_OK;
    }
    (void)fprintf(out,
                  "the bubble by cause, percent of the time from the first action to the "
                  "last:\n%5s %6s",
                  "rank", "stage");
    for (int cause = 0; cause < TRACE_BUBBLE_CAUSES; cause++) {
        (void)fprintf(out, " %8s", cause_texts[cause]);
    }
    (void)fprintf(out, "  waits for\n");
    for (size_t index = 0; index < bubble->count; index++) {
        const struct trace_bubble_rank *rank = &bubble->ranks[index];

        (void)fprintf(out, "%5d %6d", (int)rank->rank, (int)rank->pipeline_rank);
        for (int cause = 0; cause < TRACE_BUBBLE_CAUSES; cause++) {
            (void)fprintf(out, " %7.1f%%", 100.0 * rank->cause_ns[cause] / bubble->span_ns);
        }
        print_waits(bubble, rank, out);
        (void)fprintf(out, "\n");
    }
    return ferror(out) != 0 ? status_fail(STATUS_ERR_IO, "printing the bubble of a trace failed")
                            : STATUS_OK;
}
