#include "stages/tune/tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "stages/tune/calibration.h"
#include "stages/tune/order.h"
#include "stages/tune/progress.h"
#include "stages/tune/split.h"

/* Of the time, what calibration may take. */
#define CALIBRATION_SHARE 0.6

/* Jobs run in turns, so that what disturbs the machine for a while disturbs all alike. */
#define ROUNDS 2

/* How often the best are chosen anew, and how far a step may be from its prediction before its costs are
 * doubted: what is said of quiet machines is 3 %. */
#define TURNS    3
#define OFF_MOST 0.06

/* Contenders whose layers are divided anew, for each that really runs. */
#define SPLITS_EACH 3

struct points {
    struct tune_point *all; /* owns */
    size_t count;
};

struct tuner {
    const struct tune_base *base;
    const struct tune_settings *settings;
    struct tune_jobs *jobs;
    struct tune_result *result;
    struct tune_cost_table table; /* owns */
    struct points given_up;       /* that cannot be measured */
    struct points doubted;        /* whose costs were measured again */
    int64_t begin_ns;
    double longest_s; /* of a job so far */
};

static double passed_s(const struct tuner *tuner)
{
    return (double)(clock_now_ns() - tuner->begin_ns) * 1e-9;
}

/* Whether one job more, as long as the longest so far, ends within `share` of the time. */
static bool has_time(const struct tuner *tuner, double share)
{
    return passed_s(tuner) + tuner->longest_s <= share * tuner->settings->time_limit_s;
}

static double timeout_s(const struct tuner *tuner)
{
    double left = tuner->settings->time_limit_s - passed_s(tuner);

    return left > 1.0 ? left : 1.0;
}

static enum status points_add(struct points *points, const struct tune_point *point)
{
    struct tune_point *all = realloc(points->all, (points->count + 1) * sizeof(*all));

    if (all == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: %zu points", points->count + 1);
    }
    points->all = all;
    points->all[points->count++] = *point;
    return STATUS_OK;
}

static bool points_have(const struct points *points, const struct tune_point *point)
{
    for (size_t i = 0; i < points->count; i++) {
        if (tune_point_equal(&points->all[i], point)) {
            return true;
        }
    }
    return false;
}

/* The first point of the contender that is not measured and can be. */
static bool find_open_point(const struct tuner *tuner, const struct tune_contender *contender,
                            struct tune_point *point_out)
{
    for (int32_t s = 0; s < tune_contender_stages(contender); s++) {
        struct tune_layer_costs costs;

        tune_contender_point(contender, s, point_out);
        if (tune_cost_table_find(&tuner->table, point_out, &costs) != TUNE_MEASURED &&
            !points_have(&tuner->given_up, point_out)) {
            return true;
        }
    }
    return false;
}

/* The last job was ended because the time was up: no failure, where others have told something. */
static enum status run_out(struct tuner *tuner)
{
    tuner->result->out_of_time = true;
    return tuner->table.count > 0 ? STATUS_OK
                                  : status_fail(STATUS_ERR_TIMEOUT, "%s", status_last()->message);
}

static enum status calibrate(struct tuner *tuner, const struct tune_point *point)
{
    const struct tune_calibration calibration = {
        .base = tuner->base,
        .jobs = tuner->jobs,
        .limit_bytes = tuner->result->field.limit_bytes,
        .steps = tuner->settings->steps,
        .timeout_s = timeout_s(tuner),
    };
    bool possible = false;
    double seconds = 0.0;
    enum status status = tune_calibrate(&calibration, point, &tuner->table, &possible, &seconds);

    if (status == STATUS_ERR_TIMEOUT) {
        return run_out(tuner);
    }
    TRY(status);
    tuner->longest_s = seconds > tuner->longest_s ? seconds : tuner->longest_s;
    return possible ? STATUS_OK : points_add(&tuner->given_up, point);
}

/* Of the best by what is known so far, the first with a point that is not measured; those whose points cannot be
 * are passed over. */
