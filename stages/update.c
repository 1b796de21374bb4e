#include "stages/update.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "stages/worker.h"
#include "tensor/kernels.h"

/* The fixed keys of the STEP round; norms and costs follow. */
enum key {
    KEY_FOUND_INF,
    KEY_LOSS_SUM,
    KEY_NEXT_TARGETS,
    KEY_BUSY_NS,
    KEY_BEGIN_NS, /* negated, so that MAX finds the earliest */
    KEY_END_NS,
    KEY_MEM_BYTES,
    KEY_OWNER_TRANSFER_NS, /* of the embedding group: what came to the owner, */
    KEY_OWNER_EXPOSED_NS,
    KEY_HEAD_TRANSFER_NS, /* and to the head */
    KEY_HEAD_EXPOSED_NS,
    KEY_NUM_ZEROS, /* where asked for */
    KEYS_FIXED
};

static const struct control_key fixed_keys[KEYS_FIXED] = {
    [KEY_FOUND_INF] = {"found_inf", CONTROL_MAX},
    [KEY_LOSS_SUM] = {"loss_sum", CONTROL_SUM},
    [KEY_NEXT_TARGETS] = {"next_targets", CONTROL_SUM},
    [KEY_BUSY_NS] = {"busy_ns", CONTROL_SUM},
    [KEY_BEGIN_NS] = {"begin_ns", CONTROL_MAX},
    [KEY_END_NS] = {"end_ns", CONTROL_MAX},
    [KEY_MEM_BYTES] = {"mem_bytes", CONTROL_MAX},
    [KEY_OWNER_TRANSFER_NS] = {"owner_transfer_ns", CONTROL_MAX},
    [KEY_OWNER_EXPOSED_NS] = {"owner_exposed_ns", CONTROL_MAX},
    [KEY_HEAD_TRANSFER_NS] = {"head_transfer_ns", CONTROL_MAX},
    [KEY_HEAD_EXPOSED_NS] = {"head_exposed_ns", CONTROL_MAX},
    [KEY_NUM_ZEROS] = {"num_zeros", CONTROL_SUM},
};

static int32_t norm_key(int32_t key)
{
    return KEYS_FIXED + key;
}

/* `which` is 0 F, 1 I, 2 W. */
static int32_t cost_key(const struct update *update, int which, int32_t stage)
{
    return KEYS_FIXED + update->config.norm_keys + which * update->config.stages + stage;
}

/* Of the squares of the parameters, where their norm is asked for. */
static int32_t params_norm_key(const struct update *update, int32_t key)
{
    return KEYS_FIXED + update->config.norm_keys + 3 * update->config.stages + key;
}

static void name_sums(struct update *update, const char *what, int32_t first)
{
    for (int32_t i = 0; i < update->config.norm_keys; i++) {
        int32_t key = first + i;

        (void)snprintf(update->names[key], sizeof(update->names[key]), "%s.%d", what, i);
        update->keys[key] = (struct control_key){update->names[key], CONTROL_SUM};
    }
}

static void name_keys(struct update *update)
{
    static const char kinds[] = "FIW";

    for (int32_t i = 0; i < KEYS_FIXED; i++) {
        update->keys[i] = fixed_keys[i];
    }
    name_sums(update, "sum_squares", norm_key(0));
    if (update->config.log_params_norm) {
        name_sums(update, "params_squares", params_norm_key(update, 0));
    }
    for (int which = 0; which < 3; which++) {
        for (int32_t stage = 0; stage < update->config.stages; stage++) {
            int32_t key = cost_key(update, which, stage);

            (void)snprintf(update->names[key], sizeof(update->names[key]), "cost.%d%c", stage,
                           kinds[which]);
            update->keys[key] = (struct control_key){update->names[key], CONTROL_MAX};
        }
    }
}

enum status update_init(struct update *update, const struct update_config *config)
{
    size_t keys = 0;

