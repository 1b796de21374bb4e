#include "stages/checkpoint/manifest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/file.h"
#include "base/folder.h"
#include "stages/checkpoint/manifest_json.h"
#include "stages/checkpoint/sum.h"

void manifest_shard_name(const struct grid_shape *layout, int32_t rank, char *name)
{
    struct grid grid;
    enum status status = grid_init(&grid, layout, rank, layout->pp * layout->tp * layout->dp);

    ENSURE(status == STATUS_OK, "rank %d of a layout that has been checked", rank);
    (void)snprintf(name, SHARD_NAME_BYTES, "shard-pp%d-tp%d-dp%d.safetensors", grid.pp, grid.tp,
                   grid.dp);
}

int32_t manifest_files(const struct manifest *manifest)
{
    return manifest->layout.pp * manifest->layout.tp * manifest->layout.dp;
}

/* Keys sorted and nothing between them: equal objects have equal texts. The caller frees it. */
static char *canonical_text(const json_t *object)
{
    return json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
}

bool manifest_json_sum(const json_t *object, uint64_t *sum_out)
{
    char *text = canonical_text(object);

    if (text != NULL) {
        *sum_out = sum_of(text, strlen(text));
    }
    free(text);
    return text != NULL;
}

/* {bytes, xxh3} */
static json_t *sum_object(const struct manifest_sum *sum)
{
    char hex[MANIFEST_HEX_BYTES];

    (void)snprintf(hex, sizeof(hex), "%016" PRIx64, sum->xxh3);
    return json_pack("{s:I, s:s}", "bytes", (json_int_t)sum->bytes, "xxh3", hex);
}

static json_t *files_array(const struct manifest *manifest)
{
    json_t *files = json_array();

    for (int32_t rank = 0; rank < manifest_files(manifest); rank++) {
        json_t *file = sum_object(&manifest->files[rank]);
        char name[SHARD_NAME_BYTES];

        manifest_shard_name(&manifest->layout, rank, name);
        (void)json_object_set_new(file, "name", json_string(name));
        (void)json_array_append_new(files, file);
    }
    return files;
}

/* NULL where there is no memory, or the configuration is no JSON. */
static json_t *manifest_object(const struct manifest *manifest)
{
    char hex[MANIFEST_HEX_BYTES];
    uint64_t sum = 0;
    json_t *object = json_pack(
        "{s:i, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:{s:b, s:f, s:I, s:I}, s:I, s:s, "
        "s:{s:i, s:i, s:i}, s:o, s:o}",
        "format", MANIFEST_FORMAT, "step", (json_int_t)manifest->step, "updates",
        (json_int_t)manifest->updates, "consumed_samples", (json_int_t)manifest->consumed,
        "sequences", (json_int_t)manifest->sequences, "data", sum_object(&manifest->data),
        "skipped", (json_int_t)manifest->skipped, "skipped_in_a_row",
        (json_int_t)manifest->skipped_in_a_row, "loss_scale", "dynamic",
        manifest->scale.dynamic ? 1 : 0, "scale", manifest->scale.scale, "good_steps",
        (json_int_t)manifest->scale.good_steps, "hysteresis_left",
        (json_int_t)manifest->scale.hysteresis_left, "threads", (json_int_t)manifest->threads,
        "variant", manifest->variant, "layout", "pp", manifest->layout.pp, "tp",
        manifest->layout.tp, "dp", manifest->layout.dp, "config",
        json_loads(manifest->config, JSON_REJECT_DUPLICATES, NULL), "files", files_array(manifest));

    if (object != NULL && manifest_json_sum(object, &sum)) {
        (void)snprintf(hex, sizeof(hex), "%016" PRIx64, sum);
        (void)json_object_set_new(object, "xxh3", json_string(hex));
    }
    return object;
}

enum status manifest_write(const char *folder, const struct manifest *manifest)
{
    char path[FILE_PATH_BYTES];
    json_t *object = NULL;
    char *text = NULL;
    enum status status = STATUS_OK;

    TRY(folder_path(folder, MANIFEST_NAME, path));
    object = manifest_object(manifest);
    if (object != NULL && json_object_get(object, "xxh3") != NULL) {
        text = json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    }
    json_decref(object);
    if (text == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "writing %s: no memory for its text", path);
    }
    status = file_write(path, text, strlen(text));
    free(text);
    return status;
}

enum status manifest_check_sizes(const char *folder, const struct manifest *manifest)
{
    for (int32_t rank = 0; rank < manifest_files(manifest); rank++) {
        char name[SHARD_NAME_BYTES];
        char path[FILE_PATH_BYTES];
        struct stat info;

        manifest_shard_name(&manifest->layout, rank, name);
        TRY(folder_path(folder, name, path));
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s: the checkpoint is damaged: this file of it is missing", path);
        }
        if ((uint64_t)info.st_size != manifest->files[rank].bytes) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s: the checkpoint is damaged: expected %" PRIu64
                               " bytes, found %lld",
                               path, manifest->files[rank].bytes, (long long)info.st_size);
        }
    }
    return STATUS_OK;
}

void manifest_release(struct manifest *manifest)
{
    free(manifest->config);
    free(manifest->files);
    *manifest = (struct manifest){.step = 0};
}
