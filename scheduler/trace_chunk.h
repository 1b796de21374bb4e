/*
 * trace_chunk -- the chunks of a rank, as its trace shows them.
 *
 * A trace names virtual stages; which chunk of its rank one is follows from the others there.
 */
#ifndef SCHEDULER_TRACE_CHUNK_H
#define SCHEDULER_TRACE_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace_chunks {
    int32_t *stages; /* owns; virtual stages of the rank's F, I, W and B, ascending */
    int32_t count;
};

enum status trace_chunks_find(const struct trace_rank *rank, struct trace_chunks *chunks_out);

/* Chunk of a virtual stage, from 0; ACTION_NONE where the rank does not have it. */
int32_t trace_chunks_of(const struct trace_chunks *chunks, int32_t virtual_stage);

/* Safe on a zeroed list, and twice. */
void trace_chunks_release(struct trace_chunks *chunks);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_CHUNK_H */