    update->config = *config;
    grad_scaler_init(&update->scaler, &config->scaler);
    update->key_count = params_norm_key(update, config->log_params_norm ? config->norm_keys : 0);
    if (update->key_count > CONTROL_KEYS_MOST) {
        return status_fail(STATUS_ERR_REFUSED,
                           "model.num_layers, parallel.pp and virtual_stages: a step has %d values "
                           "to agree on, at "
                           "most %d are possible",
                           update->key_count, CONTROL_KEYS_MOST);
    }
    keys = (size_t)update->key_count;
    update->keys = calloc(keys, sizeof(*update->keys));
    update->names = calloc(keys, sizeof(*update->names));
    update->values = calloc(keys, sizeof(*update->values));
    update->numbers = calloc(keys, sizeof(*update->numbers));
    if (update->keys == NULL || update->names == NULL || update->values == NULL ||
        update->numbers == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "step round of %zu keys", keys);
    }
    name_keys(update);
    return STATUS_OK;
}

static void give(struct update *update, int32_t *count, int32_t key, double number)
{
    update->values[*count] = (struct control_value){.key = key, .number = number};
    (*count)++;
}

/* The owner's half of the tied embedding: own gradient plus the head's, in this order everywhere. */
static enum status add_head_gradient(struct update *update)
{
    struct param *wte = params_find(update->params, "wte.weight");

    if (update->head_gradient == NULL || update->empty) {
        return STATUS_OK;
    }
    TRY(device_kernels(update->device)
            ->add(param_own_grad(wte), param_own_grad(wte), update->head_gradient, wte->own_elems,
                  device_stream(update->device)));
    if (update->tied->in != NULL) {
        tied_lanes_free_in(update->tied);
    }
    return STATUS_OK;
}

/* The sums of the keys that a parameter of this rank belongs to; they ascend in the table. */
static void give_norms(struct update *update, int32_t first, const double *sums, int32_t *count)
{
    int32_t last = -1;

    for (int32_t i = 0; i < update->params->count; i++) {
        int32_t key = update->params->table[i].norm_key;

        if (key != last) {
            give(update, count, first + key, sums[key]);
            last = key;
        }
    }
}

/* What was asked for to look at: zeros of the gradient, the norm of the parameters. */
static enum status give_extras(struct update *update, const struct grad_norm_run *run,
                               int32_t *count)
{
    const struct update_config *config = &update->config;
    int64_t zeros = 0;

    if (config->log_num_zeros) {
        TRY(grad_count_zeros(update->params, &config->copy, run, &zeros));
        give(update, count, KEY_NUM_ZEROS, (double)zeros);
    }
    if (config->log_params_norm) {
        double *sums = &update->numbers[params_norm_key(update, 0)];

        memset(sums, 0, (size_t)config->norm_keys * sizeof(*sums));
        TRY(params_norm_partials(update->params, &config->copy, run, sums, config->norm_keys));
        give_norms(update, params_norm_key(update, 0), sums, count);
    }
    return STATUS_OK;
}

static void give_times(struct update *update, const struct stage_worker *worker, int32_t *count)
{
    double busy = 0.0;

    for (int32_t i = 0; i < 3 * worker->chunk_count; i++) {
        const struct worker_chunk *own = &worker->chunks[i / 3];
        int which = i % 3;
        double busy_ns = (double)own->times.busy_ns[which];
        int32_t done = own->times.count[which];

        busy += busy_ns;
        give(update, count, cost_key(update, which, own->virtual_stage),
             done > 0 ? busy_ns * 1e-9 / done : 0.0);
    }
    give(update, count, KEY_BUSY_NS, busy);
    if (worker->first_begin_ns != 0) {
        give(update, count, KEY_BEGIN_NS, -(double)worker->first_begin_ns);
        give(update, count, KEY_END_NS, (double)worker->last_end_ns);
    }
    give(update, count, KEY_MEM_BYTES, (double)update->mem_bytes);
    if (update->sync != NULL) {
        bool owner = update->head_gradient != NULL;

        give(update, count, owner ? KEY_OWNER_TRANSFER_NS : KEY_HEAD_TRANSFER_NS,
             (double)worker->sync_transfer_ns);
        give(update, count, owner ? KEY_OWNER_EXPOSED_NS : KEY_HEAD_EXPOSED_NS,
             (double)worker->sync_exposed_ns);
    }
}

