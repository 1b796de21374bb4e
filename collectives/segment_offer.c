#include "collectives/segment_offer.h"

#include <inttypes.h>
#include <string.h>

#include "collectives/comm_ops.h"
#include "collectives/rank_list.h"

void segment_offer_init(struct segment_offer *offer, int32_t world, int32_t from, int32_t to,
                        size_t segment_bytes)
{
    *offer = (struct segment_offer){
        .magic = SEGMENT_MAGIC,
        .version = SEGMENT_VERSION,
        .world = world,
        .from = from,
        .to = to,
        .segment_bytes = segment_bytes,
    };
}

const struct segment_lane *segment_offer_find(const struct segment_offer *offer, int32_t direction,
                                              bool sends)
{
    for (int32_t i = 0; i < offer->lane_count && i < SEGMENT_OFFER_LANES; i++) {
        if (offer->lanes[i].direction == direction && (offer->lanes[i].sends != 0) == sends) {
            return &offer->lanes[i];
        }
    }
    return NULL;
}

bool segment_offer_recognised(const struct segment_offer *offer)
{
    return offer->magic == SEGMENT_MAGIC;
}

/* Field by field, because each message names both ends. */
static enum status agree_header(const struct segment_offer *mine,
                                const struct segment_offer *theirs)
{
    if (theirs->version != mine->version) {
        return status_fail(STATUS_ERR_REFUSED,
                           "sharing memory with rank %" PRId32 ": it speaks version %" PRIu32
                           " of the exchange and rank %" PRId32 " speaks %" PRIu32
                           "; all ranks must run the same build",
                           mine->to, theirs->version, mine->from, mine->version);
    }
    if (theirs->world != mine->world) {
        return status_fail(STATUS_ERR_REFUSED,
                           "sharing memory with rank %" PRId32 ": its job has %" PRId32
                           " ranks and that of rank %" PRId32 " has %" PRId32,
                           mine->to, theirs->world, mine->from, mine->world);
    }
    if (theirs->from != mine->to || theirs->to != mine->from) {
        return status_fail(STATUS_ERR_REFUSED,
                           "sharing memory: rank %" PRId32 " expected rank %" PRId32
                           ", but rank %" PRId32 " answers, which expected rank %" PRId32,
                           mine->from, mine->to, theirs->from, theirs->to);
    }
    if (theirs->lane_count < 0 || theirs->lane_count > SEGMENT_OFFER_LANES) {
        return status_fail(STATUS_ERR_FORMAT,
                           "sharing memory with rank %" PRId32 ": it tells of %" PRId32
                           " lanes, at most %d can be",
                           mine->to, theirs->lane_count, SEGMENT_OFFER_LANES);
    }
    if (theirs->group_count < 0 || theirs->group_count > SEGMENT_OFFER_GROUPS) {
        return status_fail(STATUS_ERR_FORMAT,
                           "sharing memory with rank %" PRId32 ": it tells of %" PRId32
                           " groups, at most %d can be",
                           mine->to, theirs->group_count, SEGMENT_OFFER_GROUPS);
    }
    return STATUS_OK;
}

static enum status fail_missing(const struct segment_lane *lane, int32_t has, int32_t lacks)
{
    return status_fail(STATUS_ERR_REFUSED,
                       "lanes of rank %" PRId32 " and rank %" PRId32 " disagree: rank %" PRId32
                       " %s in direction %c with %" PRId32 " landing buffers of %" PRIu64
                       " bytes, but rank %" PRId32 " has no such lane",
                       has, lacks, has, lane->sends != 0 ? "sends" : "receives",
                       comm_direction_letter(lane->direction), lane->landings, lane->landing_bytes,
                       lacks);
}

static enum status agree_lane(const struct segment_offer *mine, const struct segment_offer *theirs,
                              const struct segment_lane *here)
{
    const struct segment_lane *there =
        segment_offer_find(theirs, here->direction, here->sends == 0);

    if (there == NULL) {
        return fail_missing(here, mine->from, mine->to);
    }
    if (there->landings != here->landings || there->landing_bytes != here->landing_bytes) {
        return status_fail(
            STATUS_ERR_REFUSED,
            "lane %c from rank %" PRId32 " to rank %" PRId32 " disagrees: rank %" PRId32
            " counts %" PRId32 " landing buffers of %" PRIu64 " bytes and rank %" PRId32
            " counts %" PRId32 " of %" PRIu64,
            comm_direction_letter(here->direction), here->sends != 0 ? mine->from : mine->to,
            here->sends != 0 ? mine->to : mine->from, mine->from, here->landings,
            here->landing_bytes, mine->to, there->landings, there->landing_bytes);
    }
    if (here->sends != 0 && !segment_place_fits(&there->place, there->landings,
                                                there->landing_bytes, theirs->segment_bytes)) {
        return status_fail(STATUS_ERR_FORMAT,
                           "lane from rank %" PRId32 " to rank %" PRId32 ": %" PRId32
                           " landing buffers of %" PRIu64 " bytes at %" PRIu64 ", marks at %" PRIu64
                           ", do not lie in the %" PRIu64 " bytes that rank %" PRId32 " shares",
                           mine->from, mine->to, there->landings, there->landing_bytes,
                           there->place.buffers, there->place.marks, theirs->segment_bytes,
                           mine->to);
    }
    return STATUS_OK;
}

