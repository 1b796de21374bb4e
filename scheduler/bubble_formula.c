#include "scheduler/bubble_formula.h"

#include <math.h>
#include <stdbool.h>

/* Costs that differ by less are the same: sums of the same numbers in another order. */
#define SAME 1e-9

/* Where a formula comes from, with costs a rank and micro-batch. */
struct form {
    const struct plan_shape *shape;
    double F;
    double I;
    double W;
    int32_t microbatches; /* whole ones */
};

static double larger(double left, double right)
{
    return left > right ? left : right;
}

static bool all_same(const struct form *form)
{
    double slack = SAME * (form->F + form->I + form->W);

    return fabs(form->F - form->I) <= slack && fabs(form->I - form->W) <= slack;
}

/* Of gpipe, 1f1b, interleaved_1f1b and bfs. Where W is longer than F, the W of one chunk can be in the way of the
 * next chunk's forwards. */
static void find_whole(const struct form *form, struct bubble_formula *out)
{
    const struct plan_shape *shape = form->shape;
    bool chunks = shape->virtual_stages > 1;

    if (shape->early_send) {
        out->text = chunks ? "(p-1)(F+I)/v" : "(p-1)(F+I)";
    } else {
        out->text = chunks ? "(p-1)(F+I+W)/v" : "(p-1)(F+I+W)";
    }
    out->each = form->F + form->I + (shape->early_send ? 0.0 : form->W);
    out->parts = shape->virtual_stages;
    if (chunks && form->microbatches < shape->ranks) {
        out->limit = "m >= p";
    } else if (chunks && shape->schedule == SCHEDULE_INTERLEAVED_1F1B && shape->early_send &&
               form->W > form->F) {
        out->limit = "W <= F";
    } else if (chunks && shape->placement == PLACEMENT_ZIGZAG) {
        out->limit = "chunks go round a loop";
    }
}

/* Of zb_h1 and izb: a hop back takes I, and F as far as the W of a micro-batch before does not hide it. */
static void find_put_off(const struct form *form, struct bubble_formula *out)
{
    out->text = form->shape->virtual_stages > 1 ? "(p-1)max(F, I+max(0, F-W))/v"
                                                : "(p-1)max(F, I+max(0, F-W))";
    out->each = larger(form->F, form->I + larger(0.0, form->F - form->W));
    out->parts = form->shape->virtual_stages;
    out->limit = form->microbatches < form->shape->ranks ? "m >= p" : NULL;
}

/* The first (p-1)F are those of ranks that begin one after the other; what a rank waits between its own ends counts
 * where it is longer. */
static void find_h2(const struct form *form, struct bubble_formula *out)
{
    out->text = "(p-1)max(F, I-F, F+I-2W)";
    out->each = larger(form->F, larger(form->I - form->F, form->F + form->I - 2.0 * form->W));
    out->limit = form->microbatches < 2 * form->shape->ranks - 1 ? "m >= 2p-1" : NULL;
}

static void find_v(const struct form *form, struct bubble_formula *out)
{
    out->text = "(p-1)F/2";
    out->each = form->F;
    out->parts = 2;
    if (!all_same(form)) {
        out->limit = "F = I = W";
    } else if (form->microbatches < 2 * form->shape->ranks - 1) {
        out->limit = "m >= 2p-1";
    }
}

static void find_slices(const struct form *form, struct bubble_formula *out)
{
    const struct plan_shape *shape = form->shape;
    bool cut = shape->sequence_slices > 1;

    if (shape->early_send) {
        out->text = cut ? "(p-1)(F+I)/k" : "(p-1)(F+I)";
    } else {
        out->text = cut ? "(p-1)(F+I+W)/k" : "(p-1)(F+I+W)";
    }
    out->each = form->F + form->I + (shape->early_send ? 0.0 : form->W);
    out->parts = cut ? shape->sequence_slices : 1;
}

static void find_forwards(const struct form *form, struct bubble_formula *out)
{
    out->text = form->shape->virtual_stages > 1 ? "(p-1)F/v" : "(p-1)F";
    out->each = form->F;
    out->parts = form->shape->virtual_stages;
    out->limit = form->shape->virtual_stages > 1 && form->microbatches < form->shape->ranks
                     ? "m >= p"
                     : NULL;
}

static void find(const struct form *form, struct bubble_formula *out)
{
    switch (form->shape->schedule) {
    case SCHEDULE_GPIPE:
    case SCHEDULE_1F1B:
    case SCHEDULE_INTERLEAVED_1F1B:
    case SCHEDULE_BFS:
        find_whole(form, out);
        break;
    case SCHEDULE_ZB_H1:
    case SCHEDULE_IZB:
        find_put_off(form, out);
        break;
    case SCHEDULE_ZB_H2:
        find_h2(form, out);
        break;
    case SCHEDULE_ZB_V:
        find_v(form, out);
        break;
    case SCHEDULE_SEQ1F1B:
        find_slices(form, out);
        break;
    case SCHEDULE_FORWARD_ONLY:
        find_forwards(form, out);
        break;
    case SCHEDULE_V_HALF:
    case SCHEDULE_V_MIN:
    case SCHEDULE_FILE:
    case SCHEDULE_AUTO:
        break;
    }
}

void bubble_formula_find(const struct plan_shape *shape, double F, double I, double W,
                         struct bubble_formula *formula_out)
{
    int32_t slices = shape->sequence_slices > 1 ? shape->sequence_slices : 1;
    struct form form = {
        .shape = shape, .F = F, .I = I, .W = W, .microbatches = shape->microbatches / slices};
    struct bubble_formula out = {.hops = shape->ranks - 1, .parts = 1};

    find(&form, &out);
    if (out.hops == 0) { /* nothing is waited for, whatever the order */
        out.limit = NULL;
    }
    if (out.text != NULL && out.limit == NULL) {
        out.bubble = out.hops * out.each / out.parts;
    }
    *formula_out = out;
}

void bubble_formula_print(const struct bubble_formula *formula, enum schedule schedule, FILE *out)
{
    if (formula->text == NULL && schedule == SCHEDULE_FILE) {
        (void)fputs("simulated, because orders from a file have no closed form", out);
    } else if (formula->text == NULL) {
        (void)fprintf(out, "simulated, because %s has no closed form", schedule_text(schedule));
    } else if (formula->limit != NULL) {
        (void)fprintf(out, "simulated, because %s holds only where %s", formula->text,
                      formula->limit);
    } else {
        (void)fprintf(out, "%s = %d x %.2f ms", formula->text, (int)formula->hops,
                      formula->each / 1e6);
        if (formula->parts > 1) {
            (void)fprintf(out, " / %d", (int)formula->parts);
        }
        (void)fprintf(out, " = %.2f ms", formula->bubble / 1e6);
    }
}
