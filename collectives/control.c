#include "collectives/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "collectives/control_link.h"
#include "collectives/control_message.h"
#include "collectives/desk.h"
#include "collectives/message.h"
#include "collectives/round.h"

/* The values of a round by column, as they travel; grows to the largest round and stays. */
struct columns {
    uint64_t *keys;
    double *numbers;
    uint64_t *bits;
    uint64_t *ops;
    const char **names;
    int32_t values; /* room for so many */
    int32_t key_count;
};

struct control {
    struct control_config config; /* its texts are the two below */
    char variant[CONTROL_VARIANT_BYTES];
    char device[CONTROL_VARIANT_BYTES];
    struct desk desk;
    struct control_link *link; /* NULL in a world of one */
    struct message_pack *pack;
    struct columns columns;
    struct round *alone; /* a world of one reduces here */
};

static enum status check_config(const struct control_config *config)
{
    ENSURE(config->cancel != NULL && config->variant != NULL && config->device != NULL,
           "control needs a cancel, a variant and a device");
    ENSURE(config->world >= 1 && config->rank >= 0 && config->rank < config->world, "rank %d of %d",
           (int)config->rank, (int)config->world);
    ENSURE(config->welcome_bytes <= CONTROL_WELCOME_MOST_BYTES, "a welcome of %zu bytes",
           config->welcome_bytes);
    if (!(config->heartbeat_s > 0.0) || !(config->dead_after_s >= 2.0 * config->heartbeat_s)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "control: heartbeat_s %g and dead_after_s %g: the first must be above 0 "
                           "and at most half of the second",
                           config->heartbeat_s, config->dead_after_s);
    }
    if (!(config->start_timeout_s > 0.0)) {
        return status_fail(STATUS_ERR_REFUSED, "control: start_timeout_s %g: must be above 0",
                           config->start_timeout_s);
    }
    return STATUS_OK;
}

static void release(struct control *control)
{
    round_destroy(&control->alone);
    message_pack_destroy(&control->pack);
    desk_release(&control->desk);
    free(control->columns.keys);
    free(control->columns.numbers);
    free(control->columns.bits);
    free(control->columns.ops);
    free((void *)control->columns.names);
    free(control);
}

/* A world of one reduces alone; any other meets the coordinator. */
static enum status start(struct control *control)
{
    TRY(desk_init(&control->desk, control->config.cancel));
    TRY(message_pack_create(&control->pack));
    if (control->config.world == 1) {
        return round_create(1, &control->alone);
    }
    TRY(control_link_start(&control->config, &control->desk, &control->link));
    return desk_await_welcome(&control->desk);
}

enum status control_open(const struct control_config *config, struct control **control_out)
{
    TRY(check_config(config));
    struct control *control = calloc(1, sizeof(*control));

    if (control == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "control: %zu bytes", sizeof(*control));
    }
    control->config = *config;
    (void)snprintf(control->variant, sizeof(control->variant), "%s", config->variant);
    (void)snprintf(control->device, sizeof(control->device), "%s", config->device);
    control->config.variant = control->variant;
    control->config.device = control->device;
    enum status status = start(control);

    if (status < 0) {
        if (control->link != NULL) {
            desk_leave(&control->desk);
            control_link_join(&control->link);
        }
        release(control);
        return status;
    }
    control->config.job_directory = NULL;
    *control_out = control;
    return STATUS_OK;
}

const void *control_welcome(const struct control *control, size_t *bytes_out)
{
    if (control->config.rank == 0) {
        *bytes_out = control->config.welcome_bytes;
        return control->config.welcome;
    }
    /* Laid once, before control_open() returned. */
    *bytes_out = control->desk.welcome_bytes;
    return control->desk.welcome;
}

/* Makes room for `elems` elements at `array`; what was in it is gone. */
static bool reserve(void *array, int32_t elems, size_t elem_bytes)
{
    void *old = NULL;
    void *fresh = calloc((size_t)elems, elem_bytes);

    if (fresh == NULL) {
        return false;
    }
    memcpy(&old, array, sizeof(old));
    free(old);
    memcpy(array, &fresh, sizeof(fresh));
    return true;
}

static enum status reserve_columns(struct columns *columns, int32_t values, int32_t key_count)
{
    bool good = true;

