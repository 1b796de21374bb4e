/*
 * comm_rig -- what the tests of the data plane stand on: a job directory of their own, ranks as
 * threads of one process, and messages whose contents anybody can check.
 */
#ifndef TESTS_COLLECTIVES_COMM_RIG_H
#define TESTS_COLLECTIVES_COMM_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/comm.h"
#include "collectives/control.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RIG_RANKS_MOST  8
#define RIG_LANES_MOST  8
#define RIG_GROUPS_MOST 3
#define RIG_WAVES       2

/* Compiled with RIG_NCCL a rank's tensors lie on a fake GPU of its own: a turn takes many times as long. */
#ifdef RIG_NCCL
#define RIG_TURNS(count) ((count) / 50)
#else
#define RIG_TURNS(count) (count)
#endif

/* One rank. In threads of their own ranks cannot use cmocka's assertions, so they note what they
 * find, and the test looks when all have ended. */
struct rig_rank {
    struct comm_rig *rig;
    int32_t rank;
    struct comm *comm;                  /* owns; NULL unless open */
    struct device *device;              /* owns; RIG_STAGED, RIG_NCCL: of the comm */
    struct control *control;            /* owns; RIG_NCCL */
    struct fake_gpu *gpu;               /* RIG_NCCL */
    struct cancel lost;                 /* RIG_NCCL: set where the control plane ends the job */
    struct lane *lanes[RIG_LANES_MOST]; /* the test's own order */
    struct group *groups[RIG_GROUPS_MOST];
    void *memory[RIG_LANES_MOST]; /* owns; see rig_memory() */
    size_t memory_bytes[RIG_LANES_MOST];
    void *host;                   /* owns; see rig_host() */
    enum status connected;        /* what comm_connect() answered */
    struct status_record failure; /* the last failure of the thread */
    char noted[256];              /* the first expectation that did not hold; "" */
};

struct comm_rig {
    char directory[64]; /* 0700, the test's own */
    int32_t world;
    bool crowded;
    size_t left;         /* RIG_NCCL: communicators of tests before that have failed */
    int32_t waves;       /* RIG_NCCL: of lanes; RIG_WAVES at first */
    int64_t deadline_ns; /* of connects and waits: far away, so that no test hangs */
    struct cancel cancel;
    struct rig_rank ranks[RIG_RANKS_MOST];
};

/* Makes the directory; ends the test where that fails. */
void rig_init(struct comm_rig *rig, int32_t world, bool crowded);

/* Closes what is open, removes the directory, and ends the test where something was left in it. */
void rig_release(struct comm_rig *rig);

/* How many names the directory holds. */
int rig_names(const struct comm_rig *rig);

/* Opens the rank's comm: shared memory; compiled with RIG_STAGED, that beneath a comm_staged over the CPU as a
 * device; with RIG_NCCL a comm_nccl over a fake GPU, which takes all ranks at once, in threads of rig_run(). */
enum status rig_open(struct rig_rank *self);

/* Declares a lane of this rank. */
enum status rig_lane(struct rig_rank *self, int index, int32_t peer, int32_t direction, bool sends,
                     int32_t landings, size_t bytes);

/* Declares a group of `count` ranks that begin at `first` and lie `step` apart. */
enum status rig_group(struct rig_rank *self, int index, int32_t first, int32_t step, int32_t count);

/* Connects, and keeps what came of it. */
enum status rig_connect(struct rig_rank *self);

/* Memory of the rank's tensors, of its own for each `index`; `bytes` are those of the first call. NULL: there is none. */
void *rig_memory(struct rig_rank *self, int index, size_t bytes);

/* Memory of the host's; `bytes` are those of the first call. */
void *rig_host(struct rig_rank *self, size_t bytes);

/* From the host to tensors, and back, in the order of the device's stream: what is read is there when the call
 * returns. */
enum status rig_put(struct rig_rank *self, void *tensors, const void *host, size_t bytes);
enum status rig_get(struct rig_rank *self, void *host, const void *tensors, size_t bytes);

typedef void (*rig_fn)(struct rig_rank *self);

/* Runs `work` for each rank in a thread of its own and waits for all. */
void rig_run(struct comm_rig *rig, rig_fn work);

/* Ends the test with the note of the first rank that has one. */
void rig_assert_no_notes(const struct comm_rig *rig);

/* Makes a rig, connects, works and ends it; once as a host with a core a rank, once as a crowded
 * one. Ends the test with the note of a rank that has one. */
void rig_run_on_two_kinds_of_hosts(int32_t world, rig_fn connect, rig_fn work);

/* Runs `work`, which connects: ranks 0 and 1 refuse, each with a message that has both words. */
void rig_assert_both_refuse(int32_t world, rig_fn work, const char *first, const char *second);

void rig_note(struct rig_rank *self, const char *file, int line, const char *condition);

/* In a rank's thread: leaves the function where the condition does not hold. */
#define RIG_EXPECT(self, condition)                           \
    do {                                                      \
        if (!(condition)) {                                   \
            rig_note((self), __FILE__, __LINE__, #condition); \
            return;                                           \
        }                                                     \
    } while (0)

/* Fills a message that belongs to (lane, number) and to nothing else. `bytes` is a multiple of 8.
 */
void rig_write(void *data, size_t bytes, uint32_t lane, uint32_t number);
bool rig_reads(const void *data, size_t bytes, uint32_t lane, uint32_t number);

/* A float that belongs to (rank, number, index) and to nothing else; magnitudes differ by up to 2^15,
 * so that sums in another order have other bits. */
float rig_float(int32_t rank, uint32_t number, size_t index);

/* Fills `elems` floats from index `first` on. */
void rig_write_floats(float *data, size_t first, size_t elems, int32_t rank, uint32_t number);

/* Whether `data` holds the sum, or the largest, of what the ranks have, folded in order, from index
 * `first` on. */
bool rig_reads_sum(const float *data, size_t first, size_t elems, const int32_t *ranks,
                   int32_t count, uint32_t number);
bool rig_reads_max(const float *data, size_t first, size_t elems, const int32_t *ranks,
                   int32_t count, uint32_t number);

/* A number that follows from the seed and changes it (for delays that differ between ranks). */
uint32_t rig_random(uint64_t *seed);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_COLLECTIVES_COMM_RIG_H */
