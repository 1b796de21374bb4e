/* The reading half of stages/checkpoint/manifest.h. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "stages/checkpoint/manifest.h"
#include "stages/checkpoint/manifest_json.h"
#include "stages/config.h"

#define BYTES_MOST ((size_t)8 << 20)

/* What is being read, for messages. */
struct reading {
    const char *path;
    const json_t *object;
};

static enum status refuse(const struct reading *reading, const char *field, const char *expected)
{
    return status_fail(STATUS_ERR_REFUSED, "%s: the checkpoint cannot be used: %s: expected %s",
                       reading->path, field, expected);
}

/* A number from `least` on. */
static enum status read_count(const struct reading *reading, const json_t *object,
                              const char *field, int64_t least, int64_t most, int64_t *count_out)
{
    const json_t *value = json_object_get(object, field);

    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: the checkpoint cannot be used: %s: expected an integer from %lld "
                           "to %lld",
                           reading->path, field, (long long)least, (long long)most);
    }
    *count_out = json_integer_value(value);
    return STATUS_OK;
}

/* Sixteen digits. */
static bool read_hex(const json_t *value, uint64_t *sum_out)
{
    const char *text = json_string_value(value);
    char *end = NULL;

    if (text == NULL || strlen(text) != MANIFEST_HEX_BYTES - 1 ||
        strspn(text, "0123456789abcdef") != MANIFEST_HEX_BYTES - 1) {
        return false;
    }
    *sum_out = strtoull(text, &end, 16);
    return true;
}

/* The object without its sum has the sum that it says. */
static enum status check_sum(const struct reading *reading, json_t *object, uint64_t *sum_out)
{
    uint64_t expected = 0;
    uint64_t found = 0;

    if (!read_hex(json_object_get(object, "xxh3"), &expected)) {
        return refuse(reading, "xxh3", "a sum of 16 hexadecimal digits");
    }
    (void)json_object_del(object, "xxh3");
    if (!manifest_json_sum(object, &found)) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%s: no memory to sum it", reading->path);
    }
    if (found != expected) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: the checkpoint is damaged: expected the XXH3 sum %016llx, found "
                           "%016llx",
                           reading->path, (unsigned long long)expected, (unsigned long long)found);
    }
    *sum_out = found;
    return STATUS_OK;
}

static enum status read_extent(const struct reading *reading, const char *field, int64_t most,
                               int32_t *extent_out)
{
    int64_t extent = 0;

    TRY(read_count(reading, json_object_get(reading->object, "layout"), field, 1, most, &extent));
    *extent_out = (int32_t)extent;
    return STATUS_OK;
}

/* What is loaded by the layout is judged by the configuration: both say the same. */
static enum status check_extent(const struct reading *reading, const char *field, int32_t extent)
{
    const json_t *config = json_object_get(reading->object, "config");
    const json_t *value = json_object_get(json_object_get(config, "parallel"), field);

    if (json_is_integer(value) && json_integer_value(value) == extent) {
        return STATUS_OK;
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "%s: the checkpoint cannot be used: config.parallel.%s: expected %d, which "
                       "is layout.%s",
                       reading->path, field, extent, field);
}

static enum status read_layout(const struct reading *reading, struct grid_shape *layout)
{
    TRY(read_extent(reading, "pp", CONFIG_RANKS_MOST, &layout->pp));
    TRY(read_extent(reading, "tp", CONFIG_GROUP_MOST, &layout->tp));
    TRY(read_extent(reading, "dp", CONFIG_GROUP_MOST, &layout->dp));
    if (layout->pp * layout->tp * layout->dp > CONFIG_RANKS_MOST) {
        *layout = (struct grid_shape){.pp = 0};
        return refuse(reading, "layout", "at most 1024 ranks");
    }
    TRY(check_extent(reading, "pp", layout->pp));
    TRY(check_extent(reading, "tp", layout->tp));
    return check_extent(reading, "dp", layout->dp);
}

static enum status read_scale(const struct reading *reading, struct grad_scaler_state *scale)
{
    const json_t *object = json_object_get(reading->object, "loss_scale");
    const json_t *value = json_object_get(object, "scale");
    const json_t *dynamic = json_object_get(object, "dynamic");

    if (!json_is_boolean(dynamic)) {
        return refuse(reading, "loss_scale.dynamic", "true or false");
    }
    scale->dynamic = json_is_true(dynamic);
    scale->scale = json_number_value(value);
    if (!json_is_number(value) || !isfinite(scale->scale) || scale->scale <= 0.0) {
        return refuse(reading, "loss_scale.scale", "a number above 0");
    }
    TRY(read_count(reading, object, "good_steps", 0, CONFIG_STEPS_MOST, &scale->good_steps));
    return read_count(reading, object, "hysteresis_left", 0, CONFIG_STEPS_MOST,
                      &scale->hysteresis_left);
}

/* Each step is an update or is skipped, and takes a global batch: of how many sequences may have changed
 * on the way, so no product says how many there were in all. */