static enum status give_values(struct update *update, struct stage_worker *worker, double *sums,
                               char *note, size_t note_bytes, int32_t *count_out)
{
    const struct grad_norm_run run = {.device = update->device,
                                      .results = update->norm_results,
                                      .cancel = worker->cancel,
                                      .deadline_ns = worker->run.deadline_ns};
    const char *bad = NULL;
    int64_t next = 0;
    int32_t count = 0;

    memset(sums, 0, (size_t)update->config.norm_keys * sizeof(*sums));
    if (!update->empty) {
        /* The one wait of a step: what has been put into the stream ends here. */
        TRY(grad_norm_partials(update->params, &update->config.copy, &run, sums,
                               update->config.norm_keys, &bad));
        stage_worker_collect(worker);
    }
    note[0] = '\0';
    if (bad != NULL) {
        (void)snprintf(note, note_bytes, "the gradient of %s on rank %d (%s) is not finite", bad,
                       worker->rank, worker->place);
    }
    give(update, &count, KEY_FOUND_INF, bad != NULL ? 1.0 : 0.0);
    if (update->config.copy.first_shard) {
        give(update, &count, KEY_LOSS_SUM, worker->loss_sum);
    }
    if (update->loader != NULL && update->config.copy.first_shard) {
        TRY(loader_peek_targets(update->loader, worker->cancel, worker->run.deadline_ns, &next));
    }
    give(update, &count, KEY_NEXT_TARGETS, (double)next);
    give_norms(update, norm_key(0), sums, &count);
    TRY(give_extras(update, &run, &count));
    give_times(update, worker, &count);
    *count_out = count;
    return STATUS_OK;
}

static void read_answer(struct update *update, const struct control_answer *answer)
{
    const double *numbers = update->numbers;
    struct update_outcome *outcome = &update->outcome;
    double span = numbers[KEY_END_NS] + numbers[KEY_BEGIN_NS];
    bool found_inf = numbers[KEY_FOUND_INF] != 0.0;

    *outcome = (struct update_outcome){
        .empty = update->empty,
        .loss = update->targets > 0 ? numbers[KEY_LOSS_SUM] / (double)update->targets : 0.0,
        .grad_norm = grad_norm_total(&numbers[KEYS_FIXED], update->config.norm_keys,
                                     update->scaler.state.scale),
        .loss_scale = update->scaler.state.scale,
        .has_num_zeros = update->config.log_num_zeros,
        .num_zeros = numbers[KEY_NUM_ZEROS],
        .has_params_norm = update->config.log_params_norm,
        .lr = lr_schedule_at(&update->config.lr, update->updates + 1),
        .next_targets = (int64_t)numbers[KEY_NEXT_TARGETS],
        .stop_signal = answer->stop_signal,
        .bubble = span > 0.0 ? 1.0 - numbers[KEY_BUSY_NS] / (update->config.ranks * span) : 0.0,
        .F = &numbers[cost_key(update, 0, 0)],
        .I = &numbers[cost_key(update, 1, 0)],
        .W = &numbers[cost_key(update, 2, 0)],
        .mem_bytes = (int64_t)numbers[KEY_MEM_BYTES],
        .sync_transfer_s = 1e-9 * (numbers[KEY_OWNER_TRANSFER_NS] + numbers[KEY_HEAD_TRANSFER_NS]),
        .sync_exposed_s = 1e-9 * (numbers[KEY_OWNER_EXPOSED_NS] + numbers[KEY_HEAD_EXPOSED_NS]),
    };
    if (outcome->has_params_norm) {
        outcome->params_norm =
            grad_norm_total(&numbers[params_norm_key(update, 0)], update->config.norm_keys, 1.0);
    }
    outcome->skipped = found_inf || update->empty || !isfinite(outcome->grad_norm);
    if (update->empty) {
        (void)snprintf(outcome->cause, sizeof(outcome->cause),
                       "the global batch has no unmasked target");
    } else if (outcome->skipped) {
        (void)snprintf(outcome->cause, sizeof(outcome->cause), "%s",
                       answer->note[0] != '\0' ? answer->note : "the gradient norm is not finite");
    }
}

