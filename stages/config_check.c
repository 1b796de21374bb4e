#include "stages/config_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/config_layers.h"

#define BYTE_VOCABULARY 256
#define LIST_BYTES      256

/* "1, 2, 4, ... 64": the divisors of `number` up to `most`, cut where the text ends. */
static void list_divisors(int64_t number, int64_t most, char *list, size_t list_bytes)
{
    size_t used = 0;

    list[0] = '\0';
    for (int64_t divisor = 1; divisor <= number && divisor <= most; divisor++) {
        if (number % divisor != 0) {
            continue;
        }
        int wrote =
            snprintf(list + used, list_bytes - used, "%s%" PRId64, used == 0 ? "" : ", ", divisor);
        if (wrote < 0 || (size_t)wrote >= list_bytes - used) {
            list[used] = '\0';
            return;
        }
        used += (size_t)wrote;
    }
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static enum status check_model(const struct config_draft *draft, struct config *config)
{
    struct config_model *model = &config->model;
    char heads[LIST_BYTES];

    if (model->hidden_size % model->num_heads != 0) {
        list_divisors(model->hidden_size, model->hidden_size, heads, sizeof(heads));
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: model.num_heads: %" PRId64
                           " does not divide model.hidden_size %" PRId64
                           "; legal for this hidden_size: %s",
                           config_draft_place(draft, "model", "num_heads"), model->num_heads,
                           model->hidden_size, heads);
    }
    if (model->ffn_hidden_size == CONFIG_DERIVE) {
        model->ffn_hidden_size = 4 * model->hidden_size;
    }
    if (model->max_positions == CONFIG_DERIVE) {
        model->max_positions = model->seq_len;
    }
    if (model->seq_len > model->max_positions) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: model.seq_len: %" PRId64
                           " is more than model.max_positions %" PRId64
                           ", the rows of the position table; lower model.seq_len to %" PRId64
                           " or raise model.max_positions to %" PRId64,
                           config_draft_place(draft, "model", "seq_len"), model->seq_len,
                           model->max_positions, model->max_positions, model->seq_len);
    }
    return STATUS_OK;
}

static bool ends_in(const char *text, const char *ending)
{
    size_t text_bytes = strlen(text);
    size_t ending_bytes = strlen(ending);

    return text_bytes >= ending_bytes && strcmp(text + text_bytes - ending_bytes, ending) == 0;
}

static enum status check_vocabulary(const struct config_draft *draft, struct config *config)
{
    int64_t *vocabulary = &config->model.vocab_size;

    if (config->data.format == FORMAT_SAMPLES) {
        if (*vocabulary == CONFIG_DERIVE) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s: model.vocab_size: missing; a samples file does not say how "
                               "many tokens there are",
                               draft->path);
        }
        return STATUS_OK;
    }
    if (*vocabulary == CONFIG_DERIVE) {
        *vocabulary = BYTE_VOCABULARY;
    }
    if (*vocabulary < BYTE_VOCABULARY) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: model.vocab_size: expected at least %d for data.tokenizer byte, "
                           "found %" PRId64,
                           config_draft_place(draft, "model", "vocab_size"), BYTE_VOCABULARY,
                           *vocabulary);
    }
    return STATUS_OK;
}

/* A text has tokens and nothing else. */
static enum status check_tokentypes(const struct config_draft *draft, const struct config *config)
{
    if (config->model.num_tokentypes > 0 && config->data.format == FORMAT_TEXT) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: model.num_tokentypes: expected 0 for data.format text, which has "
                           "no token types, found %" PRId64
                           "; data.format samples has them in a tensor tokentypes",
                           config_draft_place(draft, "model", "num_tokentypes"),
                           config->model.num_tokentypes);
    }
    return STATUS_OK;
}

static enum status check_split(const struct config_draft *draft, const struct config *config)
{
    const double *split = config->data.split;
    double sum = split[0] + split[1] + split[2];

    if (fabs(sum - 1.0) > 1e-9) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: data.split: expected three shares with the sum 1, found %g + %g + "
                           "%g = %g",
                           config_draft_place(draft, "data", "split"), split[0], split[1], split[2],
                           sum);
    }
    if (split[0] <= 0.0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: data.split: the first share, for training, is %g; expected more "
                           "than 0",
                           config_draft_place(draft, "data", "split"), split[0]);
    }
    return STATUS_OK;
}

static enum status check_data(const struct config_draft *draft, struct config *config)
{
    struct config_data *data = &config->data;
    bool has_valid = false;

