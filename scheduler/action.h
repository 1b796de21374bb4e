/*
 * action -- one thing that one pipeline rank does for one micro-batch, as data.
 *
 * A plan is lists of these. In the text form an action reads as in PyTorch's pipelining CSV:
 * virtual stage, kind, micro-batch (`2F0`, `2I0`, `2W0`, `2B0`, `2SEND_F0`, `3RECV_F0`,
 * `2GATHER_F0`), and the actions of a whole rank are bare words (`SYNC`, `REDUCE`, `STEP`).
 *
 * Where sequences are cut into k slices, what is numbered are pieces: piece u is slice u mod k of
 * micro-batch u div k, and reads `2F3.1` for slice 1 of micro-batch 3.
 */
#ifndef SCHEDULER_ACTION_H
#define SCHEDULER_ACTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* kind, text */
#define ACTION_TABLE(X)                                                                \
    X(F, "F")             /* forward; on the last virtual stage with the fused head */ \
    X(I, "I")             /* input gradient, biases and layer norms */                 \
    X(W, "W")             /* weight gradient */                                        \
    X(B, "B")             /* I, then W */                                              \
    X(SEND, "SEND")       /* a message leaves its out buffer */                        \
    X(RECV, "RECV")       /* a message is in its landing buffer */                     \
    X(SYNC, "SYNC")       /* tied word embedding: the head's gradient to its owner */  \
    X(REDUCE, "REDUCE")   /* gradients over replicas, or shards with own rows */       \
    X(GATHER, "GATHER")   /* from here on F, I or B can ask for the chunk's layers */  \
    X(RELEASE, "RELEASE") /* it has asked for the last one */                          \
    X(STEP, "STEP")       /* flags, norm, update; the last action of a rank */

enum action_kind {
#define X(kind, text) ACTION_##kind,
    ACTION_TABLE(X)
#undef X
    ACTION_KINDS
};

/* F carries activations to the next virtual stage, B gradients to the previous one. A GATHER or
 * RELEASE has F around an F and B around an I or B. */
enum lane_direction {
    LANE_F,
    LANE_B,
    LANE_DIRECTIONS
};

#define ACTION_NONE        (-1)
#define ACTION_MOST_SLICES 1024
#define ACTION_DEPENDS     4

struct action {
    uint8_t kind;          /* enum action_kind */
    uint8_t direction;     /* enum lane_direction, of SEND, RECV, GATHER, RELEASE; else LANE_F */
    uint16_t chunk;        /* place among the chunks of this rank, 0 … v-1 */
    int32_t slices;        /* k where sequences are cut, else 0; 0 for SYNC, REDUCE, STEP */
    int32_t virtual_stage; /* 0 … p·v-1; ACTION_NONE for SYNC, REDUCE, STEP */
    int32_t microbatch;    /* or piece: 0 … m-1; ACTION_NONE for SYNC, REDUCE, STEP */
    /* What follows is written by lowering; ACTION_NONE in compute-only plans and where it does
     * not apply. */
    int32_t peer;     /* SEND, RECV: the pipeline rank at the other end */
    int32_t sequence; /* SEND, RECV: place among the messages of the lane, from 0 */
    int32_t slot;     /* F, I, W, B: stash slot of the chunk */
    int32_t gradient; /* I, W, B: set of dY buffers of the chunk */
    int32_t landing;  /* SEND: landing buffer at the receiver. RECV: the one here. F: of its input
                         (none on virtual stage 0). I, W, B: of dY (none on the last one) */
    int32_t target;   /* F, I, B whose result stays on this rank: the landing buffer of the chunk of
                         the next (F) or previous (I, B) virtual stage that it is written to. The
                         consumer's `landing` names the same buffer */
    /* Earlier actions of the same rank, by index in its line, that must have ended before this
     * one may start: its message, its own earlier half, the SEND that still holds the out buffer,
     * its GATHER.
     * Filled from the front. Order of the line itself is not repeated here. */
    int32_t depends[ACTION_DEPENDS];
};

/* "F", "SEND"; a static string. */
const char *action_kind_text(enum action_kind kind);

/* These and those of plan.h are asked for every action of plans of many millions. */
static inline bool action_is_compute(enum action_kind kind)
{
    return kind == ACTION_F || kind == ACTION_I || kind == ACTION_W || kind == ACTION_B;
}

/* Whether the text form says a direction: SEND, RECV, GATHER, RELEASE. */
static inline bool action_has_direction(enum action_kind kind)
{
    return kind == ACTION_SEND || kind == ACTION_RECV || kind == ACTION_GATHER ||
           kind == ACTION_RELEASE;
}

/* Writes the text form, cut to `text_bytes`; returns its length. 32 bytes are always enough. */
size_t action_print(const struct action *action, char *text, size_t text_bytes);

/* Reads one action of the text form (blanks around it allowed) into the fields above the line;
 * the others become ACTION_NONE, chunk 0. One action does not say how many slices there are: of slice s
 * it becomes a piece of s + 1, which action_cut() brings to more. STATUS_ERR_REFUSED where it is not one: noted, not logged
 * (status_note), because the caller knows file and line; nothing is written then. */
enum status action_parse(const char *text, size_t text_bytes, struct action *action_out);

/* Makes an action of slice s the same of `slices` > s. */
void action_cut(struct action *action, int32_t slices);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_ACTION_H */
