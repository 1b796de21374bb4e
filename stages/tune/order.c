#include "stages/tune/order.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "scheduler/plan_text.h"
#include "scheduler/search.h"

/* Orders that are timed for one contender: as many as a few seconds hold. */
#define EVALUATIONS_MOST  20000
#define EVALUATIONS_LEAST 200
#define ACTIONS_AT_MOST   ((int64_t)40000000)

/* A gain that is less is noise, and one that is less and takes more memory is not worth it. */
#define WORTH        0.999
#define WORTH_MEMORY 0.98

/* Stashes, gradient sets and limits, in numbers of them: chunks of a rank are about alike. */
struct holdings {
    int64_t *limit; /* owns; [rank], the two others behind it */
    int64_t *stash; /* [virtual stage]; 1 */
    int64_t *gradient;
};

/* What the contender holds on each rank, and `spare` more. */
static enum status make_holdings(const struct plan *plan, int64_t spare, struct holdings *holdings)
{
    size_t ranks = (size_t)plan->shape.ranks;
    size_t stages = (size_t)plan_stages(plan);

    holdings->limit = calloc(ranks + 2 * stages, sizeof(*holdings->limit));
    if (holdings->limit == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: the holdings of %zu ranks", ranks);
    }
    holdings->stash = holdings->limit + ranks;
    holdings->gradient = holdings->stash + stages;
    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        holdings->limit[rank] = spare;
        for (int32_t chunk = 0; chunk < plan->shape.virtual_stages; chunk++) {
            const struct plan_buffers *buffers = plan_buffers_of(plan, rank, chunk);

            holdings->limit[rank] += buffers->slots + buffers->gradients;
        }
    }
    for (size_t s = 0; s < stages; s++) {
        holdings->stash[s] = 1;
        holdings->gradient[s] = 1;
    }
    return STATUS_OK;
}

static enum status print_plan(const void *context, FILE *out)
{
    const struct plan *plan = context;

    return plan_text_print(plan, PLAN_TEXT_CSV, out);
}

/* The plan as a file, and as a contender. */
static enum status open_found(const struct tune_order_search *search,
                              const struct tune_contender *contender, const struct plan *plan,
                              const char *kind, struct tune_contender *found_out, bool *fits_out)
{
    struct tune_candidate candidate = contender->candidate;
    int32_t layers[CONFIG_STAGES_MOST];
    char path[FILE_PATH_BYTES];
    size_t need = 0;
    enum status status = STATUS_OK;

    (void)snprintf(path, sizeof(path), "%s%s.csv", search->path, kind);
    for (int32_t s = 0; s < plan_stages(plan); s++) {
        layers[s] = (int32_t)contender->config->parallel.layers_per_stage[s];
    }
    candidate.configured = false;
    candidate.schedule = SCHEDULE_FILE;
    candidate.plan_path = path;
    candidate.layers = layers;
    TRY(file_print(path, print_plan, plan));
    status = tune_contender_open(search->base, &candidate, search->limit_bytes, found_out, fits_out,
                                 &need);
    /* Less is kept than the contender keeps: another recompute costs more than an order gains. */
    if (*fits_out &&
        found_out->config->train.recompute[0] != contender->config->train.recompute[0]) {
        *fits_out = false;
        tune_contender_release(found_out);
    }
    if (!*fits_out) {
        (void)unlink(path);
    }
    return status == STATUS_ERR_REFUSED ? STATUS_OK : status;
}

/* One search; `holdings` NULL: without a limit. Better is what takes less than `span_s`; `kind` tells its
 * file from others. */
static enum status search_once(const struct tune_order_search *search,
                               const struct tune_contender *contender,
                               const struct holdings *holdings, const char *kind, double span_s,
                               struct tune_contender *found_out, bool *better_out)
{
    const struct plan *plan = contender->plan;
    int64_t actions = 3 * (int64_t)plan_stages(plan) * plan->shape.microbatches;
    int64_t evaluations = ACTIONS_AT_MOST / actions;
    struct search_variant variant = {.shape = plan->shape, .rank_of = plan->rank_of};
    struct search_options options = {.seed = search->seed};
    struct search_result result = {.plan = NULL};
    struct tune_stage_costs costs;
    bool fits = false;
    enum status status = STATUS_OK;

    *better_out = false;
    evaluations = evaluations < EVALUATIONS_MOST ? evaluations : EVALUATIONS_MOST;
    options.evaluations = evaluations > EVALUATIONS_LEAST ? evaluations : EVALUATIONS_LEAST;
    if (holdings != NULL) {
        variant.memory = (struct search_memory){
            .limit = holdings->limit, .stash = holdings->stash, .gradient = holdings->gradient};
    }
    TRY(tune_contender_costs(contender, search->table, &costs));
    variant.costs = costs.plan;
    status_hush(true);
    status = search_run(&variant, 1, &options, &result);
    status_hush(false);
    if (status >= 0 && result.plan->shape.schedule == SCHEDULE_FILE && result.makespan < span_s) {
        status = open_found(search, contender, result.plan, kind, found_out, &fits);
    }
    search_result_release(&result);
    tune_stage_costs_release(&costs);
    if (fits && status >= 0) {
        status = tune_contender_predict(found_out, search->table);
        *better_out = status >= 0;
    }
    if (fits && status < 0) {
        tune_contender_release(found_out);
    }
    return status == STATUS_ERR_REFUSED ? STATUS_OK : status;
}

/* Stashes and gradient sets of which there is room for more, beside what the contender holds; -1: as many as
 * there are. */
static int64_t spare_of(const struct tune_order_search *search,
                        const struct tune_contender *contender)
{
    if (search->limit_bytes == 0 || contender->held_bytes == 0) {
        return -1;
    }
    return (search->limit_bytes - (int64_t)contender->need_bytes) / (int64_t)contender->held_bytes;
}

/* One search with `spare` more than the contender holds, -1: without a limit. */
static enum status search_with(const struct tune_order_search *search,
                               const struct tune_contender *contender, int64_t spare, double span_s,
                               struct tune_contender *found_out, bool *better_out)
{
    struct holdings holdings = {.limit = NULL};
    enum status status = STATUS_OK;

    if (spare < 0) {
        return search_once(search, contender, NULL, "-larger", span_s, found_out, better_out);
    }
    status = make_holdings(contender->plan, spare, &holdings);
    if (status >= 0) {
        status = search_once(search, contender, &holdings, spare == 0 ? "" : "-larger", span_s,
                             found_out, better_out);
    }
    free(holdings.limit);
    return status;
}

enum status tune_order_find(const struct tune_order_search *search,
                            const struct tune_contender *contender,
                            struct tune_contender *found_out, bool *better_out)
{
    struct tune_contender larger;
    double span_s = contender->span_s * WORTH;
    int64_t spare = spare_of(search, contender);
    bool larger_better = false;
    enum status status = STATUS_OK;

    *better_out = false;
    TRY(search_with(search, contender, 0, span_s, found_out, better_out));
    if (spare != 0) {
        span_s = (*better_out ? found_out->span_s : contender->span_s) * WORTH_MEMORY;
        status = search_with(search, contender, spare, span_s, &larger, &larger_better);
    }
    if (larger_better && *better_out) {
        tune_contender_release(found_out);
    }
    if (larger_better) {
        *found_out = larger;
        *better_out = true;
    }
    return status;
}
