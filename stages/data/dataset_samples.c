#include "stages/data/dataset_samples.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHAPE_BYTES 192

/* The file maps bytes at any alignment, so that elements are copied out and never pointed at. */
static int32_t token_at(const unsigned char *tokens, int64_t element)
{
    int32_t token = 0;

    memcpy(&token, tokens + (size_t)element * sizeof(token), sizeof(token));
    return token;
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

static enum status check_tokens(const struct dataset_config *config,
                                const struct dataset_samples *samples)
{
    int64_t width = samples->positions + 1;

    for (int64_t i = 0; i < samples->samples * width; i++) {
        int32_t token = token_at(samples->tokens, i);

        if (token < 0 || token >= config->vocab) {
            return status_fail(STATUS_ERR_REFUSED,
                               "data %s: tensor tokens: sample %" PRId64 ", position %" PRId64
                               ": expected a token in [0, %" PRId64
                               ") (model.vocab_size), found %" PRId32,
                               config->path, i / width, i % width, config->vocab, token);
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

static enum status open_mask(const struct dataset_config *config, struct dataset_samples *samples)
{
    const struct safetensors_entry *mask = safetensors_find(samples->file, "loss_mask");
    int64_t rows = 0;

    if (mask == NULL) {
        return STATUS_OK;
    }
    TRY(count_rows(config->path, mask, SAFETENSORS_F32, "F32", config->positions, &rows));
    if (rows != samples->samples) {
        return status_fail(STATUS_ERR_REFUSED,
                           "data %s: tensor loss_mask: expected %" PRId64
                           " rows as in tokens, found %" PRId64,
                           config->path, samples->samples, rows);
    }
    samples->mask = mask->data;
    return check_mask(config, samples);
}

enum status dataset_samples_open(const struct dataset_config *config,
                                 struct dataset_samples *samples)
{
    const struct safetensors_entry *tokens = NULL;

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
    TRY(check_tokens(config, samples));
    return open_mask(config, samples);
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
