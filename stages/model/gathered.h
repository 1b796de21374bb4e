/*
 * gathered -- a layer's weights whole, where every replica keeps a slice of them (ZeRO 3).
 *
 * A rank has room for two layers, whatever its chunks have: layer i of a chunk comes to place
 * i mod 2, so that one can be read while the next one comes. The pointers of a chunk's tensors
 * point there all along; what they point to is right from gathered_layer() on, until another layer
 * comes to the same place or gathered_close(). Layer norms, and what no layer has, are whole
 * everywhere and not gathered.
 *
 * All replicas ask for the same layers in the same order, that of their plan. On the CPU each reads
 * the others' slices where they lie, and nobody waits for anybody: weights change in STEP alone,
 * before which all replicas have met in REDUCE, behind their last F and I; and behind their updates
 * they meet again to gather what is whole everywhere (replicas_gather()), so that the next step
 * reads what all have updated. On a device a layer is a collective, into places that lie in the shared block.
 */
#ifndef STAGES_MODEL_GATHERED_H
#define STAGES_MODEL_GATHERED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/comm.h"
#include "mixedprec/params.h"
#include "stages/model/parameters.h"
#include "stages/model/shape.h"
#include "tensor/arena.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GATHERED_PLACES 2

struct gathered {
    struct device *device;             /* borrows */
    struct comm *comm;                 /* borrows */
    int32_t ranks[COMM_GROUP_MEMBERS]; /* of the replicas, in dp order */
    struct group *group;         /* borrows; of the replicas, where peers' blocks cannot be read */
    const struct cancel *cancel; /* borrows */
    int64_t deadline_ns;         /* of the run */
    int32_t replicas;
    int32_t index;             /* this one */
    const struct param *table; /* borrows; of the rank's params */
    /* Owns; by number: where its LAYER_TENSORS begin in the table, -1 where it is on another rank. */
    int32_t *layers;
    void *whole[GATHERED_PLACES][LAYER_TENSORS]; /* NULL of a tensor that is whole anyway */
    int32_t held[GATHERED_PLACES];               /* number of the layer that is there, or -1 */
    struct arena arena;                          /* owns: the places */
    size_t layer_bytes;                          /* of what is gathered of a layer */
    bool open;
    bool counts;
    uint64_t in_group; /* bytes of the layers that were collectives of `group`, all of them */
    uint64_t bytes; /* of the layers gathered while they counted: whole ones, as of a collective */
};

/* Plans the places, for what is scattered in `params`; nothing where nothing is. */
void gathered_measure(struct gathered *gathered, const struct params *params,
                      const struct model_shape *shape);

/* Allocates what was planned, once `params` is placed; borrows its table until release. comm, ranks,
 * replicas and index are set before the first layer is asked for. */
enum status gathered_prepare(struct gathered *gathered, const struct params *params,
                             const struct model_shape *shape);

/* Whether there is anything to gather on this rank. */
bool gathered_any(const struct gathered *gathered);

/* Lets the chunk's pointers to what is scattered point to the places. */
void gathered_point(const struct gathered *gathered, struct chunk_tensors *weights,
                    const struct chunk_range *range);

/* What GATHER and RELEASE stand for; between them layers can be asked for. What a training step
 * asks for `counts`. */
void gathered_open(struct gathered *gathered, bool counts);
void gathered_close(struct gathered *gathered);

/* Makes layer `number` of the model whole in place `place`. Nothing where it is there already, since
 * gathered_open(). */
enum status gathered_layer(struct gathered *gathered, int32_t number, int32_t place);

/* How many layers come in an action on a chunk of `layers`: an F, or an I or B, which asks in the
 * opposite order. `again`: it first makes again what F did not keep, for which it asks in the order
 * of F; the last ones are still there when it turns round. */
int32_t gathered_count(int32_t layers, bool again);

/* Safe on a zeroed struct, and twice. */
void gathered_release(struct gathered *gathered);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_GATHERED_H */
