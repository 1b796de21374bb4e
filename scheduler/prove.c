#include "scheduler/prove.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "scheduler/generate.h"
#include "scheduler/line_source.h"
#include "scheduler/lower.h"
#include "scheduler/plan_text.h"
#include "scheduler/prove_parts.h"
#include "scheduler/validate.h"

enum status plan_make(const struct plan_shape *shape, const char *path, struct plan **compute_out)
{
    if (shape->schedule != SCHEDULE_FILE) {
        return plan_generate(shape, compute_out);
    }
    ENSURE(path != NULL, "a plan of %d ranks from no file", shape->ranks);
    return plan_text_read(path, shape, compute_out);
}

/* Where the lines come from: generated when they are asked for where the schedule can, else all at once. */
static enum status open_lines(const struct plan_shape *shape, const char *path,
                              struct line_source *lines_out)
{
    struct plan *plan = NULL;

    if (shape->schedule != SCHEDULE_FILE) {
        TRY(plan_create(shape, &plan));
        if (plan_generates_lines(plan)) {
            *lines_out = line_source_made(plan);
            return STATUS_OK;
        }
        plan_destroy(&plan);
    }
    TRY(plan_make(shape, path, &plan));
    *lines_out = line_source_whole(plan);
    return STATUS_OK;
}

static enum status open_evaluation(const struct plan *training, struct line_source *lines_out)
{
    struct plan_shape shape;
    struct plan *plan = NULL;

    if (plan_evaluation_shape(training, &shape)) {
        return open_lines(&shape, NULL, lines_out);
    }
    TRY(plan_generate_evaluation(training, &plan));
    *lines_out = line_source_whole(plan);
    return STATUS_OK;
}

/* Of a plan that was not proved line by line: whole, and in the order in which its faults are told. */
static enum status prove_in_order(struct line_source *lines, struct plan **lowered_out)
{
    struct lowerer lowerer;
    enum status status = STATUS_OK;

    TRY(lowerer_init(&lowerer, lines, ACTION_NONE));
    for (int32_t rank = 0; rank < lines->plan->shape.ranks && status == STATUS_OK; rank++) {
        status = lowerer_put_line(&lowerer, rank);
    }
    if (status == STATUS_OK) {
        status = plan_validate_in_order(lowerer.lowered);
    }
    if (status == STATUS_OK) {
        *lowered_out = lowerer.lowered;
        lowerer.lowered = NULL;
    }
    lowerer_release(&lowerer);
    return status;
}

/* All lines stay, or the one of `keep`. */
static enum status prove(struct line_source *lines, int32_t keep, struct plan **lowered_out)
{
    int32_t parts = keep != ACTION_NONE ? prove_parts_for(lines) : 1;
    struct plan *lowered = NULL;
    bool proved = false;
    enum status status = prove_parts(lines, parts, keep, &lowered, &proved);

    if (status == STATUS_OK && !proved) {
        status = prove_in_order(lines, &lowered);
        if (status == STATUS_OK && keep != ACTION_NONE) {
            status = plan_keep_line(lowered, keep);
        }
    }
    if (status < 0) {
        plan_destroy(&lowered);
    }
    *lowered_out = lowered;
    return status;
}

enum status plan_prove_made(struct plan **compute, struct plan **lowered_out)
{
    struct line_source lines = line_source_whole(*compute);
    enum status status;

    *compute = NULL;
    status = prove(&lines, ACTION_NONE, lowered_out);
    line_source_release(&lines);
    return status;
}

enum status plan_prove_keeping(const struct plan_shape *shape, const char *path, int32_t rank,
                               struct plan **lowered_out)
{
    struct line_source lines;
    enum status status;

    TRY(open_lines(shape, path, &lines));
    status = prove(&lines, rank, lowered_out);
    line_source_release(&lines);
    return status;
}

enum status plan_prove(const struct plan_shape *shape, const char *path, struct plan **lowered_out)
{
    return plan_prove_keeping(shape, path, ACTION_NONE, lowered_out);
}

/* Of all that lowering counts, what its own line needs. */
static enum status make_line(struct line_source *lines, int32_t rank, struct plan **lowered_out)
{
    struct lowerer lowerer;
    enum status status;

    TRY(lowerer_init(&lowerer, lines, rank));
    status = lowerer_put_line(&lowerer, rank);
    if (status == STATUS_OK) {
        *lowered_out = lowerer.lowered;
        lowerer.lowered = NULL;
    }
    lowerer_release(&lowerer);
    return status;
}

enum status plan_make_line(const struct plan_shape *shape, const char *path, int32_t rank,
                           struct plan **lowered_out)
{
    struct line_source lines;
    enum status status;

    TRY(open_lines(shape, path, &lines));
    status = make_line(&lines, rank, lowered_out);
    line_source_release(&lines);
    return status;
}

enum status plan_prove_evaluation_keeping(const struct plan *training, int32_t rank,
                                          struct plan **lowered_out)
{
    struct line_source lines;
    enum status status;

    TRY(open_evaluation(training, &lines));
    status = prove(&lines, rank, lowered_out);
    line_source_release(&lines);
    return status;
}

enum status plan_prove_evaluation(const struct plan *training, struct plan **lowered_out)
{
    return plan_prove_evaluation_keeping(training, ACTION_NONE, lowered_out);
}

enum status plan_make_evaluation_line(const struct plan *training, int32_t rank,
                                      struct plan **lowered_out)
{
    struct line_source lines;
    enum status status;

    TRY(open_evaluation(training, &lines));
    status = make_line(&lines, rank, lowered_out);
    line_source_release(&lines);
    return status;
}
