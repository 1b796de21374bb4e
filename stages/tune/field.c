#include "stages/tune/field.h"

#include <stdlib.h>

#include "stages/memory.h"
#include "stages/tune/progress.h"

#define FIRST_CAPACITY 64

/* Times of a run are not steadier. */
#define TWINS_WITHIN 0.01

/* Of plans that are kept at once; the others are made again where they are simulated. */
#define ACTIONS_MOST ((int64_t)4000000)

enum status tune_field_add(struct tune_field *field, struct tune_contender *contender)
{
    if (field->count == field->capacity) {
        size_t capacity = field->capacity == 0 ? FIRST_CAPACITY : 2 * field->capacity;
        struct tune_contender *all = realloc(field->all, capacity * sizeof(*all));

        if (all == NULL) {
            tune_contender_release(contender);
            return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: %zu contenders", capacity);
        }
        field->all = all;
        field->capacity = capacity;
    }
    field->all[field->count++] = *contender;
    *contender = (struct tune_contender){.quality = TUNE_UNKNOWN};
    return STATUS_OK;
}

/* Nothing fits: the candidate that comes nearest. */
static enum status refuse_all(const struct tune_field *field, const struct tune_candidate *smallest,
                              size_t need)
{
    struct memory_unit unit = memory_unit_for(need);
    char text[TUNE_CANDIDATE_TEXT_BYTES];

    tune_candidate_print(smallest, text, sizeof(text));
    return status_fail(
        STATUS_ERR_REFUSED,
        "weir tune: none of %zu candidates fits into memory: a rank may have %.1f %s (%s), and the "
        "smallest candidate needs %.1f %s (%s)",
        field->candidates, (double)field->limit_bytes / unit.bytes, unit.name,
        field->limit_given ? "train.memory_limit" : "its part of this host's memory",
        (double)need / unit.bytes, unit.name, text);
}

static int64_t actions_of(const struct plan *plan)
{
    int64_t actions = 0;

    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        actions += plan->lines[rank].count;
    }
    return actions;
}

/* What field_make() has come to. */
struct planning {
    const struct tune_base *base;
    struct tune_field *field;
    const struct tune_candidate *smallest; /* of all that have a plan */
    size_t least;                          /* that it needs */
    int64_t actions;                       /* of plans that are kept */
};

static enum status take_candidate(struct planning *planning, const struct tune_candidate *candidate)
{
    struct tune_field *field = planning->field;
    struct tune_contender contender;
    size_t need = SIZE_MAX;
    bool fits = false;
    enum status status = tune_contender_open(planning->base, candidate, field->limit_bytes,
                                             &contender, &fits, &need);

    if (status < 0) {
        return status == STATUS_ERR_REFUSED ? STATUS_OK : status;
    }
    if (need < planning->least) {
        planning->least = need;
        planning->smallest = candidate;
    }
    field->too_large += fits ? 0 : 1;
    if (!fits) {
        return STATUS_OK;
    }
    planning->actions += actions_of(contender.plan);
    contender.keeps_plan = planning->actions < ACTIONS_MOST;
    tune_contender_drop_plan(&contender);
    return tune_field_add(field, &contender);
}

enum status tune_field_make(const struct tune_base *base, const struct tune_candidates *candidates,
                            struct tune_interrupt *interrupt, struct tune_field *field_out)
{
    struct planning planning = {.base = base, .field = field_out, .least = SIZE_MAX};

    *field_out = (struct tune_field){.candidates = candidates->count};
    field_out->limit_bytes = tune_memory_limit(base->config, &field_out->limit_given);
    for (size_t i = 0; i < candidates->count; i++) {
        TRY(tune_interrupted(interrupt));
        tune_progress_show("planning %zu of %zu", i + 1, candidates->count);
        TRY(take_candidate(&planning, &candidates->all[i]));
    }
    tune_progress_wipe();
    if (field_out->count > 0) {
        return STATUS_OK;
    }
    return planning.smallest != NULL
               ? refuse_all(field_out, planning.smallest, planning.least)
               : status_fail(STATUS_ERR_REFUSED, "weir tune: no candidate has a plan: %s",
                             status_last()->message);
}

