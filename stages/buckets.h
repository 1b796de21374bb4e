/*
 * buckets -- gradients of layers become sums over the replicas layer by layer, while W still runs.
 *
 * Two things that ZeRO (parallel.zero_stage >= 1) asks for, and that go together:
 *
 *   scattered   stages 2 and 3, in a step of one micro-batch: a replica keeps the sums of its own
 *               slices alone. W of a layer writes to a bucket, which is summed and free for another
 *               layer: one where it is summed at once, two where it overlaps. Only where that takes less
 *               memory than whole gradients. With more micro-batches there is nothing to sum before the
 *               last W has ended (stages/replicas.h).
 *   overlap     parallel.overlap_grad_reduce: as soon as W of a layer has ended for the last time in
 *               a step, a thread of its own sums it, while the backward goes on; between GPUs over NCCL a
 *               stream of the group's does, and the own slice is taken from a bucket when the next layer needs it.
 *
 * What takes part is what W alone adds to: weight matrices of layers. Biases, norms, embeddings and a
 * head become sums in REDUCE (replicas_reduce()), which first waits for all layers here. The sums have
 * the same bits either way: of each element the replicas' values are added in ascending dp order.
 *
 * All replicas run the same W's in the same order. What is summed lies in the shared block, at the
 * same place on all of them.
 */
#ifndef STAGES_BUCKETS_H
#define STAGES_BUCKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/comm.h"
#include "mixedprec/params.h"
#include "stages/model/chunk.h"
#include "stages/model/parameters.h"
#include "stages/model/shape.h"
#include "stages/reduce_thread.h"
#include "tensor/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BUCKETS_MOST 2

struct control;

/* One layer that has become sums in this run. */
struct bucket_sum {
    int64_t begin_ns;
    int64_t end_ns;
    uint64_t bytes; /* of what the replicas have summed */
};

struct buckets {
    bool scattered;
    bool overlaps;
    int32_t count;               /* of buckets, where scattered */
    struct comm *comm;           /* borrows; whose pending sends a wait retries */
    struct group *group;         /* borrows; aside where it overlaps */
    struct control *control;     /* borrows; told of waits; NULL: nobody is */
    const struct cancel *cancel; /* borrows */
    const struct params *params; /* borrows */
    struct device *device;       /* borrows */
    struct arena arena;          /* owns: the buckets */
    float *whole[BUCKETS_MOST][LAYER_TENSORS];
    int32_t *layers;              /* owns; by number: where its tensors begin in the table, or -1 */
    struct reduce_thread *thread; /* owns; where it overlaps on one */
    bool queued;                  /* it overlaps on a stream of the group's, without a thread */
    int64_t given[BUCKETS_MOST];  /* to the thread, when this bucket was last; 0: never */
    int64_t all_given;            /* to the thread, or to the stream */
    uint64_t calls[BUCKETS_MOST]; /* queued: of the group, when this bucket was last, */
    int32_t held[BUCKETS_MOST];   /* and the layer whose sums are still in it, or -1 */
    int64_t deadline_ns;          /* of the run */
    struct bucket_sum *sums; /* owns; of the run, sum_count of them; seen after buckets_finish() */
    int32_t sum_count;
    struct chunk_hook hook;
};

/* Whether anything becomes sums here. */
bool buckets_any(const struct buckets *buckets);

/* Whether buckets and slices take less than the whole gradients of a rank's `layers`, of which a chunk has
 * `chunk_layers` at most; sets how many buckets there are. `overlaps` is set. */
bool buckets_save(struct buckets *buckets, int32_t layers, int32_t chunk_layers, int32_t replicas);

/* Plans the buckets for what is scattered in `params`; nothing where nothing is. */
void buckets_measure(struct buckets *buckets, const struct params *params,
                     const struct model_shape *shape);

/* Places the buckets in the shared block's memory that the arena has been given, and starts the thread, where it overlaps
 * and tensors are the host's; `overlaps`, device, group, control and cancel are set. Borrows `params` until release. */
enum status buckets_prepare(struct buckets *buckets, const struct params *params,
                            const struct model_shape *shape);

/* Lets W of the chunk write to the buckets what is scattered. */
void buckets_point(const struct buckets *buckets, struct chunk_tensors *sums,
                   const struct chunk_range *range);

/* A run begins; its waits end at `deadline_ns`. */
void buckets_begin(struct buckets *buckets, int64_t deadline_ns);

/* What a chunk calls around each layer of its last W of the run. Lends. */
const struct chunk_hook *buckets_hook(const struct buckets *buckets);

/* Blocks until all layers that were given are sums. */
enum status buckets_finish(struct buckets *buckets);

/* Safe on a zeroed struct, and twice. The group's comm is still open. */
void buckets_release(struct buckets *buckets);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_BUCKETS_H */
