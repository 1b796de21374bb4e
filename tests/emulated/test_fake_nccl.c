/* The fake NCCL itself: two ranks, whose GPUs one thread takes in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <nccl.h>
#include <string.h>

#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/fake_nccl.h"

#define RANKS 2

#define CUDA(call) assert_int_equal((call), cudaSuccess)
#define NCCL(call) assert_int_equal((call), ncclSuccess)

struct player {
    struct fake_gpu *gpu;
    ncclComm_t comm;
    cudaStream_t stream;
    float *memory; /* four numbers on the GPU */
    float *pinned;
};

static void settle(ncclComm_t comm, ncclResult_t result)
{
    for (int turn = 0; result == ncclInProgress; turn++) {
        assert_true(turn < 100);
        NCCL(ncclCommGetAsyncError(comm, &result));
    }
    NCCL(result);
}

static void make(struct player players[RANKS])
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;

    config.blocking = 0;
    NCCL(ncclGetUniqueId(&id));
    for (int rank = 0; rank < RANKS; rank++) {
        struct player *player = &players[rank];

        fake_cuda_use(NULL);
        fake_cuda_reset((uint64_t)rank + 1);
        fake_cuda_share();
        player->gpu = fake_cuda_gpu();
        CUDA(cudaStreamCreateWithFlags(&player->stream, cudaStreamNonBlocking));
        CUDA(cudaMalloc((void **)&player->memory, 4 * sizeof(float)));
        CUDA(cudaMallocHost((void **)&player->pinned, 4 * sizeof(float)));
        assert_int_equal(ncclCommInitRankConfig(&player->comm, RANKS, id, rank, &config),
                         ncclInProgress);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        settle(players[rank].comm, ncclInProgress);
    }
}

static void release(struct player players[RANKS], bool well)
{
    for (int rank = 0; rank < RANKS; rank++) {
        NCCL(well ? (ncclCommFinalize(players[rank].comm) == ncclInProgress ? ncclSuccess
                                                                            : ncclInternalError)
                  : ncclCommAbort(players[rank].comm));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        fake_cuda_use(players[rank].gpu);
        if (well) {
            settle(players[rank].comm, ncclInProgress);
            NCCL(ncclCommDestroy(players[rank].comm));
        }
        CUDA(cudaStreamDestroy(players[rank].stream));
        CUDA(cudaFree(players[rank].memory));
        CUDA(cudaFreeHost(players[rank].pinned));
        assert_int_equal(fake_cuda_left(), 0);
    }
    fake_cuda_use(NULL);
    assert_int_equal(fake_nccl_left(), 0);
}

/* first, first + 1, … behind what is in the stream, which reads them late: so each fill has a place of its own. */
static void fill(const struct player *player, float first)
{
    static float kept[256][4];
    static int next;
    float *numbers = kept[next++ % 256];

    for (int i = 0; i < 4; i++) {
        numbers[i] = first + (float)i;
    }
    CUDA(cudaMemcpyAsync(player->memory, numbers, sizeof(kept[0]), cudaMemcpyDefault,
                         player->stream));
}

static void assert_holds(const struct player *player, float a, float b, float c, float d)
{
    const float expected[] = {a, b, c, d};

    CUDA(cudaMemcpyAsync(player->pinned, player->memory, sizeof(expected), cudaMemcpyDefault,
                         player->stream));
    CUDA(cudaStreamSynchronize(player->stream));
    assert_memory_equal(player->pinned, expected, sizeof(expected));
}

static void a_send_ends_when_its_receive_has_come_and_not_before(void **state)
{
    struct player players[RANKS];
    ncclResult_t result;

    (void)state;
    make(players);
    fill(&players[0], 1.0F);
    fill(&players[1], 10.0F);
    result = ncclSend(players[0].memory, 2, ncclFloat32, 1, players[0].comm, players[0].stream);
    settle(players[0].comm, result);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(cudaStreamQuery(players[0].stream), cudaErrorNotReady);
    }
    result = ncclRecv(players[1].memory + 1, 2, ncclFloat32, 0, players[1].comm, players[1].stream);
    settle(players[1].comm, result);
    assert_holds(&players[1], 10.0F, 1.0F, 2.0F, 13.0F);
    assert_holds(&players[0], 1.0F, 2.0F, 3.0F, 4.0F);
    release(players, true);
}

/* Both send first: alone they would wait for ever, in a group they do not. */
static void a_group_goes_on_with_all_its_calls_at_once(void **state)
{
    struct player players[RANKS];

    (void)state;
    make(players);
    for (int rank = 0; rank < RANKS; rank++) {
        const struct player *me = &players[rank];

        fill(me, 10.0F * (float)rank);
        NCCL(ncclGroupStart());
        NCCL(ncclSend(me->memory, 1, ncclFloat32, 1 - rank, me->comm, me->stream));
        NCCL(ncclRecv(me->memory + 3, 1, ncclFloat32, 1 - rank, me->comm, me->stream));
        settle(me->comm, ncclGroupEnd());
    }
    assert_holds(&players[0], 0.0F, 1.0F, 2.0F, 10.0F);
    assert_holds(&players[1], 10.0F, 11.0F, 12.0F, 0.0F);
    release(players, true);
}

