#include "comm_rig.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "collectives/comm_staged.h"
#ifdef RIG_NCCL
#include "collectives/cuda/comm_nccl.h"
#include "tensor/cuda/device_cuda.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/fake_nccl.h"
#endif

void rig_init(struct comm_rig *rig, int32_t world, bool crowded)
{
    memset(rig, 0, sizeof(*rig));
    (void)snprintf(rig->directory, sizeof(rig->directory), "/tmp/weir-test-comm-XXXXXX");
    assert_non_null(mkdtemp(rig->directory));
    rig->world = world;
    rig->crowded = crowded;
    rig->waves = RIG_WAVES;
#ifdef RIG_NCCL
    rig->left = fake_nccl_left();
#endif
    rig->deadline_ns = clock_deadline(60.0);
    for (int32_t rank = 0; rank < RIG_RANKS_MOST; rank++) {
        rig->ranks[rank].rig = rig;
        rig->ranks[rank].rank = rank;
    }
}

int rig_names(const struct comm_rig *rig)
{
    DIR *directory = opendir(rig->directory);
    int names = 0;

    assert_non_null(directory);
    for (const struct dirent *entry = readdir(directory); entry != NULL;
         entry = readdir(directory)) {
        names += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    (void)closedir(directory);
    return names;
}

static void give_memory(struct rig_rank *self)
{
    for (int i = 0; i < RIG_LANES_MOST; i++) {
        if (self->memory[i] != NULL && self->device != NULL) {
            device_give(self->device, DEVICE_TENSORS, self->memory[i], self->memory_bytes[i]);
        } else {
            free(self->memory[i]);
        }
    }
    free(self->host);
}

static void close_rank(struct rig_rank *self)
{
    comm_close(&self->comm);
    give_memory(self);
    device_close(&self->device);
#ifdef RIG_NCCL
    (void)control_close(&self->control);
    RIG_EXPECT(self, self->gpu == NULL || fake_cuda_left() == 0);
#endif
}

#ifdef RIG_NCCL
/* Which the control plane leaves to whoever made the directory. */
static void remove_socket(const struct comm_rig *rig)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/control", rig->directory);
    (void)unlink(path);
}
#endif

void rig_release(struct comm_rig *rig)
{
#ifdef RIG_NCCL
    rig_run(rig, close_rank); /* together: the end of a plane takes all */
    rig_assert_no_notes(rig);
    assert_int_equal(fake_nccl_left(), rig->left);
    remove_socket(rig);
#else
    for (int32_t rank = 0; rank < rig->world; rank++) {
        close_rank(&rig->ranks[rank]);
    }
#endif
    assert_int_equal(rig_names(rig), 0);
    assert_int_equal(rmdir(rig->directory), 0);
}

#ifdef RIG_NCCL
static enum status open_nccl(struct rig_rank *self)
{
    const struct control_config control = {
        .job_directory = self->rig->directory,
        .rank = self->rank,
        .world = self->rig->world,
        .variant = "fake",
        .device = "cuda",
        .heartbeat_s = 1.0,
        .dead_after_s = 60.0,
        .stall_after_s = -1.0,
        .start_timeout_s = 60.0,
        .cancel = &self->lost,
    };

    /* Another order of the streams on the other kind of host. */
    fake_cuda_reset((uint64_t)self->rank + (self->rig->crowded ? 100 : 1));
    fake_cuda_share();
    self->gpu = fake_cuda_gpu();
    TRY(device_open(device_cuda(), &(struct device_config){.threads = 1}, &self->device));
    TRY(control_open(&control, &self->control));
    return comm_nccl_open(&(struct comm_nccl_config){.rank = self->rank,
                                                     .world = self->rig->world,
                                                     .waves = self->rig->waves,
                                                     .device = self->device,
                                                     .control = self->control},
                          &self->comm);
}
#endif

