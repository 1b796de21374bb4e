#include "stages/data/dataset_samples.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHAPE_BYTES 192

/* The file maps bytes at any alignment, so that elements are copied out and never pointed at. */
static int32_t id_at(const unsigned char *ids, int64_t element)
{
    int32_t id = 0;

    memcpy(&id, ids + (size_t)element * sizeof(id), sizeof(id));
    return id;
}

static float mask_at(const unsigned char *mask, int64_t element)
{
    float value = 0.0F;

    memcpy(&value, mask + (size_t)element * sizeof(value), sizeof(value));
    return value;
}

/* "(12, 8, 65)" */
static const char *print_shape(const struct safetensors_entry *entry, char *text, size_t text_bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int32_t i = 0; i < entry->dims; i++) {
        int wrote = snprintf(text + used, text_bytes - used, "%s%" PRId64, i == 0 ? "(" : ", ",
                             entry->shape[i]);

        used += wrote > 0 && (size_t)wrote < text_bytes - used ? (size_t)wrote : 0;
    }
    (void)snprintf(text + used, text_bytes - used, "%s)", entry->dims == 0 ? "(" : "");
    return text;
}

/* Rows of `width` elements in the tensor. */
static enum status count_rows(const char *path, const struct safetensors_entry *entry,
                              enum safetensors_dtype dtype, const char *expected, int64_t width,
                              int64_t *rows_out)
{
    char shape[SHAPE_BYTES];
    int64_t rows = 1;

    if (entry->dtype != dtype || entry->dims < 1 || entry->shape[entry->dims - 1] != width) {
        return status_fail(STATUS_ERR_REFUSED,
                           "data %s: tensor %s: expected %s with a last dimension of %" PRId64
                           " for model.seq_len, found %s of shape %s",
                           path, entry->name, expected, width,
                           entry->dtype == dtype ? expected : "another dtype",
                           print_shape(entry, shape, sizeof(shape)));
    }
    for (int32_t i = 0; i + 1 < entry->dims; i++) {
        rows *= entry->shape[i]; /* the file's size bounds the product: width >= 1 */
    }
    *rows_out = rows;
    return STATUS_OK;
}

/* What the integers of a tensor may be, and which key says so. */
struct id_range {
    const char *what; /* "token" */
    const char *key;  /* "model.vocab_size" */
    int64_t count;    /* ids are in [0, count) */
};

static enum status check_ids(const char *path, const struct safetensors_entry *entry, int64_t rows,
                             int64_t width, const struct id_range *range)
{
    for (int64_t i = 0; i < rows * width; i++) {
        int32_t id = id_at(entry->data, i);

        if (id < 0 || id >= range->count) {
            return status_fail(STATUS_ERR_REFUSED,
                               "data %s: tensor %s: sample %" PRId64 ", position %" PRId64
                               ": expected a %s in [0, %" PRId64 ") (%s), found %" PRId32,
                               path, entry->name, i / width, i % width, range->what, range->count,
                               range->key, id);
        }
    }
    return STATUS_OK;
}

static enum status check_mask(const struct dataset_config *config,
                              const struct dataset_samples *samples)
{
    for (int64_t i = 0; i < samples->samples * samples->positions; i++) {
        float value = mask_at(samples->mask, i);

        if (value != 0.0F && value != 1.0F) {
            return status_fail(STATUS_ERR_REFUSED,
                               "data %s: tensor loss_mask: sample %" PRId64 ", position %" PRId64
                               ": expected 0 or 1, found %g",
                               config->path, i / samples->positions, i % samples->positions,
                               (double)value);
        }
    }
    return STATUS_OK;
}

/* A tensor beside the tokens: as many rows, T wide. */
static enum status check_beside(const struct dataset_config *config,
                                const struct dataset_samples *samples,
                                const struct safetensors_entry *entry, enum safetensors_dtype dtype,
                                const char *expected)
{
    int64_t rows = 0;

    TRY(count_rows(config->path, entry, dtype, expected, config->positions, &rows));
    if (rows != samples->samples) {
        return status_fail(STATUS_ERR_REFUSED,
                           "data %s: tensor %s: expected %" PRId64
                           " rows as in tokens, found %" PRId64,
                           config->path, entry->name, samples->samples, rows);
    }
    return STATUS_OK;
}

