/*
 * Collectives: every member maps the shared blocks of all others, and works on its slice of all of
 * them between two barriers.
 *
 * A barrier is one count in the segment of the first member, which each arrival raises by one; who
 * raises it to the last of this barrier rings everybody else. No member can arrive at the next
 * barrier before, so the count needs no reset. The count releases what its raiser has written and
 * is acquired by who goes on: all that was written before a barrier is seen by all after it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm_shm.h"
#include "collectives/segment_offer.h"
#include "tensor/kernels.h"

_Static_assert(COMM_GROUP_MEMBERS == SEGMENT_GROUP_MEMBERS, "an offer holds every group");

/* In the marks; names are for messages. */
enum call_kind {
    CALL_SUM = 1,
    CALL_MAX,
    CALL_REDUCE_SCATTER,
    CALL_ALL_GATHER
};

struct call {
    struct comm_shm_group *group;
    enum call_kind kind;
    const struct comm_piece *pieces; /* in this rank's block */
    int32_t count;
    const struct cancel *cancel;
    int64_t deadline_ns;
};

struct barrier_goal {
    struct comm_shm_goal base; /* first */
    const struct comm_shm_group *group;
    const uint64_t *arrivals;
    uint64_t wanted;
};

static struct comm_shm_group *group_of(struct group *base)
{
    return (struct comm_shm_group *)(void *)base;
}

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {
        [CALL_SUM] = "all_reduce (sum)",
        [CALL_MAX] = "all_reduce (max)",
        [CALL_REDUCE_SCATTER] = "reduce_scatter",
        [CALL_ALL_GATHER] = "all_gather",
    };

    return kind >= CALL_SUM && kind <= CALL_ALL_GATHER ? names[kind] : "no call";
}

#define CALL_TEXT_BYTES 128

/* What a member has told of its call: "all_reduce (sum) of 100 floats". */
static const char *call_text(const struct group_mark *mark, char text[CALL_TEXT_BYTES])
{
    const char *name = kind_name(mark->kind);

    if (mark->pieces == 1 && mark->bytes == mark->elems * sizeof(float)) {
        (void)snprintf(text, CALL_TEXT_BYTES, "%s of %" PRIu64 " floats", name, mark->elems);
    } else if (mark->pieces == 1) {
        (void)snprintf(text, CALL_TEXT_BYTES, "%s of %" PRIu64 " elements in %" PRIu64 " bytes",
                       name, mark->elems, mark->bytes);
    } else {
        (void)snprintf(text, CALL_TEXT_BYTES,
                       "%s of %" PRId32 " pieces with %" PRIu64 " elements in %" PRIu64 " bytes",
                       name, mark->pieces, mark->elems, mark->bytes);
    }
    return text;
}

static struct group_mark *own_mark(const struct comm_shm_group *group)
{
    return group->members[group->base.index].mark;
}

/* Two ranks tell each other of all groups that they have in common, in a table of this size. */
static enum status check_common(const struct comm_shm *comm, int32_t rank)
{
    int32_t common = 0;

    for (int32_t i = 0; i < comm->group_count; i++) {
        const struct comm_shm_group *group = comm->groups[i];

        for (int32_t k = 0; k < group->base.count; k++) {
            common += group->ranks[k] == rank ? 1 : 0;
        }
    }
    if (rank != comm->base.rank && common >= SEGMENT_OFFER_GROUPS) {
        return status_fail(STATUS_ERR_INVALID,
                           "opening a group of rank %" PRId32 ": it has %" PRId32
                           " groups with rank %" PRId32 " already, which is the most",
                           comm->base.rank, common, rank);
    }
    return STATUS_OK;
}

enum status comm_shm_group_open(struct comm *base, const struct group_config *config,
                                struct group **group_out)
{
    struct comm_shm *comm = comm_shm_of(base);
    struct comm_shm_group **groups;
    struct comm_shm_group *group;

    for (int32_t k = 0; k < config->count; k++) {
        TRY(check_common(comm, config->ranks[k]));
    }
    group = calloc(1, sizeof(*group));
    groups =
        realloc(comm->groups, ((size_t)comm->group_count + 1) * sizeof(struct comm_shm_group *));
    if (groups != NULL) {
        comm->groups = groups;
    }
    if (group == NULL || groups == NULL) {
        free(group);
        return status_fail(STATUS_ERR_NO_MEMORY, "opening a group of %" PRId32 " ranks",
                           config->count);
    }
    memcpy(group->ranks, config->ranks, (size_t)config->count * sizeof(int32_t));
    group->aside = config->aside;
    group->base = (struct group){.comm = base, .ranks = group->ranks, .count = config->count};
    while (group->ranks[group->base.index] != base->rank) {
        group->base.index++;
    }
    groups[comm->group_count++] = group;
    *group_out = &group->base;
    return STATUS_OK;
}

/* ---- The barrier. ---- */

static enum status look(const struct comm_shm_goal *base)
{
    const struct barrier_goal *goal = (const struct barrier_goal *)(const void *)base;