enum status tune_field_predict(struct tune_field *field, const struct tune_cost_table *table)
{
    for (size_t i = 0; i < field->count; i++) {
        TRY(tune_contender_predict(&field->all[i], table));
    }
    return STATUS_OK;
}

static int by_number(double left, double right)
{
    return left < right ? -1 : left > right;
}

static int by_memory(const struct tune_contender *a, const struct tune_contender *b)
{
    if (a->need_bytes != b->need_bytes) {
        return a->need_bytes < b->need_bytes ? -1 : 1;
    }
    return 0;
}

static int compare_guesses(const void *left, const void *right)
{
    const struct tune_contender *a = left;
    const struct tune_contender *b = right;
    int order = (a->quality == TUNE_UNKNOWN ? 1 : 0) - (b->quality == TUNE_UNKNOWN ? 1 : 0);

    order = order != 0 ? order : by_number(a->step_s, b->step_s);
    return order != 0 ? order : by_memory(a, b);
}

void tune_field_sort_by_guess(struct tune_field *field)
{
    qsort(field->all, field->count, sizeof(*field->all), compare_guesses);
}

/* 0: ran itself; 1: predicted from measured costs; 2: the rest. */
static int class_of(const struct tune_contender *contender)
{
    if (contender->measured_steps > 0) {
        return 0;
    }
    return contender->quality <= TUNE_INTERPOLATED ? 1 : 2;
}

static int compare_ranks(const void *left, const void *right)
{
    const struct tune_contender *a = left;
    const struct tune_contender *b = right;
    int order = class_of(a) - class_of(b);

    order = order != 0 ? order : by_number(tune_contender_step_s(a), tune_contender_step_s(b));
    return order != 0 ? order : by_memory(a, b);
}

void tune_field_sort(struct tune_field *field)
{
    qsort(field->all, field->count, sizeof(*field->all), compare_ranks);
    field->ranked = 0;
    while (field->ranked < field->count && class_of(&field->all[field->ranked]) < 2) {
        field->ranked++;
    }
}

/* Whether one of the chosen is as good as the same. */
static bool has_twin(const struct tune_field *field, const struct tune_contender *contender)
{
    double step_s = tune_contender_step_s(contender);
    struct tune_point own;

    tune_contender_point(contender, 0, &own);
    for (size_t i = 0; i < field->count; i++) {
        const struct tune_contender *other = &field->all[i];
        struct tune_point point;

        tune_contender_point(other, 0, &point);
        if (other->chosen && tune_point_equal(&point, &own) &&
            step_s < tune_contender_step_s(other) * (1.0 + TWINS_WITHIN)) {
            return true;
        }
    }
    return false;
}

static struct tune_contender *find_next(struct tune_field *field)
{
    struct tune_contender *best = NULL;

    for (size_t i = 0; i < field->count; i++) {
        struct tune_contender *own = &field->all[i];

        if (!own->chosen && class_of(own) < 2 &&
            (best == NULL || tune_contender_step_s(own) < tune_contender_step_s(best)) &&
            !has_twin(field, own)) {
            best = own;
        }
    }
    return best;
}

void tune_field_choose(struct tune_field *field, size_t count)
{
    size_t configured = tune_field_configured(field);

    for (size_t i = 0; i < field->count; i++) {
        field->all[i].chosen = false;
    }
    while (count > 0) {
        struct tune_contender *next = find_next(field);

        if (next == NULL) {
            break;
        }
        next->chosen = true;
        count--;
    }
    if (configured != SIZE_MAX) {
        field->all[configured].chosen = true;
    }
}

size_t tune_field_configured(const struct tune_field *field)
{
    for (size_t i = 0; i < field->count; i++) {
        if (field->all[i].candidate.configured) {
            return i;
        }
    }
    return SIZE_MAX;
}

void tune_field_release(struct tune_field *field)
{
    for (size_t i = 0; i < field->count; i++) {
        tune_contender_release(&field->all[i]);
    }
    free(field->all);
    *field = (struct tune_field){.all = NULL};
}