static enum status read_counts(const struct reading *reading, struct manifest *manifest)
{
    const json_t *object = reading->object;
    int64_t most = CONFIG_STEPS_MOST;

    TRY(read_count(reading, object, "step", 0, most, &manifest->step));
    TRY(read_count(reading, object, "updates", 0, manifest->step, &manifest->updates));
    TRY(read_count(reading, object, "consumed_samples", manifest->step,
                   manifest->step > 0 ? most : 0, &manifest->consumed));
    TRY(read_count(reading, object, "sequences", 1, most, &manifest->sequences));
    TRY(read_count(reading, object, "skipped", manifest->step - manifest->updates,
                   manifest->step - manifest->updates, &manifest->skipped));
    TRY(read_count(reading, object, "skipped_in_a_row", 0, manifest->skipped,
                   &manifest->skipped_in_a_row));
    return read_count(reading, object, "threads", 1, 1024, &manifest->threads);
}

/* {bytes, xxh3} of a file; `name` says of which, for messages. */
static enum status read_sum(const struct reading *reading, const json_t *object, const char *name,
                            struct manifest_sum *sum)
{
    int64_t bytes = 0;

    if (!json_is_object(object)) {
        return refuse(reading, name, "an object with bytes and xxh3");
    }
    TRY(read_count(reading, object, "bytes", 0, INT64_MAX, &bytes));
    sum->bytes = (uint64_t)bytes;
    return read_hex(json_object_get(object, "xxh3"), &sum->xxh3)
               ? STATUS_OK
               : refuse(reading, name, "an xxh3 of 16 hexadecimal digits");
}

static enum status read_file_entry(const struct reading *reading, const json_t *entry,
                                   const char *name, struct manifest_sum *sum)
{
    const char *found = json_string_value(json_object_get(entry, "name"));

    if (found == NULL || strcmp(found, name) != 0) {
        return refuse(reading, "files", name);
    }
    return read_sum(reading, entry, name, sum);
}

static enum status read_files(const struct reading *reading, struct manifest *manifest)
{
    const json_t *files = json_object_get(reading->object, "files");
    size_t count = (size_t)manifest_files(manifest);

    if (!json_is_array(files) || json_array_size(files) != count) {
        return refuse(reading, "files", "an entry for each rank of the layout");
    }
    manifest->files = calloc(count, sizeof(*manifest->files));
    if (manifest->files == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%s: no memory for %zu files", reading->path,
                           count);
    }
    for (size_t i = 0; i < count; i++) {
        char name[SHARD_NAME_BYTES];

        manifest_shard_name(&manifest->layout, (int32_t)i, name);
        TRY(read_file_entry(reading, json_array_get(files, i), name, &manifest->files[i]));
    }
    return STATUS_OK;
}

static enum status read_texts(const struct reading *reading, struct manifest *manifest)
{
    const json_t *config = json_object_get(reading->object, "config");
    const char *variant = json_string_value(json_object_get(reading->object, "variant"));

    if (variant == NULL || strlen(variant) >= sizeof(manifest->variant)) {
        return refuse(reading, "variant", "the name of a kernel variant");
    }
    memcpy(manifest->variant, variant, strlen(variant) + 1);
    if (!json_is_object(config)) {
        return refuse(reading, "config", "a configuration");
    }
    manifest->config = json_dumps(config, JSON_COMPACT | JSON_REAL_PRECISION(17));
    return manifest->config != NULL
               ? STATUS_OK
               : status_fail(STATUS_ERR_NO_MEMORY, "%s: no memory", reading->path);
}

static enum status read_object(const char *path, json_t *object, struct manifest *manifest)
{
    const struct reading reading = {.path = path, .object = object};
    int64_t format = 0;

    if (!json_is_object(object)) {
        return refuse(&reading, "the file", "a JSON object");
    }
    TRY(read_count(&reading, object, "format", MANIFEST_FORMAT, MANIFEST_FORMAT, &format));
    TRY(check_sum(&reading, object, &manifest->xxh3));
    TRY(read_counts(&reading, manifest));
    TRY(read_sum(&reading, json_object_get(object, "data"), "data", &manifest->data));
    TRY(read_scale(&reading, &manifest->scale));
    TRY(read_layout(&reading, &manifest->layout));
    TRY(read_texts(&reading, manifest));
    return read_files(&reading, manifest);
}

enum status manifest_read(const char *folder, struct manifest *manifest_out)
{
    char path[FILE_PATH_BYTES];
    char *text = NULL;
    size_t count = 0;
    json_t *object = NULL;
    json_error_t error;
    enum status status = STATUS_OK;

    *manifest_out = (struct manifest){.step = 0};
    TRY(folder_path(folder, MANIFEST_NAME, path));
    TRY(file_read(path, BYTES_MOST, &text, &count));
    object = json_loadb(text, count, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (object == NULL) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: the checkpoint is damaged: line %d, column %d: %s", path,
                           error.line, error.column, error.text);
    }
    status = read_object(path, object, manifest_out);
    json_decref(object);
    return status;
}
