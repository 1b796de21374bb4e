/*
 * loader -- fills micro-batches a step ahead, on its own thread.
 *
 * The first virtual stage reads tokens (and token types), the last one targets and mask; a rank that is neither has
 * no loader. loader_take() gives the batch of a step; while that step runs, the thread fills the
 * next one. Two sets of buffers, allocated at open: what they take is known before.
 */
#ifndef STAGES_DATA_LOADER_H
#define STAGES_DATA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "stages/data/dataset.h"
#include "stages/data/sampler.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct loader;

/* One step's data of this replica; (m,B,T) each. Lent until the next loader_take(). */
struct loader_batch {
    const int32_t *tokens;  /* NULL unless wants_tokens */
    const int32_t *types;   /* NULL unless wants_types */
    const int32_t *targets; /* NULL unless wants_targets */
    const float *mask;      /* NULL unless wants_targets */
    int64_t consumed;       /* samples of the whole run before this step */
    int64_t target_count;   /* unmasked targets in it (this replica's); 0 unless wants_targets */
};

struct loader_config {
    const struct dataset *dataset; /* borrows until close */
    struct sampler sampler;
    int64_t microbatches; /* m */
    int64_t positions;    /* T */
    bool wants_tokens;
    bool wants_types; /* with tokens, of a data set that has types */
    bool wants_targets;
    /* Borrows until close: copies its batches beside its work, so that they lie where it can. NULL: nobody does. */
    struct device *device;
    int64_t consumed; /* where the run begins */
    /* Whole-set evaluation: numbers from `limit` on are padding: token 0, type 0, mask 0. INT64_MAX for
     * none. */
    int64_t limit;
};

/* What a loader with `config` will take for its buffers; needs neither `dataset` nor `sampler.samples`.
 * STATUS_ERR_NO_MEMORY where no machine has that much. */
enum status loader_plan_bytes(const struct loader_config *config, size_t *bytes_out);

/* What it has taken for them, which is as much; 0 for NULL. */
size_t loader_used_bytes(const struct loader *loader);

/* Starts the thread, which begins at once with the first step's batch. */
enum status loader_open(const struct loader_config *config, struct loader **loader_out);

/* Lends the next step's batch; waits for the thread where it is not ready (cancel, deadline). */
enum status loader_take(struct loader *loader, const struct cancel *cancel, int64_t deadline_ns,
                        struct loader_batch *batch_out);

/* Unmasked targets of the batch after the one last taken (of the first one before that): waits as
 * loader_take() does. */
enum status loader_peek_targets(struct loader *loader, const struct cancel *cancel,
                                int64_t deadline_ns, int64_t *targets_out);

/* Starts again at `consumed` (for another round of evaluation). What was lent is gone. */
enum status loader_rewind(struct loader *loader, int64_t consumed);

void loader_close(struct loader **loader);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_DATA_LOADER_H */
