/*
 * traffic -- what one rank moves in one training step, by kind: as planned, as counted.
 *
 * The planned side is arithmetic over the configuration and the lowered plan; nothing is run or
 * measured. The counted side is filled from the planes' counters into the same struct, and
 * traffic_compare() sets the two beside each other in one line of the run's summary.
 *
 * What counts as one rank's:
 *   - a message counts at its sender, in bytes of the message;
 *   - a collective counts at each member, once a call, the bytes of the data that it is called
 *     with (elements × 4), and not what an algorithm moves on the wire for it;
 *   - a step is one that brings an update: where it is skipped no weights come back, and a block of
 *     the head without any target, which exchanges nothing, is counted as if it had one.
 *
 * Letters as in stages/model/shape.h, φ = B·T·C·4 bytes. With tensor parallelism a layer sums φ
 * four times a micro-batch, twice in F and twice in I; F of virtual stage 0 sums the embedding's
 * output, F of the last virtual stage the head's dX.
 */
#ifndef STAGES_TRAFFIC_H
#define STAGES_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/grid.h"
#include "scheduler/plan.h"
#include "stages/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Activations are sent on F lanes, their gradients on B lanes. The shards of the head gather 32
 * bytes a row and shard; gradient sums run over the replicas. Of the embedding sync the head's end
 * has the gradient and the owner's the weights, each a replica's slice; then the replicas of both
 * ends gather the slices.
 * kind, key in JSON, text for people */
#define TRAFFIC_TABLE(X)                                  \
    X(ACTIVATIONS, "activations", "activations")          \
    X(GRADIENTS, "gradients", "gradients")                \
    X(TENSOR_SUMS, "tensor_sums", "tensor-parallel sums") \
    X(HEAD_ROWS, "head_rows", "head statistics")          \
    X(GRADIENT_SUMS, "gradient_sums", "gradient sums")    \
    X(EMBEDDING_SYNC, "embedding_sync", "embedding sync") \
    X(EMBEDDING_GATHERS, "embedding_gathers", "embedding gathers")

enum traffic_kind {
#define X(kind, key, text) TRAFFIC_##kind,
    TRAFFIC_TABLE(X)
#undef X
    TRAFFIC_KINDS
};

struct traffic {
    uint64_t bytes[TRAFFIC_KINDS];
};

/* What the rank at `grid` moves in one step of `lowered`, the plan of `config`. Gradients over
 * the replicas are summed as they lie, with the room between tensors (ARENA_ALIGN_BYTES). */
enum status traffic_plan(const struct config *config, const struct plan *lowered,
                         const struct grid *grid, struct traffic *traffic_out);

uint64_t traffic_total(const struct traffic *traffic);

/* Static strings. */
const char *traffic_key(enum traffic_kind kind);
const char *traffic_text(enum traffic_kind kind);

#define TRAFFIC_AMOUNT_BYTES 32

/* "512 B", "1.5 KiB", "12.0 MiB", …, cut to `text_bytes`. */
void traffic_print_amount(uint64_t bytes, char *text, size_t text_bytes);

/* `counted` over `steps` steps beside `planned`, which is one step's: "traffic a step: activations
 * 12.0 MiB (as planned), …; differs: embedding sync 3.0 MiB, in 20 steps 6.0 MiB less than
 * planned". What is 0 on both sides is left out. Cut to `text_bytes`. */
void traffic_compare(const struct traffic *planned, const struct traffic *counted, int64_t steps,
                     char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TRAFFIC_H */
