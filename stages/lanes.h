/*
 * lanes -- where the messages of a rank's chunks come from and go to.
 *
 * One lane carries all messages of one direction between two ranks, whichever chunks they are for.
 * The plan numbers the landing buffers of each chunk from 0; a lane has those of all chunks that it
 * feeds, chunk after chunk. Each lane has one out buffer at its sender. Between two chunks of the
 * same rank nothing is sent: the producer writes straight into a buffer that the consumer reads.
 *
 * Knows plans, grid and comm; nothing of what is in a message but its size.
 */
#ifndef STAGES_LANES_H
#define STAGES_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/comm.h"
#include "collectives/grid.h"
#include "scheduler/plan.h"
#include "stages/lane_waves.h"
#include "tensor/arena.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sending end of a lane. */
struct lane_out {
    int32_t peer; /* pipeline rank */
    enum lane_direction direction;
    struct lane *lane;
    void *buffer; /* the out buffer, one message */
    /* The SEND that may be pending, for its span. */
    const struct action *sending; /* NULL where none is */
    int32_t sending_index;
};

/* Both ends of one chunk in one direction. */
struct chunk_lanes {
    struct lane *in;       /* NULL where nothing is received */
    int32_t in_first;      /* number in `in` of the chunk's landing buffer 0 */
    struct lane_out *out;  /* NULL where nothing is sent */
    int32_t out_first;     /* number in `out` of the receiving chunk's landing buffer 0 */
    unsigned char *handed; /* hand-over buffers of this chunk's input, one message each; or NULL */
    int32_t handed_count;
    struct chunk_lanes *next; /* the chunk of this rank that the result is handed to, or NULL */
};

struct lanes {
    struct chunk_lanes *ends; /* owns; [chunk · LANE_DIRECTIONS + direction] */
    struct lane_out *outs;    /* owns */
    int32_t chunks;
    int32_t out_count;
    size_t message_bytes;    /* model_message_bytes() */
    struct arena arena;      /* owns: out buffers and hand-over buffers */
    int64_t landings;        /* landing buffers that this rank reserves */
    struct lane_waves waves; /* owns: of all ranks */
};

/* The ends of pipeline rank `rank`, with room for what either plan needs (both have the same
 * placement); its memory is measured then. */
enum status lanes_init(struct lanes *lanes, const struct plan *plan, const struct plan *evaluation,
                       int32_t rank, size_t message_bytes);

/* Declares the lanes; before comm_connect(). */
enum status lanes_open(struct lanes *lanes, const struct plan *plan, const struct plan *evaluation,
                       const struct grid *grid, struct comm *comm);

/* Allocates the out and hand-over buffers, in the device's memory; it outlives them. */
enum status lanes_allocate(struct lanes *lanes, struct device *device);

struct chunk_lanes *lanes_of(const struct lanes *lanes, int32_t chunk,
                             enum lane_direction direction);

/* Where the message lies that `action` reads, an activation (F) or a gradient (B); NULL where it
 * reads none. */
const void *lanes_input(const struct lanes *lanes, const struct action *action,
                        enum lane_direction direction);

/* Where `action` writes what the next chunk of that direction reads; NULL where nobody does. */
void *lanes_output(const struct lanes *lanes, const struct action *action,
                   enum lane_direction direction);

/* Safe on zeroed lanes, and twice. */
void lanes_release(struct lanes *lanes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_LANES_H */
