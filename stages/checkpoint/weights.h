/*
 * weights -- a model's weights in and out of safetensors, in Hugging Face's GPT-2 names.
 *
 * Layouts are the file's own (Conv1D: input × output; c_attn columns Q|K|V), so nothing is
 * permuted. Each rank reads and writes its own parameters; the tied head is not written twice.
 */
#ifndef STAGES_CHECKPOINT_WEIGHTS_H
#define STAGES_CHECKPOINT_WEIGHTS_H

#include <stdint.h>

#include "base/status.h"
#include "mixedprec/params.h"
#include "stages/model/parameters.h"
#include "stages/model/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills this rank's parameters, and the head's copy where there is one, from `path`: the entry of
 * a parameter is `prefix` + its name. Missing, of another type or shape: STATUS_ERR_REFUSED with
 * file, name and both shapes; some parameters may have been filled then. */
enum status weights_import(const char *path, const char *prefix, struct params *params,
                           const struct head_memory *head, const struct model_shape *shape);

/* Whether `path` has all parameters of the whole model, in type and shape; reads its header only.
 * Refuses as weights_import() does, and names checkpoint.import where there is no such file. */
enum status weights_check_import(const char *path, const char *prefix,
                                 const struct model_shape *shape);

/* Writes this rank's parameters as one file: `model.safetensors` where `stages` is 1, else
 * `model-0000k-of-0000n.safetensors`, k = stage + 1. `directory` exists. */
enum status weights_export(const char *directory, int32_t stage, int32_t stages,
                           const struct params *params);

/* Writes the index of the shards where `stages` > 1, and, as the very last file, config.json;
 * `stage_of` says for layer l (0 … L-1) which stage wrote it. Once, by one rank, when all shards
 * are there. */
enum status weights_export_index(const char *directory, int32_t stages, const int32_t *stage_of,
                                 const struct model_shape *shape);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_WEIGHTS_H */
