#include "scheduler/trace_json.h"

#include <jansson.h>
#include <stdbool.h>

#include "scheduler/bubble_formula.h"
#include "scheduler/trace_bubble.h"
#include "scheduler/trace_summary.h"

#define DIGITS 9 /* of a nanosecond in a second */
#define NS_MS  1e6

static json_t *pack_causes(const struct trace_bubble_rank *rank, double span_ns)
{
    json_t *causes = json_object();

    for (int cause = 0; causes != NULL && cause < TRACE_BUBBLE_CAUSES; cause++) {
        double share = span_ns > 0.0 ? rank->cause_ns[cause] / span_ns : 0.0;

        if (json_object_set_new(causes, trace_bubble_text((enum trace_bubble_cause)cause),
                                json_real(share)) != 0) {
            json_decref(causes);
            return NULL;
        }
    }
    return causes;
}

/* Both list the ranks of the run in its order. */
static json_t *pack_ranks(const struct trace_summary *summary, const struct trace_bubble *bubble)
{
    json_t *ranks = json_array();

    for (size_t index = 0; ranks != NULL && index < summary->count; index++) {
        const struct trace_summary_rank *rank = &summary->ranks[index];
        double steps = summary->steps > 0 ? summary->steps : 1;

        if (json_array_append_new(
                ranks, json_pack("{s:i, s:i, s:f, s:f, s:o}", "rank", (int)rank->rank, "stage",
                                 (int)rank->pipeline_rank, "bubble", rank->bubble, "busy_ms",
                                 rank->busy_ns / steps / NS_MS, "causes",
                                 pack_causes(&bubble->ranks[index], bubble->span_ns))) != 0) {
            json_decref(ranks);
            return NULL;
        }
    }
    return ranks;
}

static json_t *pack_formula(const struct trace_explanation *of)
{
    struct bubble_formula formula;
    bool holds = false;

    bubble_formula_find(&of->shape, of->F, of->I, of->W, &formula);
    holds = formula.text != NULL && formula.limit == NULL;
    return json_pack("{s:s?, s:s?, s:o}", "text", formula.text, "limit", formula.limit, "bubble_ms",
                     holds ? json_real(formula.bubble / NS_MS) : json_null());
}

static json_t *pack_explanation(const struct trace_explanation *of)
{
    const struct plan_shape *shape = &of->shape;
    int32_t slices = shape->sequence_slices > 1 ? shape->sequence_slices : 1;

    return json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}",
        "schedule", schedule_text(shape->schedule), "p", (int)shape->ranks, "m",
        (int)(shape->microbatches / slices), "v", (int)shape->virtual_stages, "sequence_slices",
        (int)slices, "early_send", shape->early_send ? 1 : 0, "F_ms", of->F / NS_MS, "I_ms",
        of->I / NS_MS, "W_ms", of->W / NS_MS, "ideal_ms", of->ideal_ns / NS_MS, "even_ms",
        of->even_ns / NS_MS, "uneven_ms", of->uneven_ns / NS_MS, "message_ms",
        of->message_ns / NS_MS, "measured_ms", of->measured_ns / NS_MS, "between_ms",
        of->between_ns / NS_MS, "formula", pack_formula(of));
}

static json_t *pack_run(const struct trace_run *run, const struct trace_summary *summary,
                        const struct trace_bubble *bubble)
{
    return json_pack("{s:s, s:i, s:f, s:f, s:o}", "run", run->name == NULL ? "" : run->name,
                     "steps", (int)summary->steps, "span_ms",
                     summary->steps > 0 ? summary->span_ns / summary->steps / NS_MS : 0.0, "bubble",
                     summary->bubble, "ranks", pack_ranks(summary, bubble));
}

static enum status print(const struct trace_run *run, const struct trace_summary *summary,
                         const struct trace_bubble *bubble,
                         const struct trace_explanation *explanation, FILE *out)
{
    json_t *root = pack_run(run, summary, bubble);
    int failed = root == NULL;

    if (!failed && explanation != NULL) {
        failed = json_object_set_new(root, "explain", pack_explanation(explanation));
    }
    if (failed) {
        json_decref(root);
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: no memory for the numbers of the run");
    }
    failed = json_dumpf(root, out, JSON_REAL_PRECISION(DIGITS) | JSON_COMPACT);
    json_decref(root);
    return failed != 0 || fputc('\n', out) == EOF
               ? status_fail(STATUS_ERR_IO, "trace: writing the numbers of the run failed")
               : STATUS_OK;
}

enum status trace_json_print(const struct trace_run *run,
                             const struct trace_explanation *explanation, FILE *out)
{
    struct trace_summary summary = {.count = 0};
    struct trace_bubble bubble = {.count = 0};
    enum status status = STATUS_OK;

    TRY_OR(done, status, trace_summary_make(run, &summary));
    TRY_OR(done, status, trace_bubble_make(run, &bubble));
    status = print(run, &summary, &bubble, explanation, out);
done:
    trace_bubble_release(&bubble);
    trace_summary_release(&summary);
    return status;
}