    if (values > columns->values) {
        columns->values = 0;
        good = reserve((void *)&columns->keys, values, sizeof(*columns->keys)) &&
               reserve((void *)&columns->numbers, values, sizeof(*columns->numbers)) &&
               reserve((void *)&columns->bits, values, sizeof(*columns->bits));
        columns->values = good ? values : 0;
    }
    if (good && key_count > columns->key_count) {
        columns->key_count = 0;
        good = reserve((void *)&columns->ops, key_count, sizeof(*columns->ops)) &&
               reserve((void *)&columns->names, key_count, sizeof(*columns->names));
        columns->key_count = good ? key_count : 0;
    }
    return good ? STATUS_OK
                : status_fail(STATUS_ERR_NO_MEMORY, "control: a round of %d keys and %d values",
                              (int)key_count, (int)values);
}

static void fill_columns(struct columns *columns, const struct control_round *round)
{
    for (int32_t i = 0; i < round->value_count; i++) {
        const struct control_value *value = &round->values[i];

        ENSURE(value->key >= 0 && value->key < round->key_count, "%s: key %d of %d", round->name,
               (int)value->key, (int)round->key_count);
        columns->keys[i] = (uint64_t)value->key;
        columns->numbers[i] = value->number;
        columns->bits[i] = value->bits;
    }
    for (int32_t i = 0; i < round->key_count; i++) {
        columns->ops[i] = (uint64_t)round->keys[i].op;
        columns->names[i] = round->keys[i].name;
    }
}

static enum status reduce_alone(struct control *control, const struct control_round *round,
                                struct control_outcome *outcome, double *numbers)
{
    const struct columns *columns = &control->columns;
    struct round_slot *slot = NULL;
    struct round_result result;

    TRY(round_reserve_keys(control->alone, round->key_count));
    for (int32_t i = 0; i < round->key_count; i++) {
        round_set_key(control->alone, i, round->keys[i].op, round->keys[i].name);
    }
    TRY(round_open_slot(control->alone, 0, round->value_count, &slot));
    (void)snprintf(slot->name, sizeof(slot->name), "%s", round->name);
    slot->number = round->number;
    for (int32_t i = 0; i < round->value_count; i++) {
        slot->keys[i] = columns->keys[i];
        slot->numbers[i] = columns->numbers[i];
        slot->bits[i] = columns->bits[i];
    }
    (void)snprintf(slot->note, sizeof(slot->note), "%s", round->note != NULL ? round->note : "");
    slot->given = true;
    round_reduce(control->alone, &result);
    outcome->status = result.status;
    memcpy(outcome->text, result.text, sizeof(outcome->text));
    outcome->stop_signal = __atomic_load_n(&control->desk.stop_signal, __ATOMIC_RELAXED);
    outcome->note_rank = result.note_rank;
    memcpy(outcome->note, result.note, sizeof(outcome->note));
    for (int32_t i = 0; i < round->key_count; i++) {
        numbers[i] = result.numbers[i];
    }
    return STATUS_OK;
}

static enum status reduce_together(struct control *control, const struct control_round *round,
                                   int64_t deadline_ns, struct control_outcome *outcome,
                                   double *numbers)
{
    const struct columns *columns = &control->columns;
    const struct control_part part = {.round = round,
                                      .shape = round_shape(round->keys, round->key_count),
                                      .keys = columns->keys,
                                      .numbers = columns->numbers,
                                      .bits = columns->bits,
                                      .ops = columns->ops,
                                      .names = control->config.rank == 0 ? columns->names : NULL};
    const void *bytes = NULL;
    size_t size = 0;

    control_head_put(control->pack, CONTROL_KIND_ROUND, control->desk.job, control->config.rank);
    control_part_put(control->pack, &part);
    if (message_pack_end(control->pack, &bytes, &size) < 0) {
        return status_fail(status_last()->code, "%s %" PRIu64 ": %s", round->name, round->number,
                           status_last()->message);
    }
    TRY(desk_lay_round(&control->desk, bytes, size, round->key_count));
    enum status status = desk_await_answer(&control->desk, deadline_ns, outcome, numbers);

    if (status == STATUS_ERR_TIMEOUT) {
        return status_fail(status, "%s %" PRIu64 ": rank 0 did not answer in time", round->name,
                           round->number);
    }
    if (status == STATUS_ERR_CANCELLED && !desk_is_aborted(&control->desk)) {
        return status_note(status, "%s %" PRIu64 ": cancelled", round->name, round->number);
    }
    return status;
}

