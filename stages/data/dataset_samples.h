/*
 * dataset_samples -- the samples format of a dataset: ready-made rows of tokens, masks and types.
 *
 * A safetensors file with `tokens` I32 (…, T+1), optional `loss_mask` F32 (…, T), and `tokentypes`
 * I32 (…, T), which nobody looks at unless the model has token types; N rows when all leading
 * dimensions are flattened. Only stages/data/dataset.c looks in here.
 */
#ifndef STAGES_DATA_DATASET_SAMPLES_H
#define STAGES_DATA_DATASET_SAMPLES_H

#include <stdint.h>

#include "base/status.h"
#include "stages/checkpoint/safetensors.h"
#include "stages/data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dataset_samples {
    struct safetensors *file;    /* owns */
    const unsigned char *tokens; /* (N,T+1) I32, may be unaligned; lends from `file` */
    const unsigned char *mask;   /* (N,T) F32 of 0 and 1, or NULL; lends from `file` */
    const unsigned char *types;  /* (N,T) I32, or NULL; lends from `file` */
    int64_t samples;             /* N */
    int64_t positions;           /* T */
};

/* Maps the file and checks every token, mask and token type in it. STATUS_ERR_REFUSED with file, tensor,
 * place and value; what is open then is closed by dataset_samples_close(). */
enum status dataset_samples_open(const struct dataset_config *config,
                                 struct dataset_samples *samples);

/* As the functions of dataset.h; `index` is in [0, N). */
void dataset_samples_read(const struct dataset_samples *samples, int64_t index, int32_t *tokens,
                          int32_t *targets, float *mask);
void dataset_samples_read_types(const struct dataset_samples *samples, int64_t index,
                                int32_t *types);
int64_t dataset_samples_targets(const struct dataset_samples *samples, int64_t index);

/* Safe on a zeroed object, and twice. */
void dataset_samples_close(struct dataset_samples *samples);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_DATA_DATASET_SAMPLES_H */
