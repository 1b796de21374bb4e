/* Operations of fake_nccl.h: how they are called, meet their peers in streams, and move numbers. */
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "tests/emulated/fake_nccl.hpp"

using namespace fake_nccl;

using guard = std::lock_guard<std::mutex>;

namespace
{

/* Of the calling thread: what has been called since ncclGroupStart(). */
thread_local int depth;
thread_local std::vector<launch> called;

const char *const kind_names[] = {"all_reduce", "reduce_scatter", "all_gather", "reduce",
                                  "broadcast",  "send",           "receive"};

size_t bytes_of(const operation &one)
{
    return one.count * (one.type == ncclFloat32 ? sizeof(float) : 1);
}

bool is_message(const operation &one)
{
    return one.what == kind::send || one.what == kind::receive;
}

std::string text_of(const operation &one)
{
    std::string text = "rank " + std::to_string(one.comm->world_rank) + ": " +
                       kind_names[(int)one.what] + " of " + std::to_string(one.count) +
                       (one.type == ncclFloat32 ? " floats" : " bytes");

    if (one.what == kind::all_reduce || one.what == kind::reduce_scatter ||
        one.what == kind::reduce) {
        text += one.op == ncclSum ? ", sum" : ", max";
    }
    if (one.what == kind::reduce || one.what == kind::broadcast) {
        text += ", root " + std::to_string(one.other);
    }
    return text;
}

bool match(const operation &one, const operation &other)
{
    return one.what == other.what && one.count == other.count && one.type == other.type &&
           one.op == other.op && one.other == other.other;
}

/* All memory of the members, open to this thread. */
struct opened {
    const clique &of;

