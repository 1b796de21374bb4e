/* Communicators of fake_nccl.h: how they come, split, fail and go. */
#include "tests/emulated/fake_nccl.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace fake_nccl;

using guard = std::lock_guard<std::mutex>;

static thread_local std::string last_error;

house &fake_nccl::all()
{
    static house *const one = new house(); /* outlives the threads that look into it */

    return *one;
}

int fake_nccl::draw(int below)
{
    uint64_t &random = all().random;

    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random >> 33) % (uint64_t)below);
}

void fake_nccl::fail_all(const clique &of, ncclResult_t error, const std::string &text)
{
    for (ncclComm_t member : of.members) {
        if (member != nullptr &&
            (member->state == ncclSuccess || member->state == ncclInProgress)) {
            member->state = error;
            member->error = text;
        }
    }
}

ncclResult_t fake_nccl::refuse(ncclResult_t error, const char *call, const std::string &why)
{
    std::fprintf(stderr, "fake_nccl: %s: %s\n", call, why.c_str());
    last_error = why;
    return error;
}

void fake_nccl::ensure_there(const ncclComm *comm, const char *call)
{
    if (comm == nullptr || comm->gone) {
        std::fprintf(stderr, "fake_nccl: %s of a communicator that is not there\n", call);
        std::abort();
    }
}

static ncclComm_t make(const std::shared_ptr<clique> &of, int rank, int world_rank, fake_gpu *gpu)
{
    ncclComm_t comm = new ncclComm();

    comm->of = of;
    comm->rank = rank;
    comm->world_rank = world_rank;
    comm->gpu = gpu;
    comm->polls = draw(4);
    of->members[(size_t)rank] = comm;
    of->joined++;
    all().open++;
    return comm;
}

static bool is_good(const ncclConfig_t *config)
{
    return config != nullptr && config->size == sizeof(*config) &&
           config->magic == FAKE_NCCL_MAGIC && config->blocking == 0;
}

/* What is registered goes with its communicator. */
static void end(ncclComm_t comm)
{
    comm->gone = true;
    comm->held.clear();
    all().open--;
    all().registered -= comm->registered;
}

/* Once all members have called it: the new cliques, ranks in the order of keys. */
static void make_children(const clique &of, split &all_parts)
{
    std::map<int, std::vector<std::pair<int, int>>> colors;

    for (size_t rank = 0; rank < of.members.size(); rank++) {
        const split::part &part = all_parts.parts[rank];

        if (part.color != NCCL_SPLIT_NOCOLOR) {
            colors[part.color].push_back({part.key, (int)rank});
        }
    }
    for (auto &color : colors) {
        const auto child = std::make_shared<clique>((int)color.second.size());

        std::sort(color.second.begin(), color.second.end());
        for (size_t i = 0; i < color.second.size(); i++) {
            const size_t rank = (size_t)color.second[i].second;
            const ncclComm_t parent = of.members[rank];

            all_parts.parts[rank].child = make(child, (int)i, parent->world_rank, parent->gpu);
            if (parent->gone) {
                end(all_parts.parts[rank].child);
            }
        }
    }
    all_parts.made = true;
}

/* Whether a split is through at this member, which has its child then. */
static bool end_split(ncclComm_t comm)
{
    split &now = comm->of->splits[comm->split_number];

    if (now.called < (int)comm->of->members.size()) {
        return false;
    }
    if (!now.made) {
        make_children(*comm->of, now);
    }
    *comm->child_out = now.parts[(size_t)comm->rank].child;
    comm->split_number++;
    return true;
}

/* Whether what is in progress has ended; under the mutex. */
static bool has_ended(ncclComm_t comm)
{
    const int ranks = (int)comm->of->members.size();

    if (comm->polls > 0) {
        comm->polls--;
        return false;
    }
    if (comm->joins) {
        comm->joins = comm->of->joined < ranks;
        return !comm->joins;
    }
    if (comm->splits) {
        comm->splits = !end_split(comm);
        return !comm->splits;
    }
    return !comm->ends || (comm->running == 0 && comm->of->finalizing >= ranks);
}

