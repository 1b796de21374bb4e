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

void rig_init(struct comm_rig *rig, int32_t world, bool crowded)
{
    memset(rig, 0, sizeof(*rig));
    (void)snprintf(rig->directory, sizeof(rig->directory), "/tmp/weir-test-comm-XXXXXX");
    assert_non_null(mkdtemp(rig->directory));
    rig->world = world;
    rig->crowded = crowded;
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

void rig_release(struct comm_rig *rig)
{
    for (int32_t rank = 0; rank < rig->world; rank++) {
        comm_close(&rig->ranks[rank].comm);
    }
    assert_int_equal(rig_names(rig), 0);
    assert_int_equal(rmdir(rig->directory), 0);
}

enum status rig_open(struct rig_rank *self)
{
    const struct comm_config config = {
        .job_directory = self->rig->directory,
        .rank = self->rank,
        .world = self->rig->world,
        .crowded = self->rig->crowded,
    };

    return comm_shm_open(&config, &self->comm);
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
