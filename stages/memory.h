/*
 * memory -- what a rank will hold, known and printed before the first step.
 *
 * Shapes are static, so every block is planned: the table is made from the arenas' own measuring
 * pass and from the plan's buffers, and a rank whose sum exceeds train.memory_limit refuses with
 * the table. In the table is what grows with the model or the plan; spans and the control plane
 * are a few MiB and are not.
 */
#ifndef STAGES_MEMORY_H
#define STAGES_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* kind, key, text, head of a column. The first four are the state of the parameters. */
#define MEMORY_TABLE(X)                                                                          \
    X(PARAMS, "params", "params", "params")              /* the model's copy of the weights */   \
    X(MAIN_PARAMS, "main_params", "main params", "main") /* fp32; of their own in 16 bits */     \
    X(GRADIENTS, "gradients", "gradients", "grads")      /* fp32 */                              \
    X(MOMENTS, "moments", "moments", "moments")          /* fp32, the optimizer's */             \
    X(HEAD, "head_copy", "head copy", "head")            /* of a tied embedding, and gradient */ \
    X(EMBEDDING, "embedding_landing", "embedding landing", "embed") /* the head's gradient */    \
    X(STASHES, "stashes", "stashes", "stashes")                     /* from F to W */            \
    X(DY, "dy", "dY", "dY")                                         /* from I to W */            \
    X(RECOMPUTED, "recomputed", "recomputed", "again")              /* from I to W */            \
    X(KEYS, "keys_values", "keys and values", "K,V")                /* of whole sequences */     \
    X(KEY_SUMS, "key_gradients", "dK and dV", "dK,dV")              /* of one micro-batch */     \
    X(BUCKETS, "gradient_buckets", "gradient buckets", "buckets")   /* of scattered gradients */ \
    X(GATHERED, "gathered_layers", "gathered layers", "gather")     /* of scattered weights */   \
    X(WORKSPACE, "workspace", "workspace", "work")                  /* of one action */          \
    X(SHARED, "shared_workspace", "shared workspace", "shared")     /* among shards */           \
    X(OUT, "out_buffers", "out buffers", "out")                     /* messages that leave */    \
    X(LANDING, "landing_buffers", "landing buffers", "landing")     /* that arrive */            \
    X(DATA, "data_buffers", "data buffers", "data")                 /* two steps of a set */     \
    X(LIBRARY, "library", "library scratch", "library")             /* of the team's GEMMs */

enum memory_kind {
#define X(kind, key, text, head) MEMORY_##kind,
    MEMORY_TABLE(X)
#undef X
    MEMORY_KINDS
};

#define MEMORY_STATE_KINDS 4 /* PARAMS to MOMENTS */

struct memory_table {
    size_t bytes[MEMORY_KINDS];
    size_t total_bytes;
    size_t parameters; /* elements of the tensors whose state is in it */
};

void memory_add(struct memory_table *table, enum memory_kind kind, size_t bytes);

/* Static strings. */
const char *memory_key(enum memory_kind kind);
const char *memory_text(enum memory_kind kind);
const char *memory_head(enum memory_kind kind);

/* A unit in which numbers around `bytes` have two digits or more: KiB, MiB or GiB. */
struct memory_unit {
    const char *name; /* a static string */
    double bytes;
};

struct memory_unit memory_unit_for(size_t bytes);

/* "stage 1, shard 0 holds 41.2 MiB: params 12.1, gradients 12.1, ...", cut to `text_bytes`; `place`
 * is who holds it (grid_place_text()). What is 0 is left out. */
void memory_print(const struct memory_table *table, const char *place, char *text,
                  size_t text_bytes);

/* STATUS_ERR_REFUSED with the table where the total exceeds `limit_bytes`; 0 is no limit. */
enum status memory_check(const struct memory_table *table, const char *place, int64_t limit_bytes);

/* Bytes of state a parameter: the kinds before MEMORY_STATE_KINDS, with the room between tensors. */
double memory_state_each(const struct memory_table *table);

/* The same with the layers that are whole for a while, because what replicas share out is in slices. */
double memory_shared_each(const struct memory_table *table);

/* "planned 41.2 MiB, used 41.2 MiB (arenas and segments), resident 63.0 MiB": what is resident is
 * that of the process, with code, libraries and what other threads hold. */
void memory_compare(const struct memory_table *table, size_t used_bytes, size_t resident_bytes,
                    char *text, size_t text_bytes);

/* The most that this process has ever had in memory; 0 where the system does not tell. */
size_t memory_resident_bytes(void);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MEMORY_H */