static bool choose_point(const struct tuner *tuner, struct tune_point *point_out)
{
    const struct tune_field *field = &tuner->result->field;
    size_t wanted = (size_t)tuner->settings->verify + 1;
    size_t measured = 0;

    for (size_t i = 0; i < field->count && measured < wanted; i++) {
        if (find_open_point(tuner, &field->all[i], point_out)) {
            return true;
        }
        measured += field->all[i].quality == TUNE_MEASURED ? 1 : 0;
    }
    return false;
}

static enum status predict(struct tuner *tuner)
{
    TRY(tune_field_predict(&tuner->result->field, &tuner->table));
    tune_field_sort_by_guess(&tuner->result->field);
    return STATUS_OK;
}

/* Until those at the top are known, or `share` of the time is over. Begins with what is configured, where
 * that fits. */
static enum status calibrate_all(struct tuner *tuner, double share)
{
    struct tune_field *field = &tuner->result->field;
    size_t own = tune_field_configured(field);
    struct tune_point point;
    bool open = find_open_point(tuner, &field->all[own != SIZE_MAX ? own : 0], &point) ||
                choose_point(tuner, &point);

    while (open) {
        if (tuner->table.count > 0 && !has_time(tuner, share)) {
            tuner->result->out_of_time = true;
            return STATUS_OK;
        }
        TRY(calibrate(tuner, &point));
        TRY(predict(tuner));
        open = choose_point(tuner, &point);
    }
    return STATUS_OK;
}

/* The same contender with another split, where there is a better one that fits. */
static enum status divide(struct tuner *tuner, struct tune_contender *contender)
{
    int32_t counts[CONFIG_STAGES_MOST];
    struct tune_candidate divided = contender->candidate;
    struct tune_contender found;
    bool better = false;
    size_t need = 0;
    enum status status = STATUS_OK;

    TRY(tune_contender_take_plan(contender));
    status = tune_split_find(contender, &tuner->table, counts, &better);
    tune_contender_drop_plan(contender);
    if (status < 0 || !better) {
        return status;
    }
    divided.configured = false;
    divided.layers = counts;
    status = tune_contender_open(tuner->base, &divided, tuner->result->field.limit_bytes, &found,
                                 &better, &need);
    if (!better) {
        return status == STATUS_ERR_REFUSED ? STATUS_OK : status;
    }
    status = tune_contender_predict(&found, &tuner->table);
    if (status < 0) {
        tune_contender_release(&found);
        return status;
    }
    return tune_field_add(&tuner->result->field, &found);
}

static bool may_divide(const struct tune_contender *contender)
{
    return tune_contender_stages(contender) > 1 && contender->candidate.schedule != SCHEDULE_FILE;
}

static enum status divide_best(struct tuner *tuner)
{
    struct tune_field *field = &tuner->result->field;
    size_t count = (size_t)(tuner->settings->verify + 1) * SPLITS_EACH;

    tune_field_sort(field);
    count = count < field->ranked ? count : field->ranked;
    for (size_t i = 0; i < count; i++) {
        TRY(tune_interrupted(tuner->jobs->interrupt));
        TRY(may_divide(&field->all[i]) ? divide(tuner, &field->all[i]) : STATUS_OK);
    }
    tune_field_sort(field);
    return STATUS_OK;
}

/* The same contender with an order that has no name, where there is a better one that fits. */
static enum status order(struct tuner *tuner, struct tune_contender *contender, uint64_t number)
{
    char path[TUNE_JOB_PATH_BYTES + 32];
    const struct tune_order_search search = {
        .base = tuner->base,
        .table = &tuner->table,
        .path = path,
        .limit_bytes = tuner->result->field.limit_bytes,
        .seed = number,
    };
    struct tune_contender found;
    bool better = false;
    enum status status = STATUS_OK;

    (void)snprintf(path, sizeof(path), "%s/plan-%llu", tuner->jobs->folder,
                   (unsigned long long)number);
    tune_progress_show("searching an order, %llu", (unsigned long long)number);
    TRY(tune_contender_take_plan(contender));
    status = tune_order_find(&search, contender, &found, &better);
    tune_contender_drop_plan(contender);
    if (status < 0) {
        return status;
    }
    return better ? tune_field_add(&tuner->result->field, &found) : STATUS_OK;
}

