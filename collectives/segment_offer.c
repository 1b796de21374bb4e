#include "collectives/segment_offer.h"

#include <inttypes.h>

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
    return STATUS_OK;
}

static enum status fail_missing(const struct segment_lane *lane, int32_t has, int32_t lacks)
{
    return status_fail(STATUS_ERR_REFUSED,
                       "lanes of rank %" PRId32 " and rank %" PRId32 " disagree: rank %" PRId32
                       " %s in direction %c with %" PRId32 " landing buffers of %" PRIu64
                       " bytes, but rank %" PRId32 " has no such lane",
                       has, lacks, has, lane->sends != 0 ? "sends" : "receives",
                       lane->direction == 0 ? 'F' : 'B', lane->landings, lane->landing_bytes,
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
            here->direction == 0 ? 'F' : 'B', here->sends != 0 ? mine->from : mine->to,
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
    return STATUS_OK;
}
