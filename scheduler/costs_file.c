#include "scheduler/costs_file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "scheduler/schedule.h"

#define VERSION     1
#define MOST_BYTES  ((size_t)64 << 20)
#define KEY_BYTES   96
#define VALUE_BYTES 64

/* Larger than any plan (scheduler/plan.c). */
#define MOST_RANKS        65536
#define MOST_STAGES       ((int64_t)1 << 25)
#define MOST_MICROBATCHES (1 << 20)

static const char *const compute_keys[COST_KINDS] = {
#define X(kind, key) key,
    COST_TABLE(X)
#undef X
};

static const char *const latency_keys[LANE_DIRECTIONS] = {"latency_F", "latency_B"};

static json_t *pack_stat(const struct cost_stat *stat)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f}", "count", (json_int_t)stat->count, "median",
                     stat->median, "p90", stat->p90, "mean", stat->mean, "typical", stat->typical);
}

static json_t *pack_stages(const struct costs *costs)
{
    json_t *stages = json_array();

    for (int32_t s = 0; s < costs->stages; s++) {
        json_t *stage = json_object();

        for (int k = 0; k < COST_KINDS; k++) {
            (void)json_object_set_new(stage, compute_keys[k], pack_stat(&costs->compute[k][s]));
        }
        for (int d = 0; d < LANE_DIRECTIONS; d++) {
            (void)json_object_set_new(stage, latency_keys[d], pack_stat(&costs->latency[d][s]));
        }
        (void)json_array_append_new(stages, stage);
    }
    return stages;
}

/* Mean latency over the links that have one. */
static double mean_latency(const struct costs *costs)
{
    double sum = 0.0;
    int count = 0;

    for (int32_t cell = 0; cell < costs->stages * LANE_DIRECTIONS; cell++) {
        const struct cost_stat *stat = &costs->latency[cell / costs->stages][cell % costs->stages];

        sum += stat->count > 0 ? stat->typical : 0.0;
        count += stat->count > 0 ? 1 : 0;
    }
    return count > 0 ? sum / count : 0.0;
}

static json_t *pack(const struct costs *costs)
{
    const struct costs_plan *plan = &costs->plan;
    double bytes = costs->message_bytes;
    json_t *busy = json_array();
    json_t *root =
        json_pack("{s:i, s:s, s:{s:s, s:i, s:i, s:i}, s:o, s:{s:f, s:f, s:f}}", "version", VERSION,
                  "unit", "ms", "plan", "schedule", plan->schedule, "pp", plan->ranks,
                  "virtual_stages", plan->virtual_stages, "num_microbatches", plan->microbatches,
                  "stages", pack_stages(costs), "message", "bytes", bytes, "a", mean_latency(costs),
                  "b", bytes > 0.0 ? costs->send.typical / bytes : 0.0);

    for (int32_t rank = 0; rank < plan->ranks; rank++) {
        (void)json_array_append_new(busy, json_real(costs->busy[rank]));
    }
    (void)json_object_set_new(root, "busy", busy);
#define X(member, key) (void)json_object_set_new(root, key, pack_stat(&costs->member));
    COST_SINGLE_TABLE(X)
#undef X
    return root;
}

enum status costs_file_write(const struct costs *costs, const char *path)
{
    json_t *root = pack(costs);
    char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    enum status status = text == NULL
                             ? status_fail(STATUS_ERR_NO_MEMORY, "%s: no memory for its text", path)
                             : file_write(path, text, strlen(text));

    free(text);
    json_decref(root);
    return status;
}

/* Where a value stands, for messages: file and key. */
struct place {
    const char *path;
    char key[KEY_BYTES];
};

static struct place place_in(const struct place *place, const char *key)
{
    struct place inner = {.path = place->path};

    (void)snprintf(inner.key, sizeof(inner.key), "%.40s%s%.40s", place->key,
                   place->key[0] != '\0' ? "." : "", key);
    return inner;
}

static enum status refuse(const struct place *place, const json_t *value, const char *expected)
{
    char text[VALUE_BYTES] = "nothing";

