#include "stages/checkpoint/shard.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/checkpoint/sum.h"

struct shard {
    struct safetensors *file;        /* owns */
    struct shard_tensor *tensors;    /* owns */
    char (*names)[PARAM_NAME_BYTES]; /* owns */
    size_t count;
};

static enum status refuse(const char *path, const char *name, const char *cause)
{
    return status_fail(STATUS_ERR_REFUSED, "%s: tensor %s: %s; it is no shard of a checkpoint",
                       path, name, cause);
}

/* A number of a place. */
static bool read_number(const json_t *place, const char *key, int64_t least, int64_t *number_out)
{
    const json_t *value = json_object_get(place, key);

    *number_out = json_integer_value(value);
    return json_is_integer(value) && *number_out >= least;
}

static bool read_shape(const json_t *place, struct param_shard *shard)
{
    const json_t *shape = json_object_get(place, "shape");

    shard->whole_rows = json_integer_value(json_array_get(shape, 0));
    shard->whole_cols = json_integer_value(json_array_get(shape, 1));
    return json_array_size(shape) == 2 && shard->whole_rows >= 1 && shard->whole_cols >= 1 &&
           shard->whole_rows <= INT64_MAX / shard->whole_cols;
}

/* Whether the part lies within the whole, and the elements within the part. */
static bool place_fits(const struct shard_tensor *tensor)
{
    const struct param_shard *place = &tensor->place;
    int64_t blocks = place->blocks;

    if (tensor->rows > place->whole_rows || place->first_row > place->whole_rows - tensor->rows ||
        tensor->cols > place->whole_cols || tensor->cols % blocks != 0 ||
        place->whole_cols % blocks != 0 ||
        place->first_col > (place->whole_cols - tensor->cols) / blocks) {
        return false;
    }
    size_t part = (size_t)(tensor->rows * tensor->cols);
    return tensor->elems <= part && tensor->first <= part - tensor->elems;
}

static bool read_place(const char *text, struct shard_tensor *tensor)
{
    json_t *place = text != NULL ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    int64_t first = 0;
    int64_t elems = 0;
    bool good = read_shape(place, &tensor->place) && read_number(place, "rows", 1, &tensor->rows) &&
                read_number(place, "cols", 1, &tensor->cols) &&
                read_number(place, "blocks", 1, &tensor->place.blocks) &&
                read_number(place, "first_row", 0, &tensor->place.first_row) &&
                read_number(place, "first_col", 0, &tensor->place.first_col) &&
                read_number(place, "first", 0, &first) && read_number(place, "elems", 1, &elems);

    json_decref(place);
    tensor->first = (size_t)first;
    tensor->elems = (size_t)elems;
    return good && place_fits(tensor);
}

/* Entry N.`kind` of the tensor; *data_out NULL where there is none, false where it does not fit. */
static bool find_entry(const struct safetensors *file, const struct shard_tensor *tensor,
                       const char *kind, const float **data_out)
{
    char name[SAFETENSORS_NAME_BYTES];
    const struct safetensors_entry *entry = NULL;

    (void)snprintf(name, sizeof(name), "%s.%s", tensor->name, kind);
    entry = safetensors_find(file, name);
    *data_out = entry != NULL ? entry->data : NULL;
    return entry == NULL || (entry->dtype == SAFETENSORS_F32 && entry->dims == 1 &&
                             (size_t)entry->shape[0] == tensor->elems &&
                             (uintptr_t)entry->data % sizeof(float) == 0);
}

static enum status read_tensor(const char *path, struct shard *shard, const char *name,
                               size_t *entries)
{
    struct shard_tensor *tensor = &shard->tensors[shard->count];

    (void)snprintf(shard->names[shard->count], PARAM_NAME_BYTES, "%s", name);
    tensor->name = shard->names[shard->count];
    if (!read_place(safetensors_metadata(shard->file, tensor->name), tensor)) {
        return refuse(path, name, "expected its place in the metadata");
    }
    if (!find_entry(shard->file, tensor, "main", &tensor->main) ||
        !find_entry(shard->file, tensor, "moment1", &tensor->moment1) ||
        !find_entry(shard->file, tensor, "moment2", &tensor->moment2)) {
        return refuse(path, name, "expected F32 entries of as many elements as its place says");
    }
    *entries += (size_t)(tensor->main != NULL) + (size_t)(tensor->moment1 != NULL) +
                (size_t)(tensor->moment2 != NULL);
    shard->count++;
    return STATUS_OK;
}

