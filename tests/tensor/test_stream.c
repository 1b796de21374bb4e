#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "tensor/stream.h"

#define ROUNDS 20000

struct tally {
    atomic_int calls[STREAM_MAX_THREADS];
    atomic_int parts_seen;
    atomic_int wrong_openmp;
    pthread_t threads[STREAM_MAX_THREADS];
};

static void count_part(void *context, int part, int parts)
{
    struct tally *tally = context;

    (void)atomic_fetch_add(&tally->calls[part], 1);
    atomic_store(&tally->parts_seen, parts);
    if (omp_get_max_threads() != 1) {
        (void)atomic_fetch_add(&tally->wrong_openmp, 1);
    }
    tally->threads[part] = pthread_self();
}

static void every_member_runs_its_part_once_a_call(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        struct stream *stream = NULL;
        struct tally tally = {.parts_seen = 0};
        assert_int_equal(stream_create(threads, &stream), STATUS_OK);
        assert_int_equal(stream_threads(stream), threads);
        stream_run(stream, count_part, &tally);
        for (int part = 0; part < STREAM_MAX_THREADS; part++) {
            assert_int_equal(tally.calls[part], part < threads ? 1 : 0);
        }
        assert_int_equal(tally.parts_seen, threads);
        assert_int_equal(tally.wrong_openmp, 0);
        assert_true(pthread_equal(tally.threads[0], pthread_self()));
        for (int part = 1; part < threads; part++) {
            assert_false(pthread_equal(tally.threads[part], pthread_self()));
        }
        stream_destroy(&stream);
        assert_null(stream);
    }
}

/* Plain memory: only the hand-over of the stream itself orders the accesses. */
struct relay {
    uint64_t values[3];
    uint64_t sum;
};

static void raise_value(void *context, int part, int parts)
{
    struct relay *relay = context;

    (void)parts;
    relay->values[part] += relay->sum + (uint64_t)part + 1;
}

static void what_one_call_wrote_the_next_one_sees(void **state)
{
    struct stream *stream = NULL;
    struct relay relay = {.sum = 0};
    uint64_t expected[3] = {0, 0, 0};
    uint64_t expected_sum = 0;

    (void)state;
    assert_int_equal(stream_create(3, &stream), STATUS_OK);
    for (int round = 0; round < ROUNDS; round++) {
        stream_run(stream, raise_value, &relay);
        relay.sum = (relay.values[0] ^ relay.values[1] ^ relay.values[2]) & 0xFFFF;
        for (uint64_t part = 0; part < 3; part++) {
            expected[part] += expected_sum + part + 1;
        }
        expected_sum = (expected[0] ^ expected[1] ^ expected[2]) & 0xFFFF;
    }
    assert_memory_equal(relay.values, expected, sizeof(expected));
    stream_destroy(&stream);
}

static void assert_covers(size_t count, size_t grain, int parts)
{
    size_t reached = 0;

    for (int part = 0; part < parts; part++) {
        size_t begin = 0;
        size_t end = 0;
        stream_share(count, grain, part, parts, &begin, &end);
        assert_int_equal(begin, reached);
        assert_true(end >= begin);
        assert_true(end == count || end % grain == 0);
        reached = end;
    }
    assert_int_equal(reached, count);
}

static void shares_cover_everything_once_in_whole_grains(void **state)
{
    (void)state;
    for (size_t count = 0; count <= 70; count++) {
        for (size_t grain = 1; grain <= 17; grain += 4) {
            for (int parts = 1; parts <= 7; parts++) {
                assert_covers(count, grain, parts);
            }
        }
    }
}

static void shares_differ_by_one_grain_at_most(void **state)
{
    size_t begin = 0;
    size_t end = 0;

    (void)state;
    /* 10 grains over 4 parts by hand: 3, 3, 2, 2. */
    const size_t edges[] = {0, 24, 48, 64, 77};
    for (int part = 0; part < 4; part++) {
        stream_share(77, 8, part, 4, &begin, &end);
        assert_int_equal(begin, edges[part]);
        assert_int_equal(end, edges[part + 1]);
    }
}