    if (value != NULL) {
        size_t bytes = json_dumpb(value, text, sizeof(text) - 1, JSON_ENCODE_ANY | JSON_COMPACT);

        text[bytes < sizeof(text) - 1 ? bytes : sizeof(text) - 1] = '\0';
    }
    return status_fail(STATUS_ERR_REFUSED, "%s: %s is %s, expected %s", place->path, place->key,
                       text, expected);
}

static enum status read_ms(const struct place *place, const json_t *object, const char *key,
                           double *out)
{
    const json_t *value = json_object_get(object, key);
    struct place inner = place_in(place, key);

    if (!json_is_number(value) || !isfinite(json_number_value(value)) ||
        json_number_value(value) < 0.0) {
        return refuse(&inner, value, "a number of at least 0");
    }
    *out = json_number_value(value);
    return STATUS_OK;
}

static enum status read_count(const struct place *place, const json_t *object, const char *key,
                              int64_t least, int64_t most, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    struct place inner = place_in(place, key);
    char expected[VALUE_BYTES];

    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most) {
        (void)snprintf(expected, sizeof(expected), "a whole number from %lld to %lld",
                       (long long)least, (long long)most);
        return refuse(&inner, value, expected);
    }
    *out = json_integer_value(value);
    return STATUS_OK;
}

static enum status read_stat(const struct place *place, const json_t *object, const char *key,
                             struct cost_stat *out)
{
    const json_t *value = json_object_get(object, key);
    struct place inner = place_in(place, key);

    if (!json_is_object(value)) {
        return refuse(&inner, value, "an object");
    }
    TRY(read_count(&inner, value, "count", 0, INT64_MAX, &out->count));
    TRY(read_ms(&inner, value, "median", &out->median));
    TRY(read_ms(&inner, value, "p90", &out->p90));
    TRY(read_ms(&inner, value, "mean", &out->mean));
    return read_ms(&inner, value, "typical", &out->typical);
}

static enum status read_plan(const struct place *place, const json_t *root, struct costs_plan *out)
{
    const json_t *plan = json_object_get(root, "plan");
    const json_t *schedule = json_object_get(plan, "schedule");
    struct place inner = place_in(place, "plan");
    struct place name = place_in(&inner, "schedule");
    int64_t ranks = 1;
    int64_t chunks = 0;
    int64_t microbatches = 0;

    if (!json_is_object(plan)) {
        return refuse(&inner, plan, "an object");
    }
    if (!json_is_string(schedule) || json_string_length(schedule) >= sizeof(out->schedule)) {
        return refuse(&name, schedule, "the name of a schedule");
    }
    TRY(read_count(&inner, plan, "pp", 1, MOST_RANKS, &ranks));
    TRY(read_count(&inner, plan, "virtual_stages", 1, MOST_STAGES / ranks, &chunks));
    TRY(read_count(&inner, plan, "num_microbatches", 1, MOST_MICROBATCHES, &microbatches));
    (void)snprintf(out->schedule, sizeof(out->schedule), "%s", json_string_value(schedule));
    out->ranks = (int32_t)ranks;
    out->virtual_stages = (int32_t)chunks;
    out->microbatches = (int32_t)microbatches;
    return STATUS_OK;
}

/* An array of as many as there shall be. */
static enum status read_array(const struct place *place, const json_t *root, const char *key,
                              int64_t count, const json_t **out)
{
    const json_t *array = json_object_get(root, key);
    struct place inner = place_in(place, key);

    if (!json_is_array(array)) {
        return refuse(&inner, array, "an array");
    }
    if ((int64_t)json_array_size(array) != count) {
        return status_fail(STATUS_ERR_REFUSED, "%s: %s has %zu entries, expected %lld", place->path,
                           inner.key, json_array_size(array), (long long)count);
    }
    *out = array;
    return STATUS_OK;
}

static enum status read_stage(const struct place *place, const json_t *stages, int32_t s,
                              struct costs *costs)
{
    const json_t *stage = json_array_get(stages, (size_t)s);
    char key[KEY_BYTES / 2];
    struct place inner;

