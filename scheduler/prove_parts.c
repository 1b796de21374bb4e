#include "scheduler/prove_parts.h"

#include <pthread.h>
#include <unistd.h>

#include "base/check.h"
#include "scheduler/lower.h"
#include "scheduler/proof.h"

/* Compute actions of a plan that takes about a second. */
#define LARGE ((int64_t)4000000)

/* The ranks from first to end - 1. */
struct part {
    struct line_source *lines; /* borrows; `made`, or the caller's */
    struct line_source made;   /* owns */
    struct lowerer lowerer;    /* owns */
    struct proof proof;        /* owns */
    int32_t first;
    int32_t end;
    int32_t keep; /* the line that stays, or ACTION_NONE: all do */
    bool proved;
    enum status status;          /* of lowering */
    struct status_record record; /* where that is a failure */
    bool threaded;
    pthread_t thread;
};

int32_t prove_parts_for(const struct line_source *lines)
{
    const struct plan_shape *shape = &lines->plan->shape;
    int64_t actions = (int64_t)shape->ranks * shape->virtual_stages * shape->microbatches * 3;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (!lines->generates || actions < LARGE || cores < 2) {
        return 1;
    }
    return cores < PROVE_PARTS_MOST ? (int32_t)cores : PROVE_PARTS_MOST;
}

static enum status run_lines(struct part *part)
{
    struct plan *lowered = NULL;

    TRY(lowerer_init(&part->lowerer, part->lines, ACTION_NONE));
    if (part->keep == ACTION_NONE) {
        TRY(lowerer_reserve_all(&part->lowerer));
    }
    lowered = part->lowerer.lowered;
    part->proved = proof_init(&part->proof, lowered) == STATUS_OK;
    for (int32_t rank = part->first; rank < part->end && part->proved; rank++) {
        TRY(lowerer_put_line(&part->lowerer, rank));
        part->proved = proof_add_line(&part->proof, rank) == STATUS_OK;
        if (part->keep != ACTION_NONE && rank != part->keep && rank + 1 < part->end) {
            plan_pass_memory(lowered, rank, rank + 1);
        }
    }
    return STATUS_OK;
}

/* Failures are told by the thread that asked for the plan, once. */
static void *run(void *context)
{
    struct part *part = context;

    status_hush(true);
    part->status = run_lines(part);
    if (part->status < 0) {
        part->record = *status_last();
    }
    status_hush(false);
    return NULL;
}

static enum status open_part(struct line_source *lines, int32_t parts, int32_t number, int32_t keep,
                             struct part *part)
{
    int64_t ranks = lines->plan->shape.ranks;
    struct plan *plan = NULL;

    *part = (struct part){.lines = lines,
                          .first = (int32_t)(ranks * number / parts),
                          .end = (int32_t)(ranks * (number + 1) / parts),
                          .keep = keep};
    if (number > 0) {
        TRY(plan_create(&lines->plan->shape, &plan));
        part->made = line_source_made(plan);
        part->lines = &part->made;
    }
    return STATUS_OK;
}

static void close_part(struct part *part)
{
    proof_release(&part->proof);
    lowerer_release(&part->lowerer);
    line_source_release(&part->made);
}

/* A thread each but for the first, which is the caller's; the caller's too where there is none to be had. */
static void run_all(struct part *all, int32_t parts)
{
    for (int32_t number = 1; number < parts; number++) {
        struct part *part = &all[number];

        part->threaded = pthread_create(&part->thread, NULL, run, part) == 0;
    }
    for (int32_t number = 0; number < parts; number++) {
        if (!all[number].threaded) {
            (void)run(&all[number]);
        }
    }
    for (int32_t number = 1; number < parts; number++) {
        if (all[number].threaded) {
            (void)pthread_join(all[number].thread, NULL);
        }
    }
}

/* The first failure of the parts, as if it came here. */
static enum status tell_failure(const struct part *all, int32_t parts)
{
    for (int32_t number = 0; number < parts; number++) {
        const struct status_record *record = &all[number].record;

        if (all[number].status < 0) {
            return status_fail_at(record->file, record->line, record->code, "%s", record->message);
        }
    }
    return STATUS_OK;
}

/* Everything that the parts have, in the first one. */
static bool join(struct part *all, int32_t parts)
{
    bool proved = all[0].proved;

    status_hush(true);
    for (int32_t number = 1; number < parts && proved; number++) {
        proved = all[number].proved && proof_join(&all[0].proof, &all[number].proof) == STATUS_OK;
    }
    proved = proved && proof_finish(&all[0].proof) == STATUS_OK;
    status_hush(false);
    return proved;
}

/* The plan of the first part, with the line of `keep` from whoever has it. */
static struct plan *take_plan(struct part *all, int32_t parts, int32_t keep)
{
    struct plan *lowered = all[0].lowerer.lowered;

    for (int32_t number = 1; number < parts; number++) {
        if (keep >= all[number].first && keep < all[number].end) {
            struct plan_line *line = &all[number].lowerer.lowered->lines[keep];

            lowered->lines[keep] = *line;
            *line = (struct plan_line){.actions = NULL};
        }
    }
    all[0].lowerer.lowered = NULL;
    return lowered;
}

enum status prove_parts(struct line_source *lines, int32_t parts, int32_t keep,
                        struct plan **lowered_out, bool *proved_out)
{
    struct part all[PROVE_PARTS_MOST];
    int32_t opened = 0;
    enum status status = STATUS_OK;

    ENSURE(parts == 1 ||
               (parts > 1 && parts <= PROVE_PARTS_MOST && lines->generates && keep != ACTION_NONE),
           "a proof in %d parts", parts);
    *lowered_out = NULL;
    *proved_out = false;
    for (; opened < parts && status == STATUS_OK; opened++) {
        status = open_part(lines, parts, opened, keep, &all[opened]);
    }
    if (status == STATUS_OK) {
        run_all(all, parts);
        status = tell_failure(all, parts);
    }
    if (status == STATUS_OK && join(all, parts)) {
        *lowered_out = take_plan(all, parts, keep);
        *proved_out = true;
        status = keep != ACTION_NONE ? plan_keep_line(*lowered_out, keep) : STATUS_OK;
    }
    for (int32_t number = 0; number < opened; number++) {
        close_part(&all[number]);
    }
    if (status < 0) {
        plan_destroy(lowered_out);
    }
    return status;
}