    if (data->train[0] == '\0') {
        return status_fail(STATUS_ERR_REFUSED, "%s: data.train: expected a file name, found \"\"",
                           config_draft_place(draft, "data", "train"));
    }
    if (data->format == FORMAT_AUTO) {
        data->format = ends_in(data->train, ".safetensors") ? FORMAT_SAMPLES : FORMAT_TEXT;
    }
    TRY(check_vocabulary(draft, config));
    TRY(check_tokentypes(draft, config));
    TRY(check_split(draft, config));
    has_valid = data->valid[0] != '\0' || (data->format == FORMAT_TEXT && data->split[1] > 0.0);
    if (config->train.eval_every > 0 && !has_valid) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: train.eval_every: %" PRId64
                           ", but there is nothing to evaluate on: give data.valid%s, or set "
                           "train.eval_every to 0",
                           config_draft_place(draft, "train", "eval_every"),
                           config->train.eval_every,
                           data->format == FORMAT_TEXT ? ", or data.split a second share" : "");
    }
    return STATUS_OK;
}

static enum status check_layers(const struct config_draft *draft, struct config *config)
{
    int64_t *counts = config->parallel.layers_per_stage;
    int64_t stages = config->parallel.pp * config->parallel.virtual_stages;
    int64_t layers = config->model.num_layers;
    int64_t given = 0;
    int64_t sum = 0;

    while (given < CONFIG_STAGES_MOST && counts[given] != CONFIG_DERIVE) {
        sum += counts[given];
        given++;
    }
    memset(counts + given, 0, (size_t)(CONFIG_STAGES_MOST - given) * sizeof(*counts));
    if (given == 0) {
        return config_split_layers(config);
    }
    if (given != stages) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel.layers_per_stage: expected %" PRId64
                           " counts (parallel.pp %" PRId64 " x virtual_stages %" PRId64
                           ") or auto, found %" PRId64,
                           config_draft_place(draft, "parallel", "layers_per_stage"), stages,
                           config->parallel.pp, config->parallel.virtual_stages, given);
    }
    if (sum != layers) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel.layers_per_stage: the sum is %" PRId64
                           ", model.num_layers is %" PRId64 "; make them the same, or write auto",
                           config_draft_place(draft, "parallel", "layers_per_stage"), sum, layers);
    }
    return STATUS_OK;
}

/* Given as one word, the field holds it for any number of stages. */
static enum status check_recompute(const struct config_draft *draft, struct config *config)
{
    enum recompute *kinds = config->train.recompute;
    int64_t stages = config->parallel.pp * config->parallel.virtual_stages;
    int64_t given = 0;

    if (config_draft_of(draft, config_schema_find("train", "recompute"))->list) {
        while (given < CONFIG_STAGES_MOST && (int)kinds[given] != CONFIG_DERIVE) {
            given++;
        }
        if (given != stages) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s: train.recompute: expected one word, or %" PRId64
                               " (parallel.pp %" PRId64 " x virtual_stages %" PRId64
                               "), found %" PRId64,
                               config_draft_place(draft, "train", "recompute"), stages,
                               config->parallel.pp, config->parallel.virtual_stages, given);
        }
    }
    memset(kinds + stages, 0, (size_t)(CONFIG_STAGES_MOST - stages) * sizeof(*kinds));
    return STATUS_OK;
}

/* Each shard of a layer has whole heads and an equal part of the MLP. The vocabulary needs no
 * divisor: its last parts are shorter, or empty. */
static enum status check_shards(const struct config_draft *draft, const struct config *config)
{
    const struct config_model *model = &config->model;
    int64_t tp = config->parallel.tp;
    char legal[LIST_BYTES];

    list_divisors(common_divisor(model->num_heads, model->ffn_hidden_size), model->vocab_size,
                  legal, sizeof(legal));
    if (model->num_heads % tp != 0 || model->ffn_hidden_size % tp != 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel.tp: expected a divisor of model.num_heads %" PRId64
                           " and of model.ffn_hidden_size %" PRId64 ", found %" PRId64
                           "; legal for this model: %s",
                           config_draft_place(draft, "parallel", "tp"), model->num_heads,
                           model->ffn_hidden_size, tp, legal);
    }
    if (tp > model->vocab_size) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel.tp: %" PRId64 " is more than model.vocab_size %" PRId64
                           ", whose rows are shared out; legal for this model: %s",
                           config_draft_place(draft, "parallel", "tp"), tp, model->vocab_size,
                           legal);
    }
    return STATUS_OK;
}

/* Where the number of ranks was given, or else where it would be. */
static const char *place_of_ranks(const struct config_draft *draft)
{
    static const char *const names[] = {"dp", "tp", "pp"};

    for (int i = 0; i < 3; i++) {
        if (config_draft_given(draft, "parallel", names[i])) {
            return config_draft_place(draft, "parallel", names[i]);
        }
    }
    return draft->path;
}

/* Each extent is at most 2^10, so no product here overflows. */
static enum status check_extents(const struct config_draft *draft, const struct config *config)
{
    const struct config_parallel *parallel = &config->parallel;
    int64_t ranks = parallel->pp * parallel->tp * parallel->dp;
    int64_t chunks = parallel->pp * parallel->virtual_stages;