    (void)snprintf(key, sizeof(key), "stages[%d]", s);
    inner = place_in(place, key);
    if (!json_is_object(stage)) {
        return refuse(&inner, stage, "an object");
    }
    for (int k = 0; k < COST_KINDS; k++) {
        TRY(read_stat(&inner, stage, compute_keys[k], &costs->compute[k][s]));
    }
    for (int d = 0; d < LANE_DIRECTIONS; d++) {
        TRY(read_stat(&inner, stage, latency_keys[d], &costs->latency[d][s]));
    }
    return STATUS_OK;
}

static enum status read_busy(const struct place *place, const json_t *root, struct costs *costs)
{
    const json_t *busy = NULL;
    struct place inner = place_in(place, "busy");

    TRY(read_array(place, root, "busy", costs->plan.ranks, &busy));
    for (int32_t rank = 0; rank < costs->plan.ranks; rank++) {
        const json_t *value = json_array_get(busy, (size_t)rank);

        if (!json_is_number(value) || json_number_value(value) < 0.0) {
            return refuse(&inner, value, "numbers of at least 0");
        }
        costs->busy[rank] = json_number_value(value);
    }
    return STATUS_OK;
}

static enum status read_message(const struct place *place, const json_t *root, struct costs *costs)
{
    const json_t *message = json_object_get(root, "message");
    struct place inner = place_in(place, "message");

    return json_is_object(message) ? read_ms(&inner, message, "bytes", &costs->message_bytes)
                                   : refuse(&inner, message, "an object");
}

static enum status read_table(const struct place *place, const json_t *root, struct costs *costs)
{
    const struct single {
        const char *key;
        struct cost_stat *stat;
    } singles[] = {
#define X(member, key) {key, &costs->member},
        COST_SINGLE_TABLE(X)
#undef X
    };
    const json_t *stages = NULL;

    TRY(read_array(place, root, "stages", costs->stages, &stages));
    for (int32_t s = 0; s < costs->stages; s++) {
        TRY(read_stage(place, stages, s, costs));
    }
    TRY(read_busy(place, root, costs));
    TRY(read_message(place, root, costs));
    for (size_t i = 0; i < sizeof(singles) / sizeof(singles[0]); i++) {
        TRY(read_stat(place, root, singles[i].key, singles[i].stat));
    }
    return STATUS_OK;
}

static enum status read_root(const struct place *place, const json_t *root, struct costs *costs_out)
{
    const json_t *unit = json_object_get(root, "unit");
    struct place unit_place = place_in(place, "unit");
    struct costs_plan plan = {.ranks = 1, .virtual_stages = 1};
    struct costs costs;
    int64_t version = 0;
    enum status status;

    TRY(read_count(place, root, "version", VERSION, VERSION, &version));
    if (!json_is_string(unit) || strcmp(json_string_value(unit), "ms") != 0) {
        return refuse(&unit_place, unit, "\"ms\"");
    }
    TRY(read_plan(place, root, &plan));
    /* Before anything is allocated for them. */
    if ((int64_t)json_array_size(json_object_get(root, "stages")) !=
        (int64_t)plan.ranks * plan.virtual_stages) {
        return status_fail(STATUS_ERR_REFUSED, "%s: stages has %zu entries, expected %lld",
                           place->path, json_array_size(json_object_get(root, "stages")),
                           (long long)plan.ranks * plan.virtual_stages);
    }
    TRY(costs_init(&costs, &plan));
    status = read_table(place, root, &costs);
    if (status < 0) {
        costs_release(&costs);
        return status;
    }
    *costs_out = costs;
    return STATUS_OK;
}

enum status costs_file_read(const char *path, struct costs *costs_out)
{
    const struct place place = {.path = path};
    char *text = NULL;
    size_t bytes = 0;
    json_error_t error;
    json_t *root = NULL;
    enum status status;

    TRY(file_read(path, MOST_BYTES, &text, &bytes));
    root = json_loadb(text, bytes, 0, &error);
    free(text);
    if (!json_is_object(root)) {
        json_decref(root);
        return status_fail(STATUS_ERR_REFUSED, "%s, line %d: expected an object of JSON: %s", path,
                           root == NULL ? error.line : 1,
                           root == NULL ? error.text : "another value");
    }
    status = read_root(&place, root, costs_out);
    json_decref(root);
    return status;
}
