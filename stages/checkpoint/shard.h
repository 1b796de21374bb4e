/*
 * shard -- the file of one rank in a checkpoint: what it owns of its parameters, in fp32.
 *
 * A safetensors file. A tensor of the model named N has the entries
 *
 *     N.main   N.moment1   N.moment2      F32, one-dimensional; moment2 where the optimizer has one
 *
 * and, in the file's metadata, N with its place in the whole tensor as a JSON object:
 *
 *     {"shape": [rows, cols], "rows": r, "cols": c, "blocks": b, "first_row": i, "first_col": j,
 *      "first": f, "elems": n}
 *
 * The rank has a part of r × c of the whole: row y, column k·(c/b) + x of it (x < c/b) is row i + y,
 * column k·(cols/b) + j + x of the whole. The entries are elements f … f+n-1 of that part, row after
 * row. So a file can be read by whoever needs any part of it, without knowing who has written it.
 *
 * A tensor of which this rank owns nothing is not in its file.
 */
#ifndef STAGES_CHECKPOINT_SHARD_H
#define STAGES_CHECKPOINT_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "mixedprec/params.h"
#include "stages/checkpoint/manifest.h"
#include "stages/checkpoint/pieces.h"
#include "stages/checkpoint/safetensors.h"
#include "stages/fault.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which of its params a rank writes: what is not sliced is the same on all replicas, and one of
 * them has it. */
bool shard_has(const struct param *param, int32_t replica);

struct shard_writing {
    const char *path;
    const struct params *params;
    int32_t replica;
    const struct fault_writing *fault; /* NULL: none */
    const struct piece_watch *watch;   /* NULL: nobody */
};

/* Writes, sums and syncs the file. After a failure nothing is at `path`. */
enum status shard_write(const struct shard_writing *writing, struct manifest_sum *sum_out);

struct shard;

/* Maps the file and looks at all of it: STATUS_ERR_REFUSED, naming it, what is expected and what is
 * found, where it is missing or has another size or sum than `sum`, or is no shard. `watch` is told of
 * each piece that is summed; NULL: nobody. */
enum status shard_open(const char *path, const struct manifest_sum *sum,
                       const struct piece_watch *watch, struct shard **shard_out);

/* The same without `sum`: for a look at what is in it, or where somebody else sums it. Reads no more of it
 * than what says where its tensors lie. */
enum status shard_open_unsummed(const char *path, struct shard **shard_out);

/* What the file has of one tensor. */
struct shard_tensor {
    const char *name;         /* lends until close, as all below */
    struct param_shard place; /* of the part in the whole */
    int64_t rows;             /* of the part */
    int64_t cols;
    size_t first; /* of the part: the first element here */
    size_t elems;
    const float *main;
    const float *moment1;
    const float *moment2; /* NULL where there is none */
};

/* Tensors of the file. */
size_t shard_count(const struct shard *shard);
const struct shard_tensor *shard_at(const struct shard *shard, size_t index);

/* NULL where there is none. */
const struct shard_tensor *shard_find(const struct shard *shard, const char *name);

void shard_close(struct shard **shard);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_SHARD_H */