static void a_team_size_out_of_range_is_refused(void **state)
{
    struct stream *stream = NULL;

    (void)state;
    assert_int_equal(stream_create(0, &stream), STATUS_ERR_REFUSED);
    assert_int_equal(stream_create(-1, &stream), STATUS_ERR_REFUSED);
    assert_int_equal(stream_create(STREAM_MAX_THREADS + 1, &stream), STATUS_ERR_REFUSED);
    assert_null(stream);
}

static void note_mask(void *context, int part, int parts)
{
    atomic_int *blocked = context;
    sigset_t mask;

    (void)parts;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (part > 0 && sigismember(&mask, SIGTERM) == 1) {
        (void)atomic_fetch_add(blocked, 1);
    }
}

static void members_leave_signals_to_the_caller(void **state)
{
    struct stream *stream = NULL;
    atomic_int blocked = 0;
    sigset_t mask;

    (void)state;
    assert_int_equal(stream_create(3, &stream), STATUS_OK);
    stream_run(stream, note_mask, &blocked);
    assert_int_equal(blocked, 2);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGTERM), 0);
    stream_destroy(&stream);
}

#define SCRATCH_FLOATS 5000

struct scratch_use {
    struct stream *stream;
    atomic_int wrong;
};

static void fill_scratch(void *context, int part, int parts)
{
    const struct scratch_use *use = context;
    float *scratch = stream_scratch(use->stream, part);

    (void)parts;
    for (int i = 0; i < SCRATCH_FLOATS; i++) {
        scratch[i] = (float)(part * SCRATCH_FLOATS + i);
    }
}

static void check_scratch(void *context, int part, int parts)
{
    struct scratch_use *use = context;
    const float *scratch = stream_scratch(use->stream, part);

    (void)parts;
    if ((uintptr_t)scratch % 128 != 0) {
        (void)atomic_fetch_add(&use->wrong, 1);
    }
    for (int i = 0; i < SCRATCH_FLOATS; i++) {
        if (scratch[i] != (float)(part * SCRATCH_FLOATS + i)) {
            (void)atomic_fetch_add(&use->wrong, 1);
        }
    }
}

static void each_member_has_scratch_of_its_own_where_it_is_reserved(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        struct scratch_use use = {.stream = NULL};
        assert_int_equal(stream_create(threads, &use.stream), STATUS_OK);
        assert_int_equal(stream_scratch_floats(use.stream), 0);
        assert_null(stream_scratch(use.stream, threads - 1));
        assert_int_equal(stream_reserve(use.stream, SCRATCH_FLOATS), STATUS_OK);
        assert_int_equal(stream_scratch_floats(use.stream), SCRATCH_FLOATS);
        stream_run(use.stream, fill_scratch, &use);
        stream_run(use.stream, check_scratch, &use);
        assert_int_equal(use.wrong, 0);
        stream_destroy(&use.stream);
    }
}

static void scratch_that_cannot_be_had_leaves_the_team_without(void **state)
{
    struct stream *stream = NULL;
    struct tally tally = {.parts_seen = 0};

    (void)state;
    assert_int_equal(stream_create(2, &stream), STATUS_OK);
    assert_int_equal(stream_reserve(stream, (size_t)1 << 58), STATUS_ERR_NO_MEMORY);
    assert_int_equal(stream_scratch_floats(stream), 0);
    assert_null(stream_scratch(stream, 1));
    stream_run(stream, count_part, &tally);
    assert_int_equal(tally.parts_seen, 2);
    stream_destroy(&stream);
}

static void destroying_nothing_is_fine(void **state)
{
    struct stream *stream = NULL;

    (void)state;
    stream_destroy(&stream);
    assert_null(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_runs_its_part_once_a_call),
        cmocka_unit_test(what_one_call_wrote_the_next_one_sees),
        cmocka_unit_test(shares_cover_everything_once_in_whole_grains),
        cmocka_unit_test(shares_differ_by_one_grain_at_most),
        cmocka_unit_test(a_team_size_out_of_range_is_refused),
        cmocka_unit_test(members_leave_signals_to_the_caller),
        cmocka_unit_test(each_member_has_scratch_of_its_own_where_it_is_reserved),
        cmocka_unit_test(scratch_that_cannot_be_had_leaves_the_team_without),
        cmocka_unit_test(destroying_nothing_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