/* Whether a better one of the field has the same costs and placement: a search would find the same. */
static bool is_like_better(const struct tune_field *field, size_t place)
{
    const struct tune_contender *own = &field->all[place];
    struct tune_point a;

    tune_contender_point(own, 0, &a);
    for (size_t i = 0; i < place; i++) {
        const struct tune_contender *other = &field->all[i];
        struct tune_point b;

        tune_contender_point(other, 0, &b);
        if (tune_point_equal(&a, &b) &&
            tune_contender_stages(own) == tune_contender_stages(other) &&
            schedule_placement(own->candidate.schedule) ==
                schedule_placement(other->candidate.schedule)) {
            return true;
        }
    }
    return false;
}

static enum status order_best(struct tuner *tuner)
{
    struct tune_field *field = &tuner->result->field;
    size_t ranked = field->ranked;
    uint64_t number = 0;

    for (size_t i = 0; i < ranked && number < (uint64_t)tuner->settings->verify + 1; i++) {
        bool searched = field->all[i].candidate.pp > 1 && !is_like_better(field, i);

        TRY(tune_interrupted(tuner->jobs->interrupt));
        number += searched ? 1 : 0;
        TRY(searched ? order(tuner, &field->all[i], number) : STATUS_OK);
    }
    tune_progress_wipe();
    tune_field_sort(field);
    return STATUS_OK;
}

static enum status verify_one(struct tuner *tuner, struct tune_contender *contender, int round)
{
    const struct tune_job job = {.candidate = &contender->candidate,
                                 .steps = tuner->settings->steps,
                                 .timeout_s = timeout_s(tuner)};
    char run_dir[TUNE_JOB_PATH_BYTES];
    char text[TUNE_CANDIDATE_TEXT_BYTES];
    struct tune_measure measure = {.steps = 0};
    double seconds = 0.0;
    enum status status = STATUS_OK;

    tune_candidate_print(&contender->candidate, text, sizeof(text));
    tune_progress_show("job %d runs, round %d of %d: %s", tuner->jobs->started + 1, round, ROUNDS,
                       text);
    status = tune_jobs_run(tuner->jobs, &job, run_dir, &seconds);
    tune_progress_wipe();
    if (status == STATUS_ERR_TIMEOUT) {
        return run_out(tuner);
    }
    if (status >= 0) {
        tuner->longest_s = seconds > tuner->longest_s ? seconds : tuner->longest_s;
        status = tune_measure_read(run_dir, false, &measure);
        tuner->jobs->keep = tuner->jobs->keep || status < 0;
        tune_jobs_forget(tuner->jobs, run_dir);
    }
    if (status >= 0) {
        log_info("job %d ran in %.1f s: %s, %.1f ms a step, %.1f predicted", tuner->jobs->started,
                 seconds, text, measure.median_s * 1e3, contender->step_s * 1e3);
        status = tune_contender_measured(contender, &measure);
    }
    tune_measure_release(&measure);
    return status;
}

/* What a turn runs: the chosen that did not run yet, and the fastest so far beside them. */
static bool is_due(const struct tuner *tuner, const struct tune_contender *contender, int turn)
{
    const struct tune_contender *first = &tuner->result->field.all[0]; /* sorted */

    return contender == first ||
           (contender->chosen && (contender->turn == 0 || contender->turn == turn));
}

/* One round of a turn. *ended_out: the time is up. */
static enum status verify_round(struct tuner *tuner, int turn, int round, bool *ended_out)
{
    struct tune_field *field = &tuner->result->field;

    for (size_t i = 0; i < field->count; i++) {
        if (!is_due(tuner, &field->all[i], turn)) {
            continue;
        }
        *ended_out = !has_time(tuner, 1.0);
        if (*ended_out) {
            tuner->result->out_of_time = true;
            return STATUS_OK;
        }
        field->all[i].turn = turn;
        TRY(verify_one(tuner, &field->all[i], round));
    }
    return STATUS_OK;
}

static bool is_off(const struct tune_contender *contender)
{
    double off_s = contender->measured_median_s - contender->step_s;

    return contender->measured_steps > 0 && contender->quality <= TUNE_INTERPOLATED &&
           (off_s > OFF_MOST * contender->step_s || off_s < -OFF_MOST * contender->step_s);
}

