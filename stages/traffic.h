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
 *     with, and not what an algorithm moves on the wire for it;
 *   - a step is one that brings an update: where it is skipped no weights come back, and a block of
 *     the head without any target, which exchanges nothing, is counted as if it had one.
 *
 * Letters as in stages/model/shape.h. A message is n·C elements in the model dtype, a sum over shards
 * N·C in fp32: φ = N·C·4 bytes. With tensor parallelism a layer sums φ
 * four times a micro-batch, twice in F and twice in I, and with full recompute I sums what F does
 * once more, but for the output of the chunk that F sent; F of virtual stage 0 sums the embedding's
 * output, F of the last virtual stage the head's dX. With sequence parallelism, where n is N/tp, these
 * sums are made for own rows, and count the same; REDUCE sums the gradients that each shard has of
 * its own rows besides. What all rows are gathered for are N·C elements in the model dtype: a layer's
 * two norms in F, its dY twice in I, all four again in W, and in I once more what a full recompute
 * repeats of F; the final norm's output in F, and the embedding's dY in W.
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
 * has the gradient, in fp32, and the owner's the weights, in the model's number format, each a
 * replica's slice. What replicas update a slice of (parallel.zero_stage: every tensor, else a tied
 * embedding) they gather then, at both ends of an embedding group, and what stays a slice
 * (stage 3: layers, layer norms apart) F and I gather, layer by layer (gathered_count()).
 * kind, key in JSON, text for people */
#define TRAFFIC_TABLE(X)                                  \
    X(ACTIVATIONS, "activations", "activations")          \
    X(GRADIENTS, "gradients", "gradients")                \
    X(TENSOR_SUMS, "tensor_sums", "tensor-parallel sums") \
    X(ROW_GATHERS, "row_gathers", "row gathers")          \
    X(HEAD_ROWS, "head_rows", "head statistics")          \
    X(GRADIENT_SUMS, "gradient_sums", "gradient sums")    \
    X(EMBEDDING_SYNC, "embedding_sync", "embedding sync") \
    X(WEIGHT_GATHERS, "weight_gathers", "weight gathers")

enum traffic_kind {
#define X(kind, key, text) TRAFFIC_##kind,
    TRAFFIC_TABLE(X)
#undef X
    TRAFFIC_KINDS
};

struct traffic {
    uint64_t bytes[TRAFFIC_KINDS];
};

/* What the rank at `grid` moves in one step of `lowered`, the plan of `config`. Gradients that
 * all replicas need whole are summed as they lie, with the room between tensors (ARENA_ALIGN_BYTES);
 * those that become sums slice by slice without it. */
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