enum {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    REDUCE,
    BROADCAST,
    MAXIMUM,
    CALLS
};

static ncclResult_t call(const struct player *me, int rank, int which)
{
    float *m = me->memory;
    float *own = m + (size_t)2 * (size_t)rank;

    switch (which) {
    case ALL_REDUCE:
        return ncclAllReduce(m, m, 4, ncclFloat32, ncclSum, me->comm, me->stream);
    case REDUCE_SCATTER:
        return ncclReduceScatter(m, own, 2, ncclFloat32, ncclSum, me->comm, me->stream);
    case ALL_GATHER:
        return ncclAllGather(own, m, 2 * sizeof(float), ncclUint8, me->comm, me->stream);
    case REDUCE:
        return ncclReduce(m, rank == 1 ? m : NULL, 2, ncclFloat32, ncclSum, 1, me->comm,
                          me->stream);
    case BROADCAST:
        return ncclBroadcast(m, m, 3, ncclFloat32, 1, me->comm, me->stream);
    default:
        return ncclAllReduce(m, m, 4, ncclFloat32, ncclMax, me->comm, me->stream);
    }
}

/* Rank 0 has 1 2 3 4, rank 1 has -10 -9 -8 -7. */
static void every_collective_does_what_it_says(void **state)
{
    static const float expected[CALLS][RANKS][4] = {
        [ALL_REDUCE] = {{-9.0F, -7.0F, -5.0F, -3.0F}, {-9.0F, -7.0F, -5.0F, -3.0F}},
        [REDUCE_SCATTER] = {{-9.0F, -7.0F, 3.0F, 4.0F}, {-10.0F, -9.0F, -5.0F, -3.0F}},
        [ALL_GATHER] = {{1.0F, 2.0F, -8.0F, -7.0F}, {1.0F, 2.0F, -8.0F, -7.0F}},
        [REDUCE] = {{1.0F, 2.0F, 3.0F, 4.0F}, {-9.0F, -7.0F, -8.0F, -7.0F}},
        [BROADCAST] = {{-10.0F, -9.0F, -8.0F, 4.0F}, {-10.0F, -9.0F, -8.0F, -7.0F}},
        [MAXIMUM] = {{1.0F, 2.0F, 3.0F, 4.0F}, {1.0F, 2.0F, 3.0F, 4.0F}},
    };
    struct player players[RANKS];

    (void)state;
    make(players);
    for (int which = 0; which < CALLS; which++) {
        for (int rank = 0; rank < RANKS; rank++) {
            fill(&players[rank], rank == 0 ? 1.0F : -10.0F);
            settle(players[rank].comm, call(&players[rank], rank, which));
        }
        for (int rank = 0; rank < RANKS; rank++) {
            const float *e = expected[which][rank];

            assert_holds(&players[rank], e[0], e[1], e[2], e[3]);
        }
    }
    release(players, true);
}

static void calls_that_do_not_match_are_an_error_of_both_with_both(void **state)
{
    struct player players[RANKS];

    (void)state;
    for (int other = REDUCE; other < CALLS; other++) {
        make(players);
        for (int rank = 0; rank < RANKS; rank++) {
            fill(&players[rank], 1.0F);
            settle(players[rank].comm, call(&players[rank], rank, rank == 0 ? ALL_REDUCE : other));
        }
        for (int rank = 0; rank < RANKS; rank++) {
            ncclResult_t error = ncclSuccess;

            for (int i = 0; i < 1000 && error == ncclSuccess; i++) {
                assert_int_equal(cudaStreamQuery(players[rank].stream), cudaErrorNotReady);
                NCCL(ncclCommGetAsyncError(players[rank].comm, &error));
            }
            assert_int_equal(error, ncclInvalidUsage);
            assert_non_null(strstr(ncclGetLastError(players[rank].comm), "rank 1: "));
            assert_non_null(strstr(ncclGetLastError(players[rank].comm),
                                   "rank 0: all_reduce of 4 floats, sum"));
        }
        release(players, false);
    }
}

static void messages_of_another_size_are_an_error(void **state)
{
    struct player players[RANKS];
    ncclResult_t error = ncclSuccess;
    ncclResult_t result;

    (void)state;
    make(players);
    result = ncclSend(players[0].memory, 2, ncclFloat32, 1, players[0].comm, players[0].stream);
    settle(players[0].comm, result);
    result = ncclRecv(players[1].memory, 3, ncclFloat32, 0, players[1].comm, players[1].stream);
    settle(players[1].comm, result);
    for (int i = 0; i < 1000 && error == ncclSuccess; i++) {
        (void)cudaStreamQuery(players[0].stream);
        NCCL(ncclCommGetAsyncError(players[0].comm, &error));
    }
    assert_int_equal(error, ncclInvalidUsage);
    release(players, false);
}