/* "h.0.ln_1.weight.main" names a tensor; false for another entry. */
static bool tensor_name(const char *entry, char *name)
{
    static const char kind[] = ".main";
    size_t bytes = strlen(entry);
    size_t kind_bytes = sizeof(kind) - 1;

    if (bytes <= kind_bytes || bytes - kind_bytes >= PARAM_NAME_BYTES ||
        strcmp(entry + bytes - kind_bytes, kind) != 0) {
        return false;
    }
    memcpy(name, entry, bytes - kind_bytes);
    name[bytes - kind_bytes] = '\0';
    return true;
}

static enum status read_tensors(const char *path, struct shard *shard)
{
    size_t count = safetensors_count(shard->file);
    size_t entries = 0;

    shard->tensors = calloc(count + 1, sizeof(*shard->tensors));
    shard->names = calloc(count + 1, sizeof(*shard->names));
    if (shard->tensors == NULL || shard->names == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%s: no memory for %zu tensors", path, count);
    }
    for (size_t i = 0; i < count; i++) {
        const char *entry = safetensors_at(shard->file, i)->name;
        char name[PARAM_NAME_BYTES];

        TRY(tensor_name(entry, name) ? read_tensor(path, shard, name, &entries) : STATUS_OK);
    }
    if (entries != count) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: expected entries .main, .moment1 and .moment2 of named tensors "
                           "alone; it is no shard of a checkpoint",
                           path);
    }
    return STATUS_OK;
}

/* What a file must be, and who watches. */
struct expected {
    const struct manifest_sum *sum;
    const struct piece_watch *watch;
};

static enum status sum_pieces(const char *bytes, size_t count, const struct piece_watch *watch,
                              uint64_t *value_out)
{
    struct sum *sum = NULL;
    size_t done = 0;

    TRY(sum_open(&sum));
    while (done < count) {
        size_t piece = pieces_next(count - done);

        sum_add(sum, bytes + done, piece);
        done += piece;
        pieces_tell(watch);
    }
    *value_out = sum_value(sum);
    sum_close(&sum);
    return STATUS_OK;
}

static enum status check_sum(const void *context, const char *path, const void *bytes, size_t count)
{
    const struct expected *expected = context;
    const struct manifest_sum *sum = expected->sum;
    uint64_t found = 0;

    if (count != sum->bytes) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: the checkpoint is damaged: expected %" PRIu64 " bytes, found %zu",
                           path, sum->bytes, count);
    }
    TRY(sum_pieces(bytes, count, expected->watch, &found));
    if (found != sum->xxh3) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: the checkpoint is damaged: expected the XXH3 sum %016" PRIx64
                           ", found %016" PRIx64,
                           path, sum->xxh3, found);
    }
    return STATUS_OK;
}

static enum status open_shard(const char *path, const struct expected *expected,
                              struct shard **shard_out)
{
    struct shard *shard = calloc(1, sizeof(*shard));
    enum status status = STATUS_OK;

    if (shard == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%s: no memory", path);
    }
    status =
        safetensors_open_judged(path, expected != NULL ? check_sum : NULL, expected, &shard->file);
    if (status >= 0) {
        status = read_tensors(path, shard);
    }
    if (status < 0) {
        shard_close(&shard);
        return status;
    }
    *shard_out = shard;
    return STATUS_OK;
}

enum status shard_open(const char *path, const struct manifest_sum *sum,
                       const struct piece_watch *watch, struct shard **shard_out)
{
    const struct expected expected = {.sum = sum, .watch = watch};

    return open_shard(path, &expected, shard_out);
}

enum status shard_open_unsummed(const char *path, struct shard **shard_out)
{
    return open_shard(path, NULL, shard_out);
}

size_t shard_count(const struct shard *shard)
{
    return shard->count;
}

const struct shard_tensor *shard_at(const struct shard *shard, size_t index)
{
    return &shard->tensors[index];
}

const struct shard_tensor *shard_find(const struct shard *shard, const char *name)
{
    for (size_t i = 0; i < shard->count; i++) {
        if (strcmp(shard->tensors[i].name, name) == 0) {
            return &shard->tensors[i];
        }
    }
    return NULL;
}

void shard_close(struct shard **shard)
{
    if (*shard == NULL) {
        return;
    }
    safetensors_close(&(*shard)->file);
    free((*shard)->tensors);
    free((*shard)->names);
    free(*shard);
    *shard = NULL;
}