    explicit opened(const clique &members) : of(members)
    {
        for (ncclComm_t member : of.members) {
            fake_cuda::memory_open(member->gpu->own);
        }
    }
    opened(const opened &) = delete;
    opened &operator=(const opened &) = delete;
    ~opened()
    {
        for (ncclComm_t member : of.members) {
            fake_cuda::memory_close(member->gpu->own);
        }
    }
};

/* The floats from `first` on of all members, folded in the order of ranks. */
std::vector<float> fold(const std::vector<shared_operation> &parts, size_t first, size_t count)
{
    const float *own = (const float *)parts[0]->from + first;
    std::vector<float> result(own, own + count);

    for (size_t rank = 1; rank < parts.size(); rank++) {
        const float *other = (const float *)parts[rank]->from + first;

        for (size_t i = 0; i < count; i++) {
            result[i] =
                parts[0]->op == ncclSum ? result[i] + other[i] : std::fmax(result[i], other[i]);
        }
    }
    return result;
}

void store(void *to, const std::vector<float> &numbers)
{
    std::memcpy(to, numbers.data(), numbers.size() * sizeof(float));
}

void combine(const std::vector<shared_operation> &parts)
{
    const operation &first = *parts[0];
    const size_t count = first.count;
    const size_t bytes = bytes_of(first);

    switch (first.what) {
    case kind::all_reduce: {
        const std::vector<float> result = fold(parts, 0, count);

        for (const shared_operation &part : parts) {
            store(part->to, result);
        }
        break;
    }
    case kind::reduce_scatter:
        for (size_t rank = 0; rank < parts.size(); rank++) {
            store(parts[rank]->to, fold(parts, rank * count, count));
        }
        break;
    case kind::all_gather:
        for (const shared_operation &part : parts) {
            for (size_t rank = 0; rank < parts.size(); rank++) {
                std::memmove((char *)part->to + rank * bytes, parts[rank]->from, bytes);
            }
        }
        break;
    case kind::reduce:
        store(parts[(size_t)first.other]->to, fold(parts, 0, count));
        break;
    default:
        for (const shared_operation &part : parts) {
            std::memmove(part->to, parts[(size_t)first.other]->from, bytes);
        }
    }
}

bool is_well(const shared_operation &one)
{
    return one != nullptr && !one->comm->gone && !one->hangs;
}

void meet(const clique &of, const shared_operation &one, const shared_operation &other,
          bool matching)
{
    if (!matching) {
        fail_all(of, ncclInvalidUsage, text_of(*other) + " where " + text_of(*one));
    }
}

/* Stands in its place among those of the other members. */
void come(const shared_operation &one)
{
    clique &of = *one->comm->of;

    one->come = true;
    if (one->fails) {
        one->comm->state = ncclSystemError;
        one->comm->error = text_of(*one) + ": made to fail";
        fail_all(of, ncclRemoteError,
                 "rank " + std::to_string(one->comm->world_rank) + " has failed");
        return;
    }
    if (is_message(*one)) {
        const bool sends = one->what == kind::send;
        const int from = sends ? one->comm->rank : one->other;
        const int to = sends ? one->other : one->comm->rank;
        auto &both = of.messages[{from, to, one->number}];

        both[sends ? 0 : 1] = one;
        if (both[0] != nullptr && both[1] != nullptr) {
            meet(of, both[0], both[1],
                 both[0]->count == both[1]->count && both[0]->type == both[1]->type);
        }
        return;
    }
    std::vector<shared_operation> &parts = of.collectives[one->number];

    parts.resize(of.members.size());
    for (const shared_operation &other : parts) {
        if (other != nullptr) {
            meet(of, other, one, match(*other, *one));
            break;
        }
    }
    parts[(size_t)one->comm->rank] = one;
}

/* Does it where all have come. */
void attempt(const shared_operation &one)
{
    clique &of = *one->comm->of;

    if (is_message(*one)) {
        const bool sends = one->what == kind::send;
        const auto key = std::make_tuple(sends ? one->comm->rank : one->other,
                                         sends ? one->other : one->comm->rank, one->number);
        const auto both = of.messages[key];

        if (is_well(both[0]) && is_well(both[1])) {
            const opened all_memory(of);

            std::memcpy(both[1]->to, both[0]->from, bytes_of(*one));
            both[0]->done = both[1]->done = true;
            of.messages.erase(key);
        }
        return;
    }
    const std::vector<shared_operation> parts = of.collectives[one->number];

    for (const shared_operation &part : parts) {
        if (!is_well(part)) {
            return;
        }
    }
    const opened all_memory(of);

    combine(parts);
    for (const shared_operation &part : parts) {
        part->done = true;
    }
    of.collectives.erase(one->number);
}

bool is_sick(ncclResult_t state)
{
    return state != ncclSuccess && state != ncclInProgress;
}

/* One try of a stream. */
bool run(const launch &now)
{
    const guard held(all().mutex);
    bool done = true;

    if (now.comm->gone) {
        return true;
    }
    for (const shared_operation &one : now.operations) {
        if (!one->come) {
            come(one);
        }
        if (!one->done && !is_sick(one->comm->state)) {
            attempt(one);
        }
        done = done && one->done;
    }
    now.comm->running -= done ? 1 : 0;
    return done;
}

bool has_room(const void *memory, size_t bytes)
{
    return fake_cuda::bytes_behind(memory) >= bytes;
}

bool has_memory(const operation &one)
{
    const size_t bytes = bytes_of(one);
    const size_t all_bytes = bytes * one.comm->of->members.size();
    const bool root = one.other == one.comm->rank;

    switch (one.what) {
    case kind::send:
        return has_room(one.from, bytes);
    case kind::receive:
        return has_room(one.to, bytes);
    case kind::reduce_scatter:
        return has_room(one.from, all_bytes) && has_room(one.to, bytes);
    case kind::all_gather:
        return has_room(one.from, bytes) && has_room(one.to, all_bytes);
    case kind::reduce:
        return has_room(one.from, bytes) && (!root || has_room(one.to, bytes));
    case kind::broadcast:
        return has_room(one.to, bytes) && (!root || has_room(one.from, bytes));
    default:
        return has_room(one.from, bytes) && has_room(one.to, bytes);
    }
}

/* Under the mutex: it gets its number, and what a test has in store for it. */
void enter(operation &one)
{
    strike &mine = all().strikes[one.comm->world_rank];

    one.number = one.what == kind::send      ? one.comm->sends[one.other]++
                 : one.what == kind::receive ? one.comm->receives[one.other]++
                                             : one.comm->collectives++;
    mine.called++;
    one.fails = mine.fail > 0 && --mine.fail == 0;
    one.hangs = mine.hang > 0 && --mine.hang == 0;
    mine.struck_ns = one.fails || one.hangs ? clock_now_ns() : mine.struck_ns;
}

/* What one call or group has for one communicator. */
ncclResult_t issue(const launch &made)
{
    {
        const guard held(all().mutex);
        ncclComm_t comm = made.comm;
        const bool later = !comm->used || draw(8) == 0;

        comm->used = true;
        comm->running++;
        if (later) {
            comm->held.push_back(made);
            comm->state = ncclInProgress;
            comm->polls = 1 + draw(3);
            return ncclInProgress;
        }
    }
    put(made);
    return ncclSuccess;
}

ncclResult_t flush()
{
    std::vector<launch> ready;
    ncclResult_t result = ncclSuccess;

    ready.swap(called);
    for (const launch &one : ready) {
        if (issue(one) == ncclInProgress) {
            result = ncclInProgress;
        }
    }
    return result;
}

ncclResult_t call(operation one, cudaStream_t stream)
{
    const char *name = kind_names[(int)one.what];
    {
        const guard held(all().mutex);

        ensure_there(one.comm, name);
        if (is_sick(one.comm->state)) {
            return one.comm->state;
        }
        if (one.comm->state == ncclInProgress || one.comm->ends) {
            return refuse(ncclInvalidArgument, name,
                          "before the call before it has answered ncclSuccess");
        }
        if (!has_memory(one)) {
            return refuse(ncclInvalidArgument, name, "not memory of a GPU, or too short");
        }
        if (one.other < 0 || one.other >= (int)one.comm->of->members.size()) {
            return refuse(ncclInvalidArgument, name, "no such peer or root");
        }
        enter(one);
    }
    const auto made = std::make_shared<operation>(one);

    if (!called.empty() && called.back().comm == one.comm && called.back().stream == stream) {
        called.back().operations.push_back(made);
    } else {
        called.push_back({one.comm, stream, {made}});
    }
    return depth > 0 ? ncclSuccess : flush();
}

} // namespace

void fake_nccl::put(const launch &made)
{
    (void)fake_cuda::enqueue(made.stream, kind_names[(int)made.operations[0]->what],
                             [made] { return run(made); });
}

extern "C" {

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0) {
        return refuse(ncclInvalidUsage, "ncclGroupEnd", "without a start");
    }
    return --depth > 0 ? ncclSuccess : flush();
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return call({kind::all_reduce, from, to, count, type, op, 0, comm, 0}, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return call({kind::reduce_scatter, from, to, count, type, op, 0, comm, 0}, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call({kind::all_gather, from, to, count, type, ncclSum, 0, comm, 0}, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return call({kind::reduce, from, to, count, type, op, root, comm, 0}, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call({kind::broadcast, from, to, count, type, ncclSum, root, comm, 0}, stream);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return call({kind::send, from, nullptr, count, type, ncclSum, peer, comm, 0}, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return call({kind::receive, nullptr, to, count, type, ncclSum, peer, comm, 0}, stream);
}

} /* extern "C" */
