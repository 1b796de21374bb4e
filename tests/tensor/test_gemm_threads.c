/* The product of the CPU on several threads at once, and on one alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "gemm_problem.h"
#include "guarded.h"
#include "tensor/gemm.h"
#include "tensor/stream.h"

/* A sanitized build is some twenty times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONCURRENT_PRODUCTS 500
#else
#define CONCURRENT_PRODUCTS 100000
#endif
#define CONCURRENT_THREADS 4

static int threads_of_this_process(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int threads = 0;

    assert_non_null(tasks);
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        threads += task->d_name[0] != '.';
    }
    (void)closedir(tasks);
    return threads;
}

/* Large enough that the library would split it, were it allowed to. */
static void the_library_starts_no_threads_of_its_own(void **state)
{
    struct problem p;

    (void)state;
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 400, 400, 400, 0);
    omp_set_num_threads(3);
    const int before = threads_of_this_process();
    assert_int_equal(gemm_run_alone(&p.gemm), STATUS_OK);
    assert_int_equal(threads_of_this_process(), before);
    assert_int_equal(omp_get_max_threads(), 1);
    problem_free(&p);
}

/* Small products of several shapes and transposes, as a team of kernels would make them. */
#define MIXED_PROBLEMS 6

struct mixed {
    struct problem problems[MIXED_PROBLEMS];
};

static void mixed_make(struct mixed *mixed)
{
    static const size_t small[MIXED_PROBLEMS][3] = {{16, 16, 16}, {33, 20, 40}, {64, 48, 8},
                                                    {7, 65, 31},  {48, 64, 64}, {5, 3, 100}};

    for (size_t i = 0; i < MIXED_PROBLEMS; i++) {
        problem_make(&mixed->problems[i], i % 2 == 0 ? GEMM_PLAIN : GEMM_TRANSPOSED,
                     i / 2 % 2 == 0 ? GEMM_PLAIN : GEMM_TRANSPOSED, small[i][0], small[i][1],
                     small[i][2], 0);
    }
}

static void mixed_free(struct mixed *mixed)
{
    for (size_t i = 0; i < MIXED_PROBLEMS; i++) {
        problem_free(&mixed->problems[i]);
    }
}

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    const struct mixed *expected;
    struct mixed own;
    size_t wrong;
};

/* No cmocka call in here: its failures belong to the main thread. */
static void *worker_main(void *argument)
{
    struct worker *worker = argument;

    (void)pthread_barrier_wait(worker->start);
    for (size_t round = 0; round < CONCURRENT_PRODUCTS; round++) {
        struct problem *own = &worker->own.problems[round % MIXED_PROBLEMS];
        const struct problem *expected = &worker->expected->problems[round % MIXED_PROBLEMS];
        memset(own->c.floats, 0xFF, own->c.elems * sizeof(float));
        worker->wrong += gemm_run_alone(&own->gemm) != STATUS_OK;
        worker->wrong +=
            memcmp(own->c.floats, expected->c.floats, own->c.elems * sizeof(float)) != 0;
    }
    return NULL;
}

static void many_threads_at_once_give_one_threads_bits(void **state)
{
    struct worker workers[CONCURRENT_THREADS];
    pthread_barrier_t start;
    struct mixed expected;

    (void)state;
    mixed_make(&expected);
    for (size_t i = 0; i < MIXED_PROBLEMS; i++) {
        assert_int_equal(gemm_run_alone(&expected.problems[i].gemm), STATUS_OK);
        assert_product(&expected.problems[i], NULL);
    }
    assert_int_equal(pthread_barrier_init(&start, NULL, CONCURRENT_THREADS), 0);
    for (int i = 0; i < CONCURRENT_THREADS; i++) {
        workers[i].start = &start;
        workers[i].expected = &expected;
        workers[i].wrong = 0;
        mixed_make(&workers[i].own);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < CONCURRENT_THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
    for (int i = 0; i < CONCURRENT_THREADS; i++) {
        assert_int_equal(workers[i].wrong, 0);
        mixed_free(&workers[i].own);
    }
    (void)pthread_barrier_destroy(&start);
    mixed_free(&expected);
}

struct disturber {
    pthread_t thread;
    atomic_int stop;
    struct problem problem;
};

static void *disturber_main(void *argument)
{
    struct disturber *disturber = argument;

    while (atomic_load(&disturber->stop) == 0) {
        if (gemm_run_alone(&disturber->problem.gemm) < 0) {
            return disturber;
        }
    }
    return NULL;
}

/* Runs are repeated with nothing beside them, then while two other threads run products. */
static void runs_are_repeated_to_the_bit_whatever_runs_beside_them(void **state)
{
    static struct disturber disturbers[2];
    struct stream *stream = NULL;
    struct problem p;
    struct guarded first;

    (void)state;
    assert_int_equal(stream_create(3, &stream), STATUS_OK);
    problem_make(&p, GEMM_TRANSPOSED, GEMM_PLAIN, 190, 211, 128, 0);
    assert_int_equal(gemm_run(&p.gemm, stream), STATUS_OK);
    guarded_copy(&first, &p.c);
    for (int i = 0; i < 2; i++) {
        problem_make(&disturbers[i].problem, GEMM_PLAIN, GEMM_TRANSPOSED, 100, 80, 60, 0);
    }
    for (int round = 0; round < 200; round++) {
        if (round == 100) {
            for (int i = 0; i < 2; i++) {
                assert_int_equal(
                    pthread_create(&disturbers[i].thread, NULL, disturber_main, &disturbers[i]), 0);
            }
        }
        memset(p.c.floats, 0xFF, p.c.elems * sizeof(float));
        assert_int_equal(gemm_run(&p.gemm, stream), STATUS_OK);
        guarded_equal(&p.c, &first);
    }
    for (int i = 0; i < 2; i++) {
        void *failed = NULL;
        atomic_store(&disturbers[i].stop, 1);
        assert_int_equal(pthread_join(disturbers[i].thread, &failed), 0);
        assert_null(failed);
        problem_free(&disturbers[i].problem);
    }
    guarded_free(&first);
    problem_free(&p);
    stream_destroy(&stream);
}

static void rows_that_overlap_are_refused_on_a_thread_alone(void **state)
{
    struct problem p;

    (void)state;
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 150, 130, 70, 0);
    p.gemm.lda = 3;
    assert_int_equal(gemm_run_alone(&p.gemm), STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, "150 x 130 x 70"));
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_overlap_are_refused_on_a_thread_alone),
        cmocka_unit_test(the_library_starts_no_threads_of_its_own),
        cmocka_unit_test(many_threads_at_once_give_one_threads_bits),
        cmocka_unit_test(runs_are_repeated_to_the_bit_whatever_runs_beside_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
