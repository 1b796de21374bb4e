/*
 * dataset -- sequences of tokens by number, from a text or a samples file.
 *
 *   text     bytes are tokens (vocabulary 256). Sample j is tokens [j·T, j·T+T], T inputs and
 *            their T targets; (n-1) div T samples. No mask: all targets count.
 *   samples  a safetensors file with `tokens` I32 (…, T+1), optional `loss_mask` F32 (…, T) of 0
 *            and 1, and `tokentypes` I32 (…, T) where the model has token types; all leading
 *            dimensions flattened.
 *
 * The file is mapped, not read; a part of it (data.split) is a range of samples. Knows nothing of
 * epochs, shuffling or layouts (stages/data/sampler.h).
 */
#ifndef STAGES_DATA_DATASET_H
#define STAGES_DATA_DATASET_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dataset;

enum dataset_format {
    DATASET_TEXT,
    DATASET_SAMPLES
};

struct dataset_config {
    const char *path;
    enum dataset_format format;
    int64_t positions; /* T */
    int64_t vocab;     /* every id must be in [0, vocab) */
    int64_t types;     /* every token type in [0, types); 0: there are none. Text has none */
    /* Text: the part of the file [begin, end) as shares of its bytes, 0 and 1 for all of it. */
    double begin;
    double end;
};

/* Maps the file and checks it: missing, empty, shorter than one sample, wrong shape for T, ids out
 * of range, masks other than 0 and 1, token types that are not there are STATUS_ERR_REFUSED with
 * file, place and value. */
enum status dataset_open(const struct dataset_config *config, struct dataset **dataset_out);

int64_t dataset_samples(const struct dataset *dataset);

/* Copies sample `index` in [0, samples): tokens (T), targets (T), mask (T). A NULL destination is
 * left out. */
void dataset_read(const struct dataset *dataset, int64_t index, int32_t *tokens, int32_t *targets,
                  float *mask);

/* Copies the token types (T) of sample `index`; of a data set opened with types > 0. */
void dataset_read_types(const struct dataset *dataset, int64_t index, int32_t *types);

/* Unmasked targets of sample `index`. */
int64_t dataset_targets(const struct dataset *dataset, int64_t index);

void dataset_close(struct dataset **dataset);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_DATA_DATASET_H */
