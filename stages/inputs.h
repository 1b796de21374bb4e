/*
 * inputs -- where the device reads a step's tokens, targets and mask.
 *
 * The loader fills memory of the host's. Where the device's tensors are the host's too, that is where they
 * are read; else they are copied beside the work in the stream, which the run's first action follows. What
 * is lent by the loader must then stay until the device has been waited for.
 *
 * Where sequences are cut they are copied too, so that what a slice reads lies together: of each
 * micro-batch first what the first slice has of all sequences, then the second (inputs_rows()).
 */
#ifndef STAGES_INPUTS_H
#define STAGES_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/data/loader.h"
#include "stages/model/slices.h"
#include "tensor/arena.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct inputs {
    size_t elems; /* m·B·T of this replica */
    size_t batch; /* B */
    struct slices slices;
    bool wants_tokens; /* which of them are copied */
    bool wants_types;
    bool wants_targets;
    struct arena arena; /* owns; empty where nothing is copied */
    int32_t *
        tokens; /* (m,B,T), as the next three, or slice by slice; NULL where this rank has no use for them */
    int32_t *types;
    int32_t *targets;
    float *mask;
};

/* Plans the copies for what the loader of this rank gives: `copies` where the device cannot read it. */
void inputs_measure(struct inputs *inputs, const struct loader_config *loader,
                    const struct slices *slices, bool copies);

/* The first element of what piece `piece` reads: micro-batch · k + slice, k the slices of a sequence. */
size_t inputs_rows(const struct inputs *inputs, int32_t piece);

/* Allocates what inputs_measure() planned. */
enum status inputs_allocate(struct inputs *inputs, struct device *device);

/* Points *batch at what the device reads, behind copies that it puts into the stream. */
enum status inputs_bring(const struct inputs *inputs, struct device *device,
                         struct loader_batch *batch);

/* Safe on zeroed inputs, and twice. */
void inputs_release(struct inputs *inputs);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_INPUTS_H */