/* What both ranks must do that disagree on groups. */
#define GROUP_ADVICE "both must open the groups that they share in the same order"

static enum status fail_group(const struct segment_group *group, int32_t index, int32_t has,
                              int32_t lacks)
{
    char ranks[RANK_LIST_BYTES];

    return status_fail(STATUS_ERR_REFUSED,
                       "groups of rank %" PRId32 " and rank %" PRId32 " disagree: rank %" PRId32
                       " has the group of ranks %s as number %" PRId32 " with rank %" PRId32
                       ", but rank %" PRId32 " has no such group; " GROUP_ADVICE,
                       has, lacks, has, rank_list_text(group->ranks, group->count, ranks), index,
                       lacks, lacks);
}

static enum status agree_group(const struct segment_offer *mine, const struct segment_offer *theirs,
                               int32_t index)
{
    const struct segment_group *here = &mine->groups[index];
    const struct segment_group *there = &theirs->groups[index];
    char own[RANK_LIST_BYTES];
    char other[RANK_LIST_BYTES];

    if (there->count < 2 || there->count > SEGMENT_GROUP_MEMBERS) {
        return status_fail(STATUS_ERR_FORMAT,
                           "sharing memory with rank %" PRId32 ": it tells of a group of %" PRId32
                           " members, 2 to %d can be",
                           mine->to, there->count, SEGMENT_GROUP_MEMBERS);
    }
    if (index >= mine->group_count) {
        return fail_group(there, index, mine->to, mine->from);
    }
    if (there->count != here->count ||
        memcmp(there->ranks, here->ranks, (size_t)here->count * sizeof(int32_t)) != 0) {
        return status_fail(
            STATUS_ERR_REFUSED,
            "groups of rank %" PRId32 " and rank %" PRId32 " disagree: number %" PRId32
            " that they share has %" PRId32 " members (%s) at rank %" PRId32 " and %" PRId32
            " members (%s) at rank %" PRId32 "; " GROUP_ADVICE,
            mine->from, mine->to, index, here->count, rank_list_text(here->ranks, here->count, own),
            mine->from, there->count, rank_list_text(there->ranks, there->count, other), mine->to);
    }
    if (!segment_block_fits(there->mark, sizeof(struct group_mark), SEGMENT_ALIGN_BYTES,
                            theirs->segment_bytes)) {
        return status_fail(STATUS_ERR_FORMAT,
                           "the mark of a group at %" PRIu64 " does not lie in the %" PRIu64
                           " bytes that rank %" PRId32 " shares",
                           there->mark, theirs->segment_bytes, mine->to);
    }
    return STATUS_OK;
}

static enum status agree_groups(const struct segment_offer *mine,
                                const struct segment_offer *theirs)
{
    for (int32_t i = 0; i < theirs->group_count; i++) {
        TRY(agree_group(mine, theirs, i));
    }
    if (theirs->group_count < mine->group_count) {
        return fail_group(&mine->groups[theirs->group_count], theirs->group_count, mine->from,
                          mine->to);
    }
    return STATUS_OK;
}

/* The two blocks may differ in size, as the ranks' parameters do. */
static enum status check_shared(const struct segment_offer *theirs)
{
    if (theirs->shared.bytes > 0 &&
        !segment_block_fits(theirs->shared.offset, theirs->shared.bytes, SEGMENT_PAGE_BYTES,
                            theirs->segment_bytes)) {
        return status_fail(STATUS_ERR_FORMAT,
                           "a shared block of %" PRIu64 " bytes at %" PRIu64
                           " does not lie in the %" PRIu64 " bytes that rank %" PRId32 " shares",
                           theirs->shared.bytes, theirs->shared.offset, theirs->segment_bytes,
                           theirs->from);
    }
    return STATUS_OK;
}

enum status segment_offer_agree(const struct segment_offer *mine,
                                const struct segment_offer *theirs)
{
    TRY(agree_header(mine, theirs));
    for (int32_t i = 0; i < mine->lane_count; i++) {
        TRY(agree_lane(mine, theirs, &mine->lanes[i]));
    }
    for (int32_t i = 0; i < theirs->lane_count; i++) {
        const struct segment_lane *there = &theirs->lanes[i];

        if (segment_offer_find(mine, there->direction, there->sends == 0) == NULL) {
            return fail_missing(there, mine->to, mine->from);
        }
    }
    TRY(agree_groups(mine, theirs));
    return check_shared(theirs);
}