enum status control_reduce(struct control *control, const struct control_round *round,
                           struct control_answer *answer, int64_t deadline_ns)
{
    struct control_outcome outcome;

    ENSURE(round->key_count >= 0 && round->key_count <= CONTROL_KEYS_MOST &&
               round->value_count >= 0 && round->value_count <= CONTROL_KEYS_MOST,
           "%s: %d keys, %d values", round->name, (int)round->key_count, (int)round->value_count);
    if (desk_is_aborted(&control->desk)) {
        return desk_tell_abort(&control->desk);
    }
    if (control->link != NULL && !desk_is_free(&control->desk)) {
        return status_fail(STATUS_ERR_INVALID,
                           "%s %" PRIu64 ": the round before it timed out and is not answered",
                           round->name, round->number);
    }
    TRY(reserve_columns(&control->columns, round->value_count, round->key_count));
    fill_columns(&control->columns, round);
    memset(&outcome, 0, sizeof(outcome));
    if (control->alone != NULL) {
        TRY(reduce_alone(control, round, &outcome, answer->numbers));
    } else {
        TRY(reduce_together(control, round, deadline_ns, &outcome, answer->numbers));
    }
    if (outcome.status != STATUS_OK) {
        return status_fail(outcome.status, "%s", outcome.text);
    }
    answer->stop_signal = outcome.stop_signal;
    answer->note_rank = outcome.note_rank;
    memcpy(answer->note, outcome.note, sizeof(answer->note));
    return STATUS_OK;
}

enum status control_measure_clock(struct control *control, int64_t deadline_ns,
                                  struct control_clock *clock_out)
{
    struct control_clock clock = {.differs = false};

    if (control->link != NULL && control->config.rank != 0) {
        enum status status = desk_await_clock(&control->desk, deadline_ns, &clock);

        if (status == STATUS_ERR_TIMEOUT) {
            return status_fail(status,
                               "rank 0 did not answer in time when its clock was asked for");
        }
        if (status == STATUS_ERR_CANCELLED && !desk_is_aborted(&control->desk)) {
            return status_note(status, "measuring the clock: cancelled");
        }
        TRY(status);
    }
    *clock_out = clock;
    return STATUS_OK;
}

void control_progress(struct control *control, const struct control_progress *progress)
{
    desk_set_progress(&control->desk, progress);
}

void control_waits(struct control *control, bool waits)
{
    if (control != NULL) {
        desk_set_waits(&control->desk, waits);
    }
}

void control_stall_after(struct control *control, double seconds)
{
    __atomic_store(&control->config.stall_after_s, &seconds, __ATOMIC_RELAXED);
}

void control_abort(struct control *control, const char *cause_text)
{
    struct control_cause cause = {.status = STATUS_ERR_PEER, .rank = control->config.rank};

    (void)snprintf(cause.text, sizeof(cause.text), "%s", cause_text);
    bool first = desk_abort(&control->desk, &cause, true);

    if (first && control->link == NULL && control->config.on_abort != NULL) {
        control->config.on_abort(control->config.context);
    }
}

void control_stop(struct control *control, int32_t signal_number)
{
    desk_set_stop(&control->desk, signal_number);
}

const char *control_abort_cause(const struct control *control, int32_t *rank_out)
{
    /* The cause is written once, so what is lent stays as it is. */
    bool aborted = desk_is_aborted((struct desk *)&control->desk);

    *rank_out = aborted ? control->desk.cause.rank : -1;
    return aborted ? control->desk.cause.text : "";
}

enum status control_close(struct control **control)
{
    struct control *gone = *control;
    enum status status = STATUS_OK;

    if (gone == NULL) {
        return STATUS_OK;
    }
    bool over = desk_is_aborted(&gone->desk);

    desk_leave(&gone->desk);
    control_link_join(&gone->link);
    if (!over && desk_is_aborted(&gone->desk)) {
        status = desk_tell_abort(&gone->desk);
    }
    release(gone);
    *control = NULL;
    return status;
}
