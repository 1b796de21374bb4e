/*
 * tensor_parallel -- what the shards of one layer do together: sum partial results, and show each
 * other a few numbers a row.
 *
 * A shard of a row-parallel product has a part of every sum: tensor_parallel_sum() makes the
 * whole of it, the same bits on every shard. Both functions are nothing where tp is 1. The data
 * lies in memory that the shards share (comm_shared), so that it is read where it is.
 *
 * All shards of a group call the same functions in the same order with the same sizes. That holds
 * because all run the same plan on the same micro-batches.
 */
#ifndef STAGES_MODEL_TENSOR_PARALLEL_H
#define STAGES_MODEL_TENSOR_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct control;
struct group;

struct tensor_parallel {
    struct group *group;         /* borrows; NULL where tp is 1 */
    int32_t size;                /* tp */
    int32_t index;               /* of this shard */
    struct control *control;     /* borrows; told of waits; NULL: nobody is */
    const struct cancel *cancel; /* borrows */
    int64_t deadline_ns;         /* of the run; set before each */
};

/* data (elems), in shared memory: becomes the sum over all shards, in ascending order. */
enum status tensor_parallel_sum(const struct tensor_parallel *tp, float *data, size_t elems);

/* data (tp, bytes_each), in shared memory: each shard has filled its own piece; afterwards all
 * pieces are there. `bytes_each` is a multiple of 64. */
enum status tensor_parallel_gather(const struct tensor_parallel *tp, void *data, size_t bytes_each);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_TENSOR_PARALLEL_H */