/* All ranks have the same answer, so all scale the next loss alike. A dynamic scale is part of the
 * cause of a skipped step: what it was, and what becomes of it. */
static void scale_next(struct update *update)
{
    struct update_outcome *outcome = &update->outcome;
    const struct grad_scaler *scaler = &update->scaler;
    enum grad_scaler_change change = GRAD_SCALER_KEPT;
    size_t used = strlen(outcome->cause);
    char *text = outcome->cause + used;
    size_t room = sizeof(outcome->cause) - used;

    if (!update->empty) {
        change = grad_scaler_update(&update->scaler, outcome->skipped);
    }
    outcome->hysteresis_left = scaler->config.dynamic ? (int32_t)scaler->state.hysteresis_left : 0;
    if (change == GRAD_SCALER_PATIENT) {
        (void)snprintf(text, room,
                       "; the loss scale stays %.10g, and shrinks after %" PRId64 " more",
                       scaler->state.scale, scaler->state.hysteresis_left);
    } else if (change == GRAD_SCALER_SHRANK) {
        (void)snprintf(text, room, "; the loss scale shrinks from %.10g to %.10g",
                       outcome->loss_scale, scaler->state.scale);
    } else if (change == GRAD_SCALER_AT_MINIMUM) {
        (void)snprintf(text, room, "; the loss scale %.10g is at precision.min_scale",
                       scaler->state.scale);
    }
}

/* The owner's new slice of the tied embedding goes back to the head, and the replicas gather what
 * each has updated a slice of. */
static enum status send_weights(const struct update *update, struct stage_worker *worker)
{
    if (update->head_gradient != NULL) {
        TRY(stage_worker_send_weights(worker, update->updates));
    }
    return replicas_gather(update->replicas, worker->run.deadline_ns);
}

static enum status apply(struct update *update, struct stage_worker *worker)
{
    const struct update_outcome *outcome = &update->outcome;

    if (!outcome->skipped) {
        double coefficient = grad_norm_coefficient(outcome->grad_norm, update->config.grad_clip);

        TRY(optimizer_update(&update->config.optimizer, update->params, update->device,
                             update->updates + 1, outcome->lr, coefficient / outcome->loss_scale));
        update->updates++;
        TRY(send_weights(update, worker));
    }
    TRY(params_zero_gradients(update->params));
    /* The last reader of the head's, the owner, had all of it before the round. */
    return update->head->gradient != NULL ? device_zero(update->device, update->head->gradient,
                                                        update->head->elems * sizeof(float))
                                          : STATUS_OK;
}

enum status update_run(struct update *update, struct stage_worker *worker,
                       struct update_times *times_out)
{
    char note[CONTROL_TEXT_BYTES];
    struct control_answer answer = {.numbers = update->numbers};
    struct control_round round = {
        .name = "STEP",
        .number = (uint64_t)worker->run.step,
        .keys = update->keys,
        .key_count = update->key_count,
        .values = update->values,
        .note = note,
    };

    times_out->norm_begin_ns = clock_now_ns();
    TRY(add_head_gradient(update));
    /* numbers doubles as scratch for the sums: the answer overwrites it. */
    TRY(give_values(update, worker, &update->numbers[KEYS_FIXED], note, sizeof(note),
                    &round.value_count));
    if (update->inspect != NULL && !update->empty) {
        update->inspect(update->inspect_context, update->params);
    }
    times_out->round_begin_ns = clock_now_ns();
    TRY(control_reduce(update->control, &round, &answer, worker->run.deadline_ns));
    times_out->round_end_ns = clock_now_ns();
    worker->sync_transfer_ns = 0;
    worker->sync_exposed_ns = 0;
    read_answer(update, &answer);
    scale_next(update);
    return apply(update, worker);
}

void update_release(struct update *update)
{
    free(update->keys);
    free(update->names);
    free(update->values);
    free(update->numbers);
    memset(update, 0, sizeof(*update));
}
