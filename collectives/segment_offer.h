/*
 * segment_offer -- what two ranks tell each other before they share memory, and how they agree.
 *
 * Both ends of a pair send one offer, with the descriptor of the sender's segment beside it. Both
 * compare with their own, so that a disagreement is named at both ends, each time with both
 * values. Fixed size and bounded: nothing in it is used before it is checked.
 */
#ifndef COLLECTIVES_SEGMENT_OFFER_H
#define COLLECTIVES_SEGMENT_OFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/comm.h"
#include "collectives/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In each direction the offering rank sends or receives. */
#define SEGMENT_OFFER_LANES (2 * COMM_DIRECTIONS)

/* Groups that two ranks can have in common, and members of each. */
#define SEGMENT_OFFER_GROUPS  8
#define SEGMENT_GROUP_MEMBERS 64

struct segment_lane {
    int32_t direction; /* of lane_config */
    uint32_t sends;    /* 1: the offering rank is the sender */
    int32_t landings;
    uint32_t zero;
    uint64_t landing_bytes;
    struct segment_place place; /* in the offering rank's segment; zero where it sends */
};

struct segment_group {
    int32_t count;
    int32_t ranks[SEGMENT_GROUP_MEMBERS]; /* ascending; zero behind `count` */
    uint64_t mark; /* offset of its group_mark in the offering rank's segment */
};

/* Open to every rank that has an offer of it. */
struct segment_block {
    uint64_t offset; /* in the offering rank's segment; both zero where there is none */
    uint64_t bytes;
};

struct segment_offer {
    uint64_t magic;
    uint32_t version;
    int32_t world;
    int32_t from; /* the offering rank */
    int32_t to;
    uint64_t segment_bytes;
    int32_t lane_count;
    int32_t group_count;
    struct segment_block shared;
    struct segment_lane lanes[SEGMENT_OFFER_LANES];
    struct segment_group groups[SEGMENT_OFFER_GROUPS]; /* with `to`, in the order of opening */
};

/* An offer without lanes, groups and shared block. */
void segment_offer_init(struct segment_offer *offer, int32_t world, int32_t from, int32_t to,
                        size_t segment_bytes);

/* Lends the lane with this direction and side, or NULL. */
const struct segment_lane *segment_offer_find(const struct segment_offer *offer, int32_t direction,
                                              bool sends);

/* Whether these bytes are an offer at all, of whatever version. */
bool segment_offer_recognised(const struct segment_offer *offer);

/* Checks what a peer has sent against what this rank has told it: version, world, ranks, and that
 * every lane is there at both ends with the same sizes, and every common group in the same order
 * with the same members. STATUS_ERR_REFUSED where the two disagree, STATUS_ERR_FORMAT where `theirs` contradicts itself. */
enum status segment_offer_agree(const struct segment_offer *mine,
                                const struct segment_offer *theirs);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_SEGMENT_OFFER_H */
