/*
 * schedule -- the orders that have a name: how many chunks of a rank each takes, and where its
 * virtual stages lie.
 *
 * Knows no actions: generate.h makes the orders.
 */
#ifndef SCHEDULER_SCHEDULE_H
#define SCHEDULER_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where virtual stages lie: chunk by chunk, and within a chunk from rank to rank. */
enum placement {
    PLACEMENT_SCHEDULE, /* as the schedule has it: a wish, never what a plan has */
    PLACEMENT_LOOP,     /* each chunk from rank 0 to rank p-1: stage s on rank s mod p */
    PLACEMENT_ZIGZAG /* odd chunks from rank p-1 back to rank 0; v is even. Two chunks are a V: the
                           first and the last stage on rank 0, the turn on rank p-1 */
};

#define SCHEDULE_ANY_CHUNKS 1024

/* name, text, chunks a rank at least and at most, the placement it has. The list grows with the
 * generators. */
#define SCHEDULE_TABLE(X)                                                 \
    X(GPIPE, "gpipe", 1, 1, LOOP)                                         \
    X(1F1B, "1f1b", 1, 1, LOOP)                                           \
    X(INTERLEAVED_1F1B, "interleaved_1f1b", 1, SCHEDULE_ANY_CHUNKS, LOOP) \
    X(BFS, "bfs", 1, SCHEDULE_ANY_CHUNKS, LOOP)                           \
    X(ZB_H1, "zb_h1", 1, 1, LOOP)                                         \
    X(ZB_H2, "zb_h2", 1, 1, LOOP)                                         \
    X(IZB, "izb", 1, SCHEDULE_ANY_CHUNKS, LOOP)                           \
    X(ZB_V, "zb_v", 2, 2, ZIGZAG)                                         \
    X(V_HALF, "v_half", 2, 2, ZIGZAG)                                     \
    X(V_MIN, "v_min", 2, 2, ZIGZAG)                                       \
    X(SEQ1F1B, "seq1f1b", 1, 1, LOOP)                                     \
    X(FORWARD_ONLY, "forward_only", 1, SCHEDULE_ANY_CHUNKS, LOOP)         \
    X(FILE, "file", 1, SCHEDULE_ANY_CHUNKS, LOOP) /* orders that were read; \
                                                     written `file:PATH` */

enum schedule {
#define X(name, text, least, most, placement) SCHEDULE_##name,
    SCHEDULE_TABLE(X)
#undef X
    SCHEDULES,
    SCHEDULE_AUTO =
        SCHEDULES /* a wish: a search finds the order (scheduler/search.h); no plan has it */
};

/* "1f1b" → SCHEDULE_1F1B, "file:PATH" → SCHEDULE_FILE, "auto" → SCHEDULE_AUTO. STATUS_ERR_REFUSED names `text` and the
 * legal ones. */
enum status schedule_parse(const char *text, enum schedule *schedule_out);
const char *schedule_text(enum schedule schedule);

/* Whether it has an order of `virtual_stages` chunks a rank. */
bool schedule_takes_chunks(enum schedule schedule, int32_t virtual_stages);

/* "one chunk a rank", "two chunks a rank", "any number of chunks a rank"; a static string. */
const char *schedule_chunks_text(enum schedule schedule);

/* The placement that it has where none is wished for. */
enum placement schedule_placement(enum schedule schedule);

/* Whether it has an order on `placement`. Those that send a micro-batch round (interleaved_1f1b,
 * izb) count on a loop; the V's on a V; bfs, forward_only and files take any. */
bool schedule_takes_placement(enum schedule schedule, enum placement placement);

/* Whether more micro-batches than it needs can be in flight (extra_in_flight). */
bool schedule_takes_extra(enum schedule schedule);

/* Whether it has an order of slices of sequences. */
bool schedule_takes_slices(enum schedule schedule);

/* Whether it is a forward and a backward of each micro-batch: not so of forward_only. */
static inline bool schedule_trains(enum schedule schedule)
{
    return schedule != SCHEDULE_FORWARD_ONLY;
}

/* "gpipe, 1f1b or file:PATH": those that train with `virtual_stages` chunks a rank, or all with 0;
 * cut to `list_bytes`, 256 are always enough. Returns `list`. */
const char *schedule_list(int32_t virtual_stages, char *list, size_t list_bytes);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SCHEDULE_H */
