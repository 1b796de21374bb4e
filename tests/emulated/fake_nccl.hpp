/*
 * fake_nccl -- what the parts of fake_nccl.h share: communicators, cliques, operations.
 */
#ifndef TESTS_EMULATED_FAKE_NCCL_HPP
#define TESTS_EMULATED_FAKE_NCCL_HPP

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <string>
#include <tuple>
#include <vector>

#include "tests/emulated/fake_cuda_gpu.hpp"
#include "tests/emulated/fake_nccl.h"

namespace fake_nccl
{

enum class kind {
    all_reduce,
    reduce_scatter,
    all_gather,
    reduce,
    broadcast,
    send,
    receive
};

struct operation {
    kind what;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int other; /* root, or peer */
    ncclComm_t comm;
    uint64_t number; /* of collectives of the communicator, or of messages of the pair */
    bool fails = false;
    bool hangs = false;
    bool come = false;
    bool done = false;
};

using shared_operation = std::shared_ptr<operation>;

/* What one call, or group of calls, puts into a stream. */
struct launch {
    ncclComm_t comm;
    cudaStream_t stream;
    std::vector<shared_operation> operations;
};

/* One call of a split at all members. */
struct split {
    struct part {
        bool called = false;
        int color = 0;
        int key = 0;
        ncclComm_t child = nullptr;
    };

    std::vector<part> parts;
    int called = 0;
    bool made = false;
};

/* The members of one communicator. */
struct clique {
    std::vector<ncclComm_t> members; /* by rank; NULL: not yet there */
    int joined = 0;
    int finalizing = 0;
    std::map<uint64_t, std::vector<shared_operation>> collectives; /* by number, rank */
    std::map<std::tuple<int, int, uint64_t>, std::array<shared_operation, 2>>
        messages; /* from, to */
    std::map<uint64_t, split> splits;

    explicit clique(int ranks) : members((size_t)ranks, nullptr)
    {
    }
};

} // namespace fake_nccl

struct ncclComm {
    std::shared_ptr<fake_nccl::clique> of;
    int rank;
    int world_rank;
    fake_gpu *gpu;
    ncclResult_t state = ncclInProgress;
    std::string error;
    int polls;                           /* that still answer "in progress" */
    bool joins = true;                   /* in progress: its creation, */
    bool splits = false;                 /* a split, */
    bool ends = false;                   /* its end, */
    std::vector<fake_nccl::launch> held; /* or what is not yet in a stream */
    ncclComm_t *child_out = nullptr;
    uint64_t split_number = 0;
    uint64_t collectives = 0;
    std::map<int, uint64_t> sends;
    std::map<int, uint64_t> receives;
    size_t running = 0;    /* launches in streams */
    size_t registered = 0; /* memory */
    bool used = false;
    bool gone = false;
};

namespace fake_nccl
{

struct strike {
    int fail = 0;
    int hang = 0;
    int called = 0;
    int64_t struck_ns = 0;
};

/* Everything there is, and the mutex of it all. It is taken inside that of a GPU, so no stream is touched under it. */
struct house {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<clique>> worlds; /* by id */
    std::map<int, strike> strikes;                         /* by rank */
    uint64_t ids = 0;
    uint64_t random = 1;
    size_t open = 0;
    size_t aborted = 0;
    size_t registered = 0;
};

house &all();
int draw(int below);

/* An asynchronous error of every member of a clique; `own`, if any, has another one. */
void fail_all(const clique &of, ncclResult_t error, const std::string &text);

/* Refuses, with a line on stderr. */
ncclResult_t refuse(ncclResult_t error, const char *call, const std::string &why);

/* Ends the program where the communicator is no longer there. */
void ensure_there(const ncclComm *comm, const char *call);

/* Puts it into its stream. */
void put(const launch &made);

} // namespace fake_nccl

#endif /* TESTS_EMULATED_FAKE_NCCL_HPP */