    return __atomic_load_n(goal->arrivals, __ATOMIC_ACQUIRE) >= goal->wanted ? STATUS_OK
                                                                             : STATUS_IN_PROGRESS;
}

/* The members that have not arrived at the barrier that this rank waits at. */
static const char *list_missing(const struct comm_shm_group *group, char text[RANK_LIST_BYTES])
{
    int32_t missing[COMM_GROUP_MEMBERS];
    int32_t count = 0;

    for (int32_t k = 0; k < group->base.count; k++) {
        if (__atomic_load_n(&group->members[k].mark->barriers, __ATOMIC_RELAXED) <
            group->barriers) {
            missing[count++] = group->ranks[k];
        }
    }
    return rank_list_text(missing, count, text);
}

static enum status fail_wait(const struct comm_shm_goal *base, enum status status)
{
    const struct barrier_goal *goal = (const struct barrier_goal *)(const void *)base;
    const struct comm_shm_group *group = goal->group;
    char call[CALL_TEXT_BYTES];
    char ranks[RANK_LIST_BYTES];
    char missing[RANK_LIST_BYTES];

    (void)call_text(own_mark(group), call);
    (void)rank_list_text(group->ranks, group->base.count, ranks);
    (void)list_missing(group, missing);
    if (status == STATUS_ERR_TIMEOUT) {
        return status_fail(status,
                           "rank %" PRId32 " waited in %s, call %" PRIu64
                           " on the group of ranks %s, for rank %s: nothing before the deadline",
                           group->base.comm->rank, call, group->base.calls, ranks, missing);
    }
    /* Who gave up has said why: the wait of each other rank is no news. */
    return status_note(status,
                       "rank %" PRId32 " was waiting in %s, call %" PRIu64
                       " on the group of ranks %s, for rank %s when the job was given up",
                       group->base.comm->rank, call, group->base.calls, ranks, missing);
}

static void ring_others(const struct comm_shm_group *group)
{
    for (int32_t k = 0; k < group->base.count; k++) {
        if (k != group->base.index) {
            doorbell_ring(&group->members[k].page->doorbell);
        }
    }
}

/* Returns when all members have arrived. */
static enum status barrier(const struct call *call)
{
    struct comm_shm_group *group = call->group;
    uint64_t *arrivals = &group->members[0].mark->arrivals;
    uint64_t wanted;

    group->barriers++;
    wanted = group->barriers * (uint64_t)group->base.count;
    __atomic_store_n(&own_mark(group)->barriers, group->barriers, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(arrivals, 1, __ATOMIC_ACQ_REL) != wanted) {
        const struct barrier_goal goal = {
            .base = {.aside = group->aside, .look = look, .fail = fail_wait},
            .group = group,
            .arrivals = arrivals,
            .wanted = wanted};

        return comm_shm_wait(comm_shm_of(group->base.comm), &goal.base, call->cancel,
                             call->deadline_ns);
    }
    ring_others(group);
    return STATUS_OK;
}

/* ---- What stands around every call. ---- */

static enum status fail_call(const struct comm_shm_group *group, int32_t k)
{
    const struct group_mark *mine = own_mark(group);
    const struct group_mark *theirs = group->members[k].mark;
    char ranks[RANK_LIST_BYTES];
    char own[CALL_TEXT_BYTES];
    char other[CALL_TEXT_BYTES];
    bool list_only = mine->kind == theirs->kind && mine->offset == theirs->offset &&
                     mine->elems == theirs->elems && mine->bytes == theirs->bytes &&
                     mine->pieces == theirs->pieces;

    return status_fail(STATUS_ERR_FORMAT,
                       "call %" PRIu64 " on the group of ranks %s: rank %" PRId32
                       " calls %s at byte %" PRIu64 " and rank %" PRId32 " %s at byte %" PRIu64
                       "%s; the ranks run different plans",
                       group->base.calls, rank_list_text(group->ranks, group->base.count, ranks),
                       group->base.comm->rank, call_text(mine, own), mine->offset, group->ranks[k],
                       call_text(theirs, other), theirs->offset,
                       list_only ? ", but piece by piece they differ" : "");
}

/* All members look at all others, so that all of them notice. As each has made sure that the data
 * lies in its own block, it then lies in all. */
static enum status check_calls(const struct comm_shm_group *group)
{
    const struct group_mark *mine = own_mark(group);

    for (int32_t k = 0; k < group->base.count; k++) {
        const struct group_mark *theirs = group->members[k].mark;

        if (theirs->kind != mine->kind || theirs->offset != mine->offset ||
            theirs->elems != mine->elems || theirs->bytes != mine->bytes ||
            theirs->pieces != mine->pieces || theirs->hash != mine->hash) {
            return fail_call(group, k);
        }
    }
    return STATUS_OK;
}

/* Any two different lists have different hashes, but for accidents of 1 in 2^64. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 32);
}

/* Where a piece lies in every member's block. */
static size_t offset_of(const struct call *call, const struct comm_piece *piece)
{
    const struct comm_shm_group *group = call->group;

    return (size_t)((const unsigned char *)piece->data - group->members[group->base.index].block);
}

