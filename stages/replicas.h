/*
 * replicas -- what the copies of one shard do together: sum gradients, and share out tensors, of
 * which each replica updates a slice (comm_slice(), tensor by tensor).
 *
 *                 a tied embedding                    every other tensor
 *   whole         sums of slices, gathered weights    sums of all, updated by all alike
 *   shared out    the same                            the same as a tied embedding
 *
 * Shared out is what ZeRO asks for (parallel.zero_stage >= 1): main params and moments of a tensor
 * are then held once over the replicas. At stage 3 so are the weights of layers, layer norms apart:
 * what is updated stays a slice, and F and I gather it layer by layer (stages/model/gathered.h).
 * Embeddings, a head and layer norms are whole: a lookup and blocks read the former, the latter are
 * small.
 *
 * A tied embedding always is shared out, with the head's gradient beside its own, which on the same
 * rank is summed with the rest, and else before SYNC sends it.
 *
 * Gradients are summed once a step, in fp32, in ascending dp order, and nothing is scaled: the loss
 * seed has done that. So the sums have the same bits, shared out or not: each replica adds up its
 * own micro-batches first, and keeps its gradients whole until the step's last W. Only a step of one
 * micro-batch has nothing to add up: there stages 2 and 3 share out the gradients of layers too,
 * which become sums layer by layer while W runs (stages/buckets.h).
 *
 * All replicas call the same functions in the same order. Nothing happens where dp is 1.
 */
#ifndef STAGES_REPLICAS_H
#define STAGES_REPLICAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/comm.h"
#include "mixedprec/params.h"
#include "stages/config.h"
#include "stages/model/parameters.h"

#ifdef __cplusplus
extern "C" {
#endif

struct control;

struct replicas {
    struct group *group; /* borrows; NULL where dp is 1 */
    int32_t size;        /* dp */
    int32_t index;
    bool shares_out;         /* every tensor, not a tied embedding alone */
    bool scatters;           /* weights of layers too */
    bool scatters_gradients; /* and, with one micro-batch a step, gradients of layers */
    bool by_layer; /* gradients of layers become sums in W (stages/buckets.h), the rest in REDUCE */
    struct control *control;     /* borrows; told of waits; NULL: nobody is */
    const struct cancel *cancel; /* borrows */
    struct comm_piece *sums;     /* owns: gradients that become sums slice by slice; */
    int32_t sum_count;
    struct comm_piece *weights; /* into it: weights that are gathered */
    int32_t weight_count;
};

/* Those of `config`, as replica `index` of them sees them; they have no group yet. */
struct replicas replicas_of(const struct config *config, int32_t index);

/* Cuts what this rank has of a tied embedding, and, shared out, every tensor, into slices, one a
 * replica; scattered, the weights of layers too. Before anything is measured; without replicas the slice is the whole. */
void replicas_slice(const struct replicas *replicas, const struct model_shape *shape,
                    struct params *params, struct head_memory *head);

/* Lists what is summed and gathered, once params and head are placed. */
enum status replicas_prepare(struct replicas *replicas, const struct params *params,
                             const struct head_memory *head);

/* All gradients of this rank that have not become sums in W, and the tied head's where the embedding is on the same rank (else
 * SYNC sends it): of what is sliced, the own slice becomes the sum, of the rest all. */
enum status replicas_reduce(const struct replicas *replicas, const struct params *params,
                            int64_t deadline_ns);

/* Bytes that replicas_reduce() is called with. */
size_t replicas_reduced(const struct replicas *replicas, const struct params *params);

/* After an update: of every sliced tensor each replica has its own slice of the weights, and
 * afterwards all have all; of a scattered one each keeps its own, and afterwards all have updated
 * theirs (layer norms are gathered on every rank that has layers). */
enum status replicas_gather(const struct replicas *replicas, int64_t deadline_ns);

/* gradient (elems), of a tied head: this replica's slice of it becomes the sum. */
enum status replicas_reduce_tied(const struct replicas *replicas, float *gradient, size_t elems,
                                 int64_t deadline_ns);

/* weights (elems in number format `type`), the head's copy: each replica has its own slice;
 * afterwards all have all. */
enum status replicas_gather_tied(const struct replicas *replicas, void *weights, enum dtype type,
                                 size_t elems, int64_t deadline_ns);

/* Safe on a zeroed struct, and twice. */
void replicas_release(struct replicas *replicas);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_REPLICAS_H */
