/* The functions of comm.h that work on groups: what callers promise, once for all implementations. */
#include <inttypes.h>

#include "base/check.h"
#include "collectives/comm.h"
#include "collectives/comm_ops.h"

/* Elements that a slice is a multiple of. In floats, which alone are summed, a cache line, so that
 * members write lines of their own; what is gathered each member writes into its own block. */
#define SLICE_GRAIN ((size_t)16)

static enum status refuse(const struct comm *comm, const struct group_config *config,
                          const char *why)
{
    char ranks[RANK_LIST_BYTES];

    return status_fail(STATUS_ERR_INVALID, "opening a group of rank %" PRId32 " with ranks %s: %s",
                       comm->rank, rank_list_text(config->ranks, config->count, ranks), why);
}

enum status comm_group_open(struct comm *comm, const struct group_config *config,
                            struct group **group_out)
{
    bool member = false;

    ENSURE(!comm->connected, "groups are declared before comm_connect()");
    if (config->count < 2 || config->count > COMM_GROUP_MEMBERS) {
        return status_fail(STATUS_ERR_INVALID,
                           "opening a group of rank %" PRId32 ": %" PRId32
                           " members, 2 to %d can be",
                           comm->rank, config->count, COMM_GROUP_MEMBERS);
    }
    for (int32_t i = 0; i < config->count; i++) {
        int32_t rank = config->ranks[i];

        if (rank < 0 || rank >= comm->world) {
            return refuse(comm, config, "not all of them are ranks of the job");
        }
        if (i > 0 && rank <= config->ranks[i - 1]) {
            return refuse(comm, config, "the ranks must ascend");
        }
        member = member || rank == comm->rank;
    }
    if (!member) {
        return refuse(comm, config, "a rank opens the groups that it is a member of");
    }
    return comm->ops->group_open(comm, config, group_out);
}

void comm_slice(size_t elems, int32_t count, int32_t index, size_t *first_out, size_t *elems_out)
{
    size_t members = (size_t)count;
    size_t fair = elems / members + (elems % members != 0 ? 1 : 0);
    size_t grains = fair / SLICE_GRAIN + (fair % SLICE_GRAIN != 0 ? 1 : 0);
    size_t part = grains * SLICE_GRAIN;
    size_t before = (size_t)index;
    size_t first = part > 0 && before > elems / part ? elems : before * part;

    *first_out = first;
    *elems_out = elems - first < part ? elems - first : part;
}

/* Whether a call may begin at all. */
static enum status check_call(const struct group *group)
{
    const struct comm *comm = group->comm;

    ENSURE(comm->connected, "a group combines after comm_connect()");
    if (group->broken < 0) {
        char ranks[RANK_LIST_BYTES];

        return status_note(group->broken,
                           "the group of ranks %s is broken: an earlier call of rank %" PRId32
                           " on it has failed",
                           rank_list_text(group->ranks, group->count, ranks), comm->rank);
    }
    return STATUS_OK;
}

static void ensure_piece(const struct comm *comm, const struct comm_piece *piece)
{
    uintptr_t block;
    uintptr_t at = (uintptr_t)piece->data;
    size_t room;

    ENSURE(comm->shared_bytes > 0, "rank %d shares no block in which data of a group could lie",
           comm->rank);
    block = (uintptr_t)comm->ops->shared(comm);
    ENSURE(at >= block && at - block <= comm->shared_bytes && (at - block) % piece->elem_bytes == 0,
           "data of a group lies in this rank's shared block of %zu bytes", comm->shared_bytes);
    room = (comm->shared_bytes - (at - block)) / piece->elem_bytes;
    ENSURE(piece->elems <= room, "%zu elements of a group where the shared block has room for %zu",
           piece->elems, room);
}

static enum status end_call(struct group *group, enum comm_collective collective,
                            const struct comm_piece *pieces, int32_t count, enum status status)
{
    if (status < 0) {
        group->broken = status;
        return status;
    }
    group->calls++;
    group->traffic[collective].calls++;
    for (int32_t i = 0; i < count; i++) {
        group->traffic[collective].bytes += pieces[i].elems * pieces[i].elem_bytes;
    }
    return STATUS_OK;
}

static struct comm_piece piece_of(float *data, size_t elems)
{
    return (struct comm_piece){.data = data, .elems = elems, .elem_bytes = sizeof(float)};
}

enum status comm_all_reduce(struct group *group, float *data, size_t elems, enum comm_op op,
                            const struct cancel *cancel, int64_t deadline_ns)
{
    const struct comm_piece piece = piece_of(data, elems);

    TRY(check_call(group));
    ensure_piece(group->comm, &piece);
    return end_call(group, COMM_ALL_REDUCE, &piece, 1,
                    group->comm->ops->all_reduce(group, &piece, op, cancel, deadline_ns));
}

enum status comm_reduce_scatter_pieces(struct group *group, const struct comm_piece *pieces,
                                       int32_t count, const struct cancel *cancel,
                                       int64_t deadline_ns)
{
    TRY(check_call(group));
    for (int32_t i = 0; i < count; i++) {
        ENSURE(pieces[i].elem_bytes == sizeof(float), "elements of %zu bytes, floats are summed",
               pieces[i].elem_bytes);
        ensure_piece(group->comm, &pieces[i]);
    }
    return end_call(group, COMM_REDUCE_SCATTER, pieces, count,
                    group->comm->ops->reduce_scatter(group, pieces, count, cancel, deadline_ns));
}

enum status comm_all_gather_pieces(struct group *group, const struct comm_piece *pieces,
                                   int32_t count, const struct cancel *cancel, int64_t deadline_ns)
{
    TRY(check_call(group));
    for (int32_t i = 0; i < count; i++) {
        ENSURE(pieces[i].elem_bytes == 2 || pieces[i].elem_bytes == 4,
               "elements of %zu bytes, those of 2 and 4 are gathered", pieces[i].elem_bytes);
        ensure_piece(group->comm, &pieces[i]);
    }
    return end_call(group, COMM_ALL_GATHER, pieces, count,
                    group->comm->ops->all_gather(group, pieces, count, cancel, deadline_ns));
}

enum status comm_reduce_scatter(struct group *group, float *data, size_t elems,
                                const struct cancel *cancel, int64_t deadline_ns)
{
    const struct comm_piece piece = piece_of(data, elems);

    return comm_reduce_scatter_pieces(group, &piece, 1, cancel, deadline_ns);
}

enum status comm_all_gather(struct group *group, float *data, size_t elems,
                            const struct cancel *cancel, int64_t deadline_ns)
{
    const struct comm_piece piece = piece_of(data, elems);

    return comm_all_gather_pieces(group, &piece, 1, cancel, deadline_ns);
}

struct comm_traffic comm_group_traffic(const struct group *group, enum comm_collective collective)
{
    return group->traffic[collective];
}

uint64_t comm_group_calls(const struct group *group)
{
    return group->calls;
}

enum status comm_group_join(struct group *group, uint64_t calls)
{
    const struct comm_ops *ops = group->comm->ops;

    ENSURE(calls <= group->calls, "call %" PRIu64 " of %" PRIu64, calls, group->calls);
    return ops->join != NULL && calls > 0 ? ops->join(group, calls) : STATUS_OK;
}