    if (ranks > CONFIG_RANKS_MOST) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel: pp %" PRId64 " x tp %" PRId64 " x dp %" PRId64
                           " is %" PRId64 " ranks; at most %d are possible",
                           place_of_ranks(draft), parallel->pp, parallel->tp, parallel->dp, ranks,
                           CONFIG_RANKS_MOST);
    }
    if (chunks > CONFIG_STAGES_MOST) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel.virtual_stages: %" PRId64 " x parallel.pp %" PRId64
                           " is %" PRId64 " chunks; at most %d are possible, which is "
                           "virtual_stages %" PRId64 " with this pp",
                           config_draft_place(draft, "parallel", "virtual_stages"),
                           parallel->virtual_stages, parallel->pp, chunks, CONFIG_STAGES_MOST,
                           CONFIG_STAGES_MOST / parallel->pp);
    }
    return STATUS_OK;
}

/* Whether the schedule has an order of so many chunks, and of more micro-batches in flight. */
static enum status check_schedule(const struct config_draft *draft,
                                  const struct config_parallel *parallel)
{
    const char *key =
        config_draft_given(draft, "parallel", "virtual_stages") ? "virtual_stages" : "schedule";
    bool two = schedule_takes_chunks(parallel->schedule, 2);
    char list[LIST_BYTES];

    if (!schedule_takes_chunks(parallel->schedule, (int32_t)parallel->virtual_stages)) {
        return status_fail(
            STATUS_ERR_REFUSED,
            "%s: parallel.virtual_stages: %" PRId64
            " is not legal with parallel.schedule %s, which has %s: set it to %d; schedules with "
            "%" PRId64 ": %s",
            config_draft_place(draft, "parallel", key), parallel->virtual_stages,
            schedule_text(parallel->schedule), schedule_chunks_text(parallel->schedule),
            two ? 2 : 1, parallel->virtual_stages,
            schedule_list((int32_t)parallel->virtual_stages, list, sizeof(list)));
    }
    if (parallel->extra_in_flight > 0 && !schedule_takes_extra(parallel->schedule)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel.extra_in_flight: %" PRId64
                           ", but parallel.schedule %s has no such freedom: set it to 0; 1f1b has "
                           "it",
                           config_draft_place(draft, "parallel", "extra_in_flight"),
                           parallel->extra_in_flight, schedule_text(parallel->schedule));
    }
    return STATUS_OK;
}

static enum status check_parallel(const struct config_draft *draft, struct config *config)
{
    struct config_parallel *parallel = &config->parallel;

    TRY(check_extents(draft, config));
    TRY(check_shards(draft, config));
    TRY(check_schedule(draft, parallel));
    if (parallel->lane_depth == CONFIG_DERIVE) {
        parallel->lane_depth = 2;
    }
    TRY(check_recompute(draft, config));
    return check_layers(draft, config);
}

static enum status check_directories(const struct config_draft *draft, struct config *config)
{
    if (config->train.run_dir[0] == '\0') {
        int wrote =
            snprintf(config->train.run_dir, sizeof(config->train.run_dir), "runs/%s", config->name);

        if (wrote < 0 || (size_t)wrote >= sizeof(config->train.run_dir)) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s: the file's name is too long for a run directory; give "
                               "train.run_dir",
                               draft->path);
        }
    }
    if (config->checkpoint.dir[0] == '\0') {
        int wrote = snprintf(config->checkpoint.dir, sizeof(config->checkpoint.dir),
                             "%s/checkpoints", config->train.run_dir);

        if (wrote < 0 || (size_t)wrote >= sizeof(config->checkpoint.dir)) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s: train.run_dir: the name is too long for its checkpoints/; "
                               "give checkpoint.dir",
                               config_draft_place(draft, "train", "run_dir"));
        }
    }
    return STATUS_OK;
}

static enum status check_run(const struct config_draft *draft, struct config *config)
{
    const struct config_trace *trace = &config->trace;
    const struct config_control *control = &config->control;

    if (trace->first_step > trace->last_step) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: trace.first_step: %" PRId64 " is after trace.last_step %" PRId64,
                           config_draft_place(draft, "trace", "first_step"), trace->first_step,
                           trace->last_step);
    }
    if (control->heartbeat_s >= control->dead_after_s) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: control.heartbeat_s: %g is not below control.dead_after_s %g: "
                           "every rank would count as dead",
                           config_draft_place(draft, "control", "heartbeat_s"),
                           control->heartbeat_s, control->dead_after_s);
    }
    return check_directories(draft, config);
}

enum status config_check(const struct config_draft *draft, struct config *config)
{
    TRY(check_model(draft, config));
    TRY(check_data(draft, config));
    TRY(check_parallel(draft, config));
    TRY(config_check_batch(draft, config));
    TRY(config_check_rows(draft, config));
    TRY(config_check_slices(draft, config));
    TRY(config_check_optimizer(draft, config));
    TRY(config_check_precision(draft, config));
    return check_run(draft, config);
}