/* The costs that a contender which ran does not bear out, once more. */
static enum status doubt(struct tuner *tuner, const struct tune_contender *contender)
{
    char text[TUNE_CANDIDATE_TEXT_BYTES];
    struct tune_point point;

    tune_contender_point(contender, 0, &point);
    if (!is_off(contender) || points_have(&tuner->doubted, &point) || !has_time(tuner, 1.0)) {
        return STATUS_OK;
    }
    tune_candidate_print(&contender->candidate, text, sizeof(text));
    log_info("%s takes %.1f ms a step, and %.1f were predicted: its costs are measured again", text,
             contender->measured_median_s * 1e3, contender->step_s * 1e3);
    TRY(points_add(&tuner->doubted, &point));
    return calibrate(tuner, &point);
}

/* Whether other contenders are worth a run now. */
static enum status choose_again(struct tuner *tuner, bool *more_out)
{
    struct tune_field *field = &tuner->result->field;

    for (size_t i = 0; i < field->count; i++) {
        TRY(doubt(tuner, &field->all[i]));
    }
    TRY(predict(tuner));
    TRY(calibrate_all(tuner, 1.0));
    tune_field_sort(field);
    tune_field_choose(field, (size_t)tuner->settings->verify);
    *more_out = false;
    for (size_t i = 0; i < field->count; i++) {
        *more_out = *more_out || (field->all[i].chosen && field->all[i].measured_steps == 0);
    }
    return STATUS_OK;
}

static enum status verify_turn(struct tuner *tuner, int turn, bool *ended_out)
{
    for (int round = 1; !*ended_out && round <= ROUNDS; round++) {
        TRY(verify_round(tuner, turn, round, ended_out));
    }
    return STATUS_OK;
}

static enum status verify(struct tuner *tuner)
{
    bool ended = tuner->settings->verify == 0;

    tune_field_choose(&tuner->result->field, (size_t)tuner->settings->verify);
    for (int turn = 1; !ended && turn <= TURNS; turn++) {
        bool more = false;

        TRY(verify_turn(tuner, turn, &ended));
        TRY(ended || turn == TURNS ? STATUS_OK : choose_again(tuner, &more));
        ended = ended || !more;
    }
    return STATUS_OK;
}

static enum status search(struct tuner *tuner)
{
    struct tune_field *field = &tuner->result->field;
    struct tune_candidates candidates;
    enum status status = tune_candidates_make(tuner->base, tuner->settings->keys, &candidates);

    if (status >= 0) {
        status = tune_field_make(tuner->base, &candidates, tuner->jobs->interrupt, field);
    }
    tune_candidates_release(&candidates);
    if (status < 0) {
        return status;
    }
    log_info("%zu candidates are legal, %zu do not fit into memory, %zu are compared",
             field->candidates, field->too_large, field->count);
    TRY(calibrate_all(tuner, CALIBRATION_SHARE));
    if ((tuner->settings->keys >> TUNE_KEY_LAYERS & 1U) != 0) {
        TRY(divide_best(tuner));
    }
    tune_field_sort(field);
    if ((tuner->settings->keys >> TUNE_KEY_SCHEDULE & 1U) != 0) {
        TRY(order_best(tuner));
    }
    TRY(verify(tuner));
    tune_field_sort(field);
    return STATUS_OK;
}

enum status tune_run(const struct tune_base *base, const struct tune_settings *settings,
                     struct tune_jobs *jobs, struct tune_result *result_out)
{
    struct tuner tuner = {
        .base = base,
        .settings = settings,
        .jobs = jobs,
        .result = result_out,
        .begin_ns = clock_now_ns(),
    };
    enum status status = STATUS_OK;

    *result_out = (struct tune_result){.jobs = 0};
    status = search(&tuner);
    tune_progress_wipe();
    result_out->jobs = jobs->started;
    result_out->seconds = passed_s(&tuner);
    tune_cost_table_release(&tuner.table);
    free(tuner.given_up.all);
    free(tuner.doubted.all);
    return status;
}

void tune_result_release(struct tune_result *result)
{
    tune_field_release(&result->field);
    *result = (struct tune_result){.jobs = 0};
}