/* Tells the others what is called; the hash stands for the pieces behind the first. */
static void tell_call(const struct call *call)
{
    struct group_mark *mark = own_mark(call->group);
    uint64_t hash = 0;

    mark->kind = call->kind;
    mark->pieces = call->count;
    mark->offset = call->count > 0 ? offset_of(call, &call->pieces[0]) : 0;
    mark->elems = 0;
    mark->bytes = 0;
    for (int32_t i = 0; i < call->count; i++) {
        const struct comm_piece *piece = &call->pieces[i];

        mark->elems += piece->elems;
        mark->bytes += piece->elems * piece->elem_bytes;
        hash = mix(hash, offset_of(call, piece));
        hash = mix(hash, piece->elems);
        hash = mix(hash, piece->elem_bytes);
    }
    mark->hash = hash;
}

/* Tells the others of the call, and waits until all are in it and agree. Until end_call() nobody
 * goes on to a call that would change what has been told. */
static enum status begin_call(const struct call *call)
{
    tell_call(call);
    TRY(barrier(call));
    return check_calls(call->group);
}

static enum status end_call(const struct call *call)
{
    return barrier(call);
}

/* Element `first` of a piece at member k. */
static unsigned char *data_of(const struct call *call, const struct comm_piece *piece, int32_t k,
                              size_t first)
{
    return call->group->members[k].block + offset_of(call, piece) + first * piece->elem_bytes;
}

/* Combines this member's slice of all members; the result goes to the members from `to` on,
 * `to_count` of them. */
static enum status combine_slice(const struct call *call, const struct comm_piece *piece,
                                 int32_t to, int32_t to_count)
{
    const struct comm_shm_group *group = call->group;
    const struct comm_shm *comm = comm_shm_of(group->base.comm);
    const float *ins[COMM_GROUP_MEMBERS];
    float *outs[COMM_GROUP_MEMBERS];
    size_t first = 0;
    size_t elems = 0;

    comm_slice(piece->elems, group->base.count, group->base.index, &first, &elems);
    for (int32_t k = 0; k < group->base.count; k++) {
        ins[k] = (const float *)(const void *)data_of(call, piece, k, first);
    }
    for (int32_t k = 0; k < to_count; k++) {
        outs[k] = (float *)(void *)data_of(call, piece, to + k, first);
    }
    return comm->kernels->combine(outs, (size_t)to_count, ins, (size_t)group->base.count, elems,
                                  call->kind == CALL_MAX ? COMBINE_MAX : COMBINE_SUM);
}

enum status comm_shm_all_reduce(struct group *base, const struct comm_piece *piece, enum comm_op op,
                                const struct cancel *cancel, int64_t deadline_ns)
{
    const struct call call = {.group = group_of(base),
                              .kind = op == COMM_MAX ? CALL_MAX : CALL_SUM,
                              .pieces = piece,
                              .count = 1,
                              .cancel = cancel,
                              .deadline_ns = deadline_ns};

    TRY(begin_call(&call));
    TRY(combine_slice(&call, piece, 0, base->count));
    return end_call(&call);
}

enum status comm_shm_reduce_scatter(struct group *base, const struct comm_piece *pieces,
                                    int32_t count, const struct cancel *cancel, int64_t deadline_ns)
{
    const struct call call = {.group = group_of(base),
                              .kind = CALL_REDUCE_SCATTER,
                              .pieces = pieces,
                              .count = count,
                              .cancel = cancel,
                              .deadline_ns = deadline_ns};

    TRY(begin_call(&call));
    for (int32_t i = 0; i < count; i++) {
        TRY(combine_slice(&call, &pieces[i], base->index, 1));
    }
    return end_call(&call);
}

/* Copies every piece's slice of member k from its block into this rank's. */
static void fetch_slices(const struct call *call, int32_t k)
{
    const struct group *base = &call->group->base;

    for (int32_t i = 0; i < call->count; i++) {
        const struct comm_piece *piece = &call->pieces[i];
        size_t first = 0;
        size_t elems = 0;

        comm_slice(piece->elems, base->count, k, &first, &elems);
        memcpy(data_of(call, piece, base->index, first), data_of(call, piece, k, first),
               elems * piece->elem_bytes);
    }
}

/* Each member fetches, so that what it has afterwards lies in its own core's cache. It writes to its
 * own block only, and what others fetch from there it does not write, so no slice need end where a
 * cache line does. */
enum status comm_shm_all_gather(struct group *base, const struct comm_piece *pieces, int32_t count,
                                const struct cancel *cancel, int64_t deadline_ns)
{
    const struct call call = {.group = group_of(base),
                              .kind = CALL_ALL_GATHER,
                              .pieces = pieces,
                              .count = count,
                              .cancel = cancel,
                              .deadline_ns = deadline_ns};

    TRY(begin_call(&call));
    /* Begins behind itself, so that not all members read the same one at once. */
    for (int32_t step = 1; step < base->count; step++) {
        fetch_slices(&call, (base->index + step) % base->count);
    }
    return end_call(&call);
}