enum status rig_open(struct rig_rank *self)
{
#ifdef RIG_NCCL
    return open_nccl(self);
#else
    const struct comm_config config = {
        .job_directory = self->rig->directory,
        .rank = self->rank,
        .world = self->rig->world,
        .crowded = self->rig->crowded,
    };

#ifdef RIG_STAGED
    TRY(device_open(device_cpu(), &(struct device_config){.threads = 1}, &self->device));
    return comm_staged_open(&config, self->device, &self->comm);
#else
    return comm_shm_open(&config, &self->comm);
#endif
#endif
}

void *rig_memory(struct rig_rank *self, int index, size_t bytes)
{
    if (self->memory[index] == NULL && self->device != NULL) {
        (void)device_take(self->device, DEVICE_TENSORS, "test", bytes, &self->memory[index]);
        self->memory_bytes[index] = bytes;
    } else if (self->memory[index] == NULL) {
        self->memory[index] = calloc(1, bytes);
    }
    return self->memory[index];
}

void *rig_host(struct rig_rank *self, size_t bytes)
{
    if (self->host == NULL) {
        self->host = calloc(1, bytes);
    }
    return self->host;
}

static enum status move_bytes(struct rig_rank *self, void *to, const void *from, size_t bytes)
{
    if (self->device != NULL) {
        return device_copy(self->device, to, from, bytes);
    }
    memcpy(to, from, bytes);
    return STATUS_OK;
}

enum status rig_put(struct rig_rank *self, void *tensors, const void *host, size_t bytes)
{
    return move_bytes(self, tensors, host, bytes);
}

enum status rig_get(struct rig_rank *self, void *host, const void *tensors, size_t bytes)
{
    return move_bytes(self, host, tensors, bytes);
}

enum status rig_lane(struct rig_rank *self, int index, int32_t peer, int32_t direction, bool sends,
                     int32_t landings, size_t bytes)
{
    const struct lane_config config = {
        .peer = peer,
        .direction = direction,
        .sends = sends,
        .landings = landings,
        .landing_bytes = bytes,
        /* Neighbours: pairs of an even rank and the next, and of an odd one. */
        .wave = (self->rank < peer ? self->rank : peer) % RIG_WAVES,
    };

    return comm_lane_open(self->comm, &config, &self->lanes[index]);
}

enum status rig_group(struct rig_rank *self, int index, int32_t first, int32_t step, int32_t count)
{
    int32_t ranks[RIG_RANKS_MOST];
    const struct group_config config = {.ranks = ranks, .count = count};

    for (int32_t k = 0; k < count && k < RIG_RANKS_MOST; k++) {
        ranks[k] = first + k * step;
    }
    return comm_group_open(self->comm, &config, &self->groups[index]);
}

enum status rig_connect(struct rig_rank *self)
{
    self->connected = comm_connect(self->comm, &self->rig->cancel, self->rig->deadline_ns);
    return self->connected;
}

struct rig_thread {
    pthread_t thread;
    struct rig_rank *rank;
    rig_fn work;
};

static void *run_rank(void *context)
{
    struct rig_thread *thread = context;

#ifdef RIG_NCCL
    if (thread->rank->gpu != NULL) {
        fake_cuda_use(thread->rank->gpu);
    }
#endif
    thread->work(thread->rank);
    thread->rank->failure = *status_last();
    return NULL;
}

void rig_run(struct comm_rig *rig, rig_fn work)
{
    struct rig_thread threads[RIG_RANKS_MOST];

    for (int32_t rank = 0; rank < rig->world; rank++) {
        threads[rank] = (struct rig_thread){.rank = &rig->ranks[rank], .work = work};
        assert_int_equal(pthread_create(&threads[rank].thread, NULL, run_rank, &threads[rank]), 0);
    }
    for (int32_t rank = 0; rank < rig->world; rank++) {
        assert_int_equal(pthread_join(threads[rank].thread, NULL), 0);
    }
}

