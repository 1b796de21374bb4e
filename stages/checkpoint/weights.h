/*
 * weights -- a model's weights in and out of safetensors, in Hugging Face's GPT-2 names.
 *
 * Layouts are the file's own (Conv1D: input × output; c_attn columns Q|K|V), so nothing is
 * permuted. Files hold whole tensors in fp32: each rank reads its own parameters, and of a sharded
 * one its own part; it writes the main params of what it owns. The tied head is not written twice; one of its own is `lm_head.weight`.
 */
#ifndef STAGES_CHECKPOINT_WEIGHTS_H
#define STAGES_CHECKPOINT_WEIGHTS_H

#include <stdint.h>

#include "base/status.h"
#include "mixedprec/params.h"
#include "stages/checkpoint/pieces.h"
#include "stages/checkpoint/safetensors.h"
#include "stages/config.h"
#include "stages/model/parameters.h"
#include "stages/model/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills this rank's parameters, and the head's copy where there is one, from `path`: the entry of
 * a parameter is `prefix` + its name, and has its whole shape. Missing, of another type or shape: STATUS_ERR_REFUSED with
 * file, name and both shapes; some parameters may have been filled then. `watch` is told of what is
 * read; NULL: nobody. */
enum status weights_import(const char *path, const char *prefix, struct params *params,
                           const struct head_memory *head, const struct model_shape *shape,
                           const struct piece_watch *watch);

/* Whether `path` has all parameters of the whole model, in type and shape; reads its header only.
 * Refuses as weights_import() does, and names checkpoint.import where there is no such file. */
enum status weights_check_import(const char *path, const char *prefix,
                                 const struct model_shape *shape);

/* What stands in a file for a parameter: name, type and whole shape; no data. */
void weights_entry(const struct param *param, struct safetensors_entry *entry_out);

/* The file of one stage as one of its ranks sees it: `model.safetensors` where
 * `stages` is 1, else `model-0000k-of-0000n.safetensors`, k = stage + 1. `directory` exists, and is
 * the same for all of them. */
struct weights_file {
    const char *directory; /* borrows */
    int32_t stage;
    int32_t stages;
    int32_t shard;                   /* 0 … tp-1 */
    int32_t replica;                 /* 0 … dp-1 */
    const struct piece_watch *watch; /* borrows; told of what is written; NULL: nobody */
};

/*
 * Writes a stage's parameters, the fp32 main params, as one file of whole tensors, which its shards
 * and replicas fill together:
 *
 *     the first begins · a round of all · each writes · a round · the first ends
 *
 * The first is shard 0 of replica 0. The rounds are the caller's. Until the end the file has a
 * temporary name, so that its own never stands for half of it; after a failure weights_export_discard() removes it.
 * Parameters that are not sharded are those of shard 0. Each replica writes its slice of a sliced
 * one, replica 0 those that are not sliced.
 */
enum status weights_export_begin(const struct weights_file *file, const struct params *params);
enum status weights_export_write(const struct weights_file *file, const struct params *params);
enum status weights_export_end(const struct weights_file *file);

/* Where another rank failed, or a round: removes what the first began and did not end. */
void weights_export_discard(const struct weights_file *file);

/* What an index is made from. All borrowed. */
struct weights_index {
    int32_t stages; /* ranks of a pipeline; the first has the embedding, the last the head */
    const int32_t *stage_of; /* which of them has layer l, 0 … L-1; runs need not be contiguous */
    const struct model_shape *shape;
    const struct config_model *model;
};

/* Writes the index of the files where there are several stages, and, as the very last file,
 * config.json. Once, by one rank, when all files are there. */
enum status weights_export_index(const char *directory, const struct weights_index *index);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_WEIGHTS_H */
