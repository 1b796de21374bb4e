#include "stages/data/dataset.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "stages/data/dataset_samples.h"

#define BYTE_VALUES 256

struct dataset {
    enum dataset_format format;
    int64_t positions; /* T */
    int64_t samples;
    struct file_map map;          /* owns; text */
    const unsigned char *text;    /* first byte of the part; lends from `map` */
    struct dataset_samples table; /* owns; samples */
};

/* A place in the text: `share` of its bytes, rounded to the next byte. */
static size_t place_at(double share, size_t bytes)
{
    double place = share * (double)bytes + 0.5;

    return share >= 1.0 || place >= (double)bytes ? bytes : (size_t)place;
}

/* A byte is a token; a smaller vocabulary than the bytes have is the exception. */
static enum status check_bytes(const struct dataset_config *config, const struct file_map *map,
                               size_t begin, size_t end)
{
    const unsigned char *text = map->data;

    if (config->vocab >= BYTE_VALUES) {
        return STATUS_OK;
    }
    for (size_t i = begin; i < end; i++) {
        if (text[i] >= config->vocab) {
            return status_fail(STATUS_ERR_REFUSED,
                               "data %s: byte %zu: expected a token below model.vocab_size %" PRId64
                               ", found %u",
                               config->path, i, config->vocab, text[i]);
        }
    }
    return STATUS_OK;
}

static enum status open_text(struct dataset *dataset, const struct dataset_config *config)
{
    size_t begin = 0;
    size_t end = 0;

    TRY(file_map_open(config->path, &dataset->map));
    begin = place_at(config->begin, dataset->map.bytes);
    end = place_at(config->end, dataset->map.bytes);
    if (end < begin || end - begin < (size_t)config->positions + 1) {
        return status_fail(STATUS_ERR_REFUSED,
                           "data %s: expected at least %" PRId64
                           " bytes (model.seq_len + 1) in its part from %g to %g, found %zu of the "
                           "file's %zu; give more text or change data.split or model.seq_len",
                           config->path, config->positions + 1, config->begin, config->end,
                           end > begin ? end - begin : 0, dataset->map.bytes);
    }
    TRY(check_bytes(config, &dataset->map, begin, end));
    dataset->text = (const unsigned char *)dataset->map.data + begin;
    dataset->samples = (int64_t)(end - begin - 1) / config->positions;
    return STATUS_OK;
}

enum status dataset_open(const struct dataset_config *config, struct dataset **dataset_out)
{
    enum status status = STATUS_OK;
    struct dataset *dataset = NULL;

    ENSURE(config->positions >= 1 && config->vocab >= 1, "dataset for T=%" PRId64 " V=%" PRId64,
           config->positions, config->vocab);
    ENSURE(config->types == 0 || config->format == DATASET_SAMPLES,
           "a text with %" PRId64 " token types", config->types);
    dataset = calloc(1, sizeof(*dataset));
    if (dataset == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "data %s: no memory", config->path);
    }
    dataset->format = config->format;
    dataset->positions = config->positions;
    if (config->format == DATASET_TEXT) {
        status = open_text(dataset, config);
    } else {
        status = dataset_samples_open(config, &dataset->table);
        dataset->samples = dataset->table.samples;
    }
    if (status < 0) {
        dataset_close(&dataset);
        return status;
    }
    *dataset_out = dataset;
    return STATUS_OK;
}

int64_t dataset_samples(const struct dataset *dataset)
{
    return dataset->samples;
}

static void read_text(const struct dataset *dataset, int64_t index, int32_t *tokens,
                      int32_t *targets, float *mask)
{
    const unsigned char *text = dataset->text + index * dataset->positions;

    for (int64_t t = 0; t < dataset->positions; t++) {
        if (tokens != NULL) {
            tokens[t] = text[t];
        }
        if (targets != NULL) {
            targets[t] = text[t + 1];
        }
        if (mask != NULL) {
            mask[t] = 1.0F;
        }
    }
}

void dataset_read(const struct dataset *dataset, int64_t index, int32_t *tokens, int32_t *targets,
                  float *mask)
{
    ENSURE(index >= 0 && index < dataset->samples, "sample %" PRId64 " of %" PRId64, index,
           dataset->samples);
    if (dataset->format == DATASET_TEXT) {
        read_text(dataset, index, tokens, targets, mask);
    } else {
        dataset_samples_read(&dataset->table, index, tokens, targets, mask);
    }
}

void dataset_read_types(const struct dataset *dataset, int64_t index, int32_t *types)
{
    ENSURE(index >= 0 && index < dataset->samples, "sample %" PRId64 " of %" PRId64, index,
           dataset->samples);
    dataset_samples_read_types(&dataset->table, index, types);
}

int64_t dataset_targets(const struct dataset *dataset, int64_t index)
{
    ENSURE(index >= 0 && index < dataset->samples, "sample %" PRId64 " of %" PRId64, index,
           dataset->samples);
    return dataset->format == DATASET_TEXT ? dataset->positions
                                           : dataset_samples_targets(&dataset->table, index);
}

void dataset_close(struct dataset **dataset)
{
    if (*dataset != NULL) {
        file_map_close(&(*dataset)->map);
        dataset_samples_close(&(*dataset)->table);
    }
    free(*dataset);
    *dataset = NULL;
}