void rig_assert_no_notes(const struct comm_rig *rig)
{
    for (int32_t rank = 0; rank < rig->world; rank++) {
        const struct rig_rank *self = &rig->ranks[rank];

        if (self->noted[0] != '\0') {
            fail_msg("rank %d: %s (last failure: %s)", rank, self->noted, self->failure.message);
        }
    }
}

void rig_run_on_two_kinds_of_hosts(int32_t world, rig_fn connect, rig_fn work)
{
    for (int crowded = 0; crowded < 2; crowded++) {
        struct comm_rig rig;

        rig_init(&rig, world, crowded == 1);
        rig_run(&rig, connect);
        rig_assert_no_notes(&rig);
        rig_run(&rig, work);
        rig_assert_no_notes(&rig);
        rig_release(&rig);
    }
}

void rig_assert_both_refuse(int32_t world, rig_fn work, const char *first, const char *second)
{
    struct comm_rig rig;

    rig_init(&rig, world, false);
    rig_run(&rig, work);
    rig_assert_no_notes(&rig);
    for (int32_t rank = 0; rank < 2; rank++) {
        const char *message = rig.ranks[rank].failure.message;

        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_REFUSED);
        if (strstr(message, first) == NULL || strstr(message, second) == NULL) {
            fail_msg("rank %d says \"%s\", without \"%s\" or \"%s\"", rank, message, first, second);
        }
    }
    rig_release(&rig);
}

void rig_note(struct rig_rank *self, const char *file, int line, const char *condition)
{
    (void)snprintf(self->noted, sizeof(self->noted), "%s:%d: %s", file, line, condition);
}

/* A multiplicative mix, so that neighbouring words, numbers and lanes share no bits. */
static uint64_t word_of(uint32_t lane, uint32_t number, size_t index)
{
    uint64_t word = ((uint64_t)lane << 48) ^ ((uint64_t)number << 16) ^ (uint64_t)index;

    word *= UINT64_C(0x9e3779b97f4a7c15);
    return word ^ (word >> 29);
}

void rig_write(void *data, size_t bytes, uint32_t lane, uint32_t number)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        ((uint64_t *)data)[i] = word_of(lane, number, i);
    }
}

bool rig_reads(const void *data, size_t bytes, uint32_t lane, uint32_t number)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        if (((const uint64_t *)data)[i] != word_of(lane, number, i)) {
            return false;
        }
    }
    return true;
}

float rig_float(int32_t rank, uint32_t number, size_t index)
{
    uint64_t word = word_of((uint32_t)rank + 1, number, index);
    float small = (float)(word >> 40) * 0x1p-24F - 0.5F;

    return small * (float)(1U << (word & 15));
}

void rig_write_floats(float *data, size_t first, size_t elems, int32_t rank, uint32_t number)
{
    for (size_t i = 0; i < elems; i++) {
        data[i] = rig_float(rank, number, first + i);
    }
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

bool rig_reads_sum(const float *data, size_t first, size_t elems, const int32_t *ranks,
                   int32_t count, uint32_t number)
{
    for (size_t i = 0; i < elems; i++) {
        float sum = rig_float(ranks[0], number, first + i);

        for (int32_t k = 1; k < count; k++) {
            sum += rig_float(ranks[k], number, first + i);
        }
        if (bits_of(data[i]) != bits_of(sum)) {
            return false;
        }
    }
    return true;
}

bool rig_reads_max(const float *data, size_t first, size_t elems, const int32_t *ranks,
                   int32_t count, uint32_t number)
{
    for (size_t i = 0; i < elems; i++) {
        float most = rig_float(ranks[0], number, first + i);

        for (int32_t k = 1; k < count; k++) {
            float other = rig_float(ranks[k], number, first + i);

            most = other > most ? other : most;
        }
        if (bits_of(data[i]) != bits_of(most)) {
            return false;
        }
    }
    return true;
}

uint32_t rig_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33);
}