extern "C" {

void fake_nccl_fail(int rank, int nth)
{
    const guard held(all().mutex);
    all().strikes[rank].fail = nth;
}

void fake_nccl_hang(int rank, int nth)
{
    const guard held(all().mutex);
    all().strikes[rank].hang = nth;
}

int64_t fake_nccl_struck_ns(int rank)
{
    const guard held(all().mutex);
    return all().strikes[rank].struck_ns;
}

int fake_nccl_operations(int rank)
{
    const guard held(all().mutex);
    return all().strikes[rank].called;
}

size_t fake_nccl_left(void)
{
    const guard held(all().mutex);
    return all().open + all().registered;
}

size_t fake_nccl_aborted(void)
{
    const guard held(all().mutex);
    return all().aborted;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    const guard held(all().mutex);

    /* Every byte counts: one that is lost on the way makes another world. */
    for (size_t i = 0; i < sizeof(id->internal); i++) {
        id->internal[i] = (char)draw(256);
    }
    std::memcpy(id->internal, &++all().ids, sizeof(all().ids));
    return ncclSuccess;
}

/* The library's words. */
const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const words[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};

    return (size_t)result < sizeof(words) / sizeof(words[0]) ? words[result]
                                                             : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    const guard held(all().mutex);

    if (comm != nullptr && !comm->error.empty()) {
        last_error = comm->error;
    }
    return last_error.c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    const guard held(all().mutex);
    const std::string name(id.internal, sizeof(id.internal));
    std::shared_ptr<clique> &world = all().worlds[name];

    *out = nullptr;
    if (!is_good(config)) {
        return refuse(ncclInvalidArgument, "ncclCommInitRankConfig",
                      "not a non-blocking configuration");
    }
    if (world == nullptr) {
        world = std::make_shared<clique>(ranks);
    }
    if ((int)world->members.size() != ranks || rank < 0 || rank >= ranks ||
        world->members[(size_t)rank] != nullptr) {
        return refuse(ncclInvalidArgument, "ncclCommInitRankConfig", "not a rank that is missing");
    }
    *out = make(world, rank, rank, fake_cuda::mine());
    for (int other = 0; other < ranks; other++) {
        const ncclComm_t there = world->members[(size_t)other];

        if (there != nullptr && other != rank && there->gpu == (*out)->gpu) {
            fail_all(*world, ncclInvalidUsage,
                     "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                         std::to_string(other) + " both on CUDA device 0");
        }
    }
    return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config)
{
    const guard held(all().mutex);

    ensure_there(comm, "ncclCommSplit");
    if (!is_good(config) || comm->state != ncclSuccess || comm->ends) {
        return refuse(ncclInvalidArgument, "ncclCommSplit", "not a configuration, or not ready");
    }
    split &now = comm->of->splits[comm->split_number];

    now.parts.resize(comm->of->members.size());
    now.parts[(size_t)comm->rank] = {true, color, key, nullptr};
    now.called++;
    comm->child_out = out;
    comm->splits = true;
    comm->state = ncclInProgress;
    comm->polls = draw(4);
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    std::vector<launch> ready;
    {
        const guard held(all().mutex);

        ensure_there(comm, "ncclCommGetAsyncError");
        if (comm->state != ncclInProgress || !has_ended(comm)) {
            *state = comm->state;
            return ncclSuccess;
        }
        ready.swap(comm->held);
        comm->state = ncclSuccess;
    }
    for (const launch &one : ready) {
        put(one);
    }
    *state = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *count)
{
    const guard held(all().mutex);

    ensure_there(comm, "ncclCommCount");
    *count = (int)comm->of->members.size();
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
    const guard held(all().mutex);

    ensure_there(comm, "ncclCommUserRank");
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void *start, size_t bytes, void **handle)
{
    const bool there = fake_cuda::is_device(start) && fake_cuda::bytes_behind(start) >= bytes;
    const guard held(all().mutex);

    ensure_there(comm, "ncclCommRegister");
    if (!there || comm->state != ncclSuccess) {
        return refuse(ncclInvalidArgument, "ncclCommRegister", "not memory of a GPU, or not ready");
    }
    comm->registered++;
    all().registered++;
    *handle = start;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle)
{
    const guard held(all().mutex);

    ensure_there(comm, "ncclCommDeregister");
    if (handle == nullptr || comm->registered == 0) {
        return refuse(ncclInvalidArgument, "ncclCommDeregister", "not registered");
    }
    comm->registered--;
    all().registered--;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    const guard held(all().mutex);

    ensure_there(comm, "ncclCommFinalize");
    if (comm->state != ncclSuccess || comm->ends) {
        return refuse(ncclInvalidArgument, "ncclCommFinalize", "not ready, or a second time");
    }
    comm->ends = true;
    comm->of->finalizing++;
    comm->state = ncclInProgress;
    comm->polls = draw(4);
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    const guard held(all().mutex);

    ensure_there(comm, "ncclCommDestroy");
    if (!comm->ends || comm->state != ncclSuccess) {
        return refuse(ncclInvalidUsage, "ncclCommDestroy", "before its end");
    }
    end(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    const guard held(all().mutex);

    ensure_there(comm, "ncclCommAbort");
    if (comm->splits &&
        comm->of->splits[comm->split_number].made) { /* whose child nobody has yet */
        const ncclComm_t child =
            comm->of->splits[comm->split_number].parts[(size_t)comm->rank].child;

        if (child != nullptr) {
            end(child);
        }
    }
    end(comm);
    all().aborted++;
    return ncclSuccess;
}

} /* extern "C" */