/* What is in progress is not in its stream, and nothing else may be called. */
static void a_call_in_progress_comes_later_and_bars_the_next(void **state)
{
    struct player players[RANKS];
    int barred = 0;

    (void)state;
    make(players);
    for (int turn = 0; turn < 40; turn++) {
        for (int rank = 0; rank < RANKS; rank++) {
            const struct player *me = &players[rank];
            ncclResult_t result = call(me, rank, ALL_GATHER);

            if (result == ncclInProgress) {
                assert_int_equal(call(me, rank, ALL_GATHER), ncclInvalidArgument);
                barred++;
            }
            settle(me->comm, result);
        }
    }
    assert_true(barred >= RANKS); /* the first of each at least */
    CUDA(cudaStreamSynchronize(players[0].stream));
    CUDA(cudaStreamSynchronize(players[1].stream));
    release(players, true);
}

static void memory_that_is_not_the_gpus_or_too_short_is_refused(void **state)
{
    struct player players[RANKS];
    float host[4] = {0};

    (void)state;
    make(players);
    assert_int_equal(ncclSend(host, 2, ncclFloat32, 1, players[0].comm, players[0].stream),
                     ncclInvalidArgument);
    assert_int_equal(ncclAllGather(players[0].memory, players[0].memory, 3, ncclFloat32,
                                   players[0].comm, players[0].stream),
                     ncclInvalidArgument);
    assert_int_equal(
        ncclRecv(players[0].memory, 1, ncclFloat32, 2, players[0].comm, players[0].stream),
        ncclInvalidArgument);
    release(players, true);
}

static void an_abort_lets_the_streams_go_on_without_a_result(void **state)
{
    struct player players[RANKS];
    ncclResult_t result;

    (void)state;
    make(players);
    fill(&players[1], 10.0F);
    result = ncclRecv(players[1].memory, 2, ncclFloat32, 0, players[1].comm, players[1].stream);
    settle(players[1].comm, result);
    assert_int_equal(cudaStreamQuery(players[1].stream), cudaErrorNotReady);
    NCCL(ncclCommAbort(players[1].comm));
    assert_holds(&players[1], 10.0F, 11.0F, 12.0F, 13.0F);
    NCCL(ncclCommAbort(players[0].comm));
    for (int rank = 0; rank < RANKS; rank++) {
        fake_cuda_use(players[rank].gpu);
        CUDA(cudaStreamDestroy(players[rank].stream));
        CUDA(cudaFree(players[rank].memory));
        CUDA(cudaFreeHost(players[rank].pinned));
    }
    fake_cuda_use(NULL);
    assert_int_equal(fake_nccl_left(), 0);
}

/* Keys turn the ranks around; a rank without a colour gets nothing. */
static void a_split_has_the_members_of_one_colour_in_the_order_of_keys(void **state)
{
    struct player players[RANKS];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t children[RANKS] = {NULL, NULL};
    ncclComm_t alone[RANKS] = {NULL, NULL};
    int number = -1;

    (void)state;
    config.blocking = 0;
    make(players);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(ncclCommSplit(players[rank].comm, 5, -rank, &children[rank], &config),
                         ncclInProgress);
        assert_null(children[rank]); /* not before the parent is ready */
    }
    for (int rank = 0; rank < RANKS; rank++) {
        settle(players[rank].comm, ncclInProgress);
        settle(children[rank], ncclInProgress);
        NCCL(ncclCommCount(children[rank], &number));
        assert_int_equal(number, RANKS);
        NCCL(ncclCommUserRank(children[rank], &number));
        assert_int_equal(number, 1 - rank);
        assert_int_equal(ncclCommSplit(players[rank].comm, rank == 0 ? 3 : NCCL_SPLIT_NOCOLOR, 0,
                                       &alone[rank], &config),
                         ncclInProgress);
    }
    settle(players[0].comm, ncclInProgress);
    settle(players[1].comm, ncclInProgress);
    assert_non_null(alone[0]);
    assert_null(alone[1]);
    NCCL(ncclCommAbort(alone[0]));
    NCCL(ncclCommAbort(children[0]));
    NCCL(ncclCommAbort(children[1]));
    release(players, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_send_ends_when_its_receive_has_come_and_not_before),
        cmocka_unit_test(a_group_goes_on_with_all_its_calls_at_once),
        cmocka_unit_test(every_collective_does_what_it_says),
        cmocka_unit_test(calls_that_do_not_match_are_an_error_of_both_with_both),
        cmocka_unit_test(messages_of_another_size_are_an_error),
        cmocka_unit_test(a_call_in_progress_comes_later_and_bars_the_next),
        cmocka_unit_test(memory_that_is_not_the_gpus_or_too_short_is_refused),
        cmocka_unit_test(an_abort_lets_the_streams_go_on_without_a_result),
        cmocka_unit_test(a_split_has_the_members_of_one_colour_in_the_order_of_keys),
    };

    return cmocka_run_group_tests_name("fake_nccl", tests, NULL, NULL);
}