static enum status open_mask(const struct dataset_config *config, struct dataset_samples *samples)
{
    const struct safetensors_entry *mask = safetensors_find(samples->file, "loss_mask");

    if (mask == NULL) {
        return STATUS_OK;
    }
    TRY(check_beside(config, samples, mask, SAFETENSORS_F32, "F32"));
    samples->mask = mask->data;
    return check_mask(config, samples);
}

static enum status open_types(const struct dataset_config *config, struct dataset_samples *samples)
{
    const struct safetensors_entry *types = safetensors_find(samples->file, "tokentypes");
    const struct id_range range = {"token type", "model.num_tokentypes", config->types};

    if (config->types == 0) {
        return STATUS_OK;
    }
    if (types == NULL) {
        return status_fail(STATUS_ERR_REFUSED,
                           "data %s: expected a tensor named tokentypes, I32 with a last dimension "
                           "of %" PRId64 ", for model.num_tokentypes %" PRId64
                           ", found none of %zu tensors; add it or set model.num_tokentypes to 0",
                           config->path, config->positions, config->types,
                           safetensors_count(samples->file));
    }
    TRY(check_beside(config, samples, types, SAFETENSORS_I32, "I32"));
    samples->types = types->data;
    return check_ids(config->path, types, samples->samples, samples->positions, &range);
}

enum status dataset_samples_open(const struct dataset_config *config,
                                 struct dataset_samples *samples)
{
    const struct safetensors_entry *tokens = NULL;
    const struct id_range range = {"token", "model.vocab_size", config->vocab};

    memset(samples, 0, sizeof(*samples));
    samples->positions = config->positions;
    TRY(safetensors_open(config->path, &samples->file));
    tokens = safetensors_find(samples->file, "tokens");
    if (tokens == NULL) {
        return status_fail(STATUS_ERR_REFUSED,
                           "data %s: expected a tensor named tokens, found none of %zu tensors",
                           config->path, safetensors_count(samples->file));
    }
    TRY(count_rows(config->path, tokens, SAFETENSORS_I32, "I32", config->positions + 1,
                   &samples->samples));
    if (samples->samples < 1) {
        return status_fail(STATUS_ERR_REFUSED,
                           "data %s: tensor tokens: expected at least one sample, found none",
                           config->path);
    }
    samples->tokens = tokens->data;
    TRY(check_ids(config->path, tokens, samples->samples, config->positions + 1, &range));
    TRY(open_mask(config, samples));
    return open_types(config, samples);
}

void dataset_samples_read(const struct dataset_samples *samples, int64_t index, int32_t *tokens,
                          int32_t *targets, float *mask)
{
    size_t positions = (size_t)samples->positions;
    const unsigned char *row = samples->tokens + (size_t)index * (positions + 1) * sizeof(int32_t);

    if (tokens != NULL) {
        memcpy(tokens, row, positions * sizeof(*tokens));
    }
    if (targets != NULL) {
        memcpy(targets, row + sizeof(*targets), positions * sizeof(*targets));
    }
    if (mask == NULL) {
        return;
    }
    if (samples->mask != NULL) {
        memcpy(mask, samples->mask + (size_t)index * positions * sizeof(*mask),
               positions * sizeof(*mask));
        return;
    }
    for (size_t t = 0; t < positions; t++) {
        mask[t] = 1.0F;
    }
}

void dataset_samples_read_types(const struct dataset_samples *samples, int64_t index,
                                int32_t *types)
{
    size_t bytes = (size_t)samples->positions * sizeof(*types);

    memcpy(types, samples->types + (size_t)index * bytes, bytes);
}

int64_t dataset_samples_targets(const struct dataset_samples *samples, int64_t index)
{
    int64_t targets = 0;

    if (samples->mask == NULL) {
        return samples->positions;
    }
    for (int64_t t = 0; t < samples->positions; t++) {
        targets += mask_at(samples->mask, index * samples->positions + t) != 0.0F ? 1 : 0;
    }
    return targets;
}

void dataset_samples_close(struct dataset_samples *samples)
{
    safetensors_close(&samples->file);
    memset(samples, 0, sizeof(*samples));
}
