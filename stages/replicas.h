/*
 * replicas -- what the copies of one shard do together: sum gradients, and share out the tied
 * embedding, of which each replica updates a slice.
 *
 * Gradients are summed once a step, in fp32, in ascending dp order, and nothing is scaled: the loss
 * seed has done that. The tied embedding is never summed whole: replica d gets the sum of slice d
 * of the owner's gradient and of the head's, updates it, and the slices are gathered.
 *
 * All replicas call the same functions in the same order. Nothing happens where dp is 1.
 */
#ifndef STAGES_REPLICAS_H
#define STAGES_REPLICAS_H

#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "mixedprec/params.h"
#include "stages/model/parameters.h"

#ifdef __cplusplus
extern "C" {
#endif

struct control;
struct group;

struct replicas {
    struct group *group; /* borrows; NULL where dp is 1 */
    int32_t size;        /* dp */
    int32_t index;
    struct control *control;     /* borrows; told of waits; NULL: nobody is */
    const struct cancel *cancel; /* borrows */
};

/* Cuts what this rank has of a tied embedding into slices, one a replica. Before anything is
 * measured; without replicas the slice is the whole. */
void replicas_slice(const struct replicas *replicas, const struct model_shape *shape,
                    struct params *params, struct head_memory *head);

/* All gradients of this rank, and the tied head's where the embedding is on the same rank (else
 * SYNC sends it). */
enum status replicas_reduce(const struct replicas *replicas, const struct params *params,
                            const struct head_memory *head, int64_t deadline_ns);

/* gradient (elems): this replica's slice of it becomes the sum. */
enum status replicas_reduce_tied(const struct replicas *replicas, float *gradient, size_t elems,
                                 int64_t deadline_ns);

/* weights (elems): each replica has its own slice; afterwards all have all. */
enum status replicas_gather_tied(const struct replicas *replicas, float *weights, size_t elems,
                                 int64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_REPLICAS_H */
