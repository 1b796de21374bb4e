/*
 * tensor_parallel -- what the shards of one layer do together: sum partial results, and show each
 * other a few numbers a row.
 *
 * A shard of a row-parallel product has a part of every sum: tensor_parallel_sum() makes the
 * whole of it, the same bits on every shard. With sequence parallelism a shard wants the sum of its
 * own rows only, tensor_parallel_scatter(), and shows the others its own rows of what a
 * column-parallel product reads, tensor_parallel_share(). All functions are nothing where tp is 1.
 * The data lies in memory that the shards share (comm_shared), so that it is read where it is.
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
#include "tensor/dtype.h"

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
    uint64_t *shared_bytes;      /* borrows; counts tensor_parallel_share(); NULL: nobody counts */
    const struct cancel *cancel; /* borrows */
    int64_t deadline_ns;         /* of the run; set before each */
};

/* data (elems), in shared memory: becomes the sum over all shards, in ascending order. */
enum status tensor_parallel_sum(const struct tensor_parallel *tp, float *data, size_t elems);

/* data (tp, bytes_each), in shared memory: each shard has filled its own piece; afterwards all
 * pieces are there. `bytes_each` is a multiple of 64. */
enum status tensor_parallel_gather(const struct tensor_parallel *tp, void *data, size_t bytes_each);

/* data (elems), in shared memory, elems / tp a multiple of 16: this shard's equal part becomes the
 * sum, with the bits of tensor_parallel_sum(); the rest is as it was. */
enum status tensor_parallel_scatter(const struct tensor_parallel *tp, float *data, size_t elems);

/* data (elems) in number format `type`, likewise: each shard has filled its equal part; afterwards
 * all parts are there. */
enum status tensor_parallel_share(const struct tensor_parallel *tp, void *data, size_t elems,
                                  enum dtype type);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_TENSOR_PARALLEL_H */
