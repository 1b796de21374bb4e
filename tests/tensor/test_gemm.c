#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "tensor/gemm.h"
#include "tensor/stream.h"
#include "tolerance.h"

/* A sanitized build is some twenty times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONCURRENT_PRODUCTS 500
#else
#define CONCURRENT_PRODUCTS 100000
#endif
#define CONCURRENT_THREADS 4

struct problem {
    struct gemm gemm;
    struct guarded a;
    struct guarded b;
    struct guarded c;
    size_t pad; /* elements between the rows beyond their length */
};

static void problem_make(struct problem *p, enum gemm_op op_a, enum gemm_op op_b, size_t M,
                         size_t N, size_t K, size_t pad)
{
    const size_t a_rows = op_a == GEMM_PLAIN ? M : K;
    const size_t b_rows = op_b == GEMM_PLAIN ? K : N;

    memset(p, 0, sizeof(*p));
    p->pad = pad;
    p->gemm = (struct gemm){.op_a = op_a, .op_b = op_b, .M = M, .N = N, .K = K, .alpha = 1.0F};
    p->gemm.lda = (op_a == GEMM_PLAIN ? K : M) + pad;
    p->gemm.ldb = (op_b == GEMM_PLAIN ? N : K) + pad;
    p->gemm.ldc = N + pad;
    guarded_make(&p->a, a_rows * p->gemm.lda);
    guarded_make(&p->b, b_rows * p->gemm.ldb);
    guarded_make(&p->c, M * p->gemm.ldc);
    guarded_fill(&p->a, 1, 1.0F);
    guarded_fill(&p->b, 2, 1.0F);
    p->gemm.a = p->a.floats;
    p->gemm.b = p->b.floats;
    p->gemm.c = p->c.floats;
}

static void problem_free(struct problem *p)
{
    guarded_free(&p->a);
    guarded_free(&p->b);
    guarded_free(&p->c);
}

/* The element of op(A)·op(B), and the sum of the magnitudes of its terms. */
static double naive_element(const struct gemm *g, size_t row, size_t column, double *magnitude)
{
    double sum = 0.0;

    *magnitude = 0.0;
    for (size_t k = 0; k < g->K; k++) {
        const size_t at_a = g->op_a == GEMM_PLAIN ? row * g->lda + k : k * g->lda + row;
        const size_t at_b = g->op_b == GEMM_PLAIN ? k * g->ldb + column : column * g->ldb + k;
        const double term =
            (double)((const float *)g->a)[at_a] * (double)((const float *)g->b)[at_b];
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

/* `before`: what C was, NULL where it is not read. */
static void assert_element(const struct gemm *g, const float *before, size_t row, size_t column)
{
    const size_t at = row * g->ldc + column;
    double magnitude = 0.0;
    double want = (double)g->alpha * naive_element(g, row, column, &magnitude);

    magnitude *= fabs((double)g->alpha);
    if (before != NULL) {
        want += (double)g->beta * (double)before[at];
        magnitude += fabs((double)g->beta * (double)before[at]);
    }
    const double found = (double)((const float *)g->c)[at];
    const double error = fabs(found - want);
    if (!(error <= tolerance_fp32(magnitude, g->K, 3))) {
        fail_msg("%zux%zux%zu ops %d %d, element (%zu,%zu): expected %.9g, found %.9g", g->M, g->N,
                 g->K, (int)g->op_a, (int)g->op_b, row, column, want, found);
    }
}

static void assert_product(const struct problem *p, const float *before)
{
    for (size_t row = 0; row < p->gemm.M; row++) {
        for (size_t column = 0; column < p->gemm.N; column++) {
            assert_element(&p->gemm, before, row, column);
        }
    }
}

static const size_t shapes[][3] = {{1, 1, 1},     {1, 100, 7},   {100, 1, 7},    {3, 5, 2},
                                   {17, 31, 9},   {64, 64, 64},  {129, 97, 101}, {200, 65, 33},
                                   {20, 401, 80}, {201, 300, 37}};

static void check_all_shapes(enum gemm_op op_a, enum gemm_op op_b, struct stream *stream)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct problem p;
        struct guarded before;
        problem_make(&p, op_a, op_b, shapes[i][0], shapes[i][1], shapes[i][2], i % 2 * 3);
        /* C is full of NaN here. */
        assert_int_equal(gemm_run(&p.gemm, stream), STATUS_OK);
        assert_product(&p, NULL);
        guarded_fill(&p.c, 3, 1.0F);
        guarded_copy(&before, &p.c);
        p.gemm.alpha = 0.5F;
        p.gemm.beta = 1.0F;
        assert_int_equal(gemm_run(&p.gemm, stream), STATUS_OK);
        assert_product(&p, before.floats);
        guarded_free(&before);
        problem_free(&p);
    }
}

static void products_are_right_for_all_transposes_and_teams(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        struct stream *stream = NULL;
        assert_int_equal(stream_create(threads, &stream), STATUS_OK);
        for (int ops = 0; ops < 4; ops++) {
            check_all_shapes(ops % 2 == 0 ? GEMM_PLAIN : GEMM_TRANSPOSED,
                             ops / 2 == 0 ? GEMM_PLAIN : GEMM_TRANSPOSED, stream);
        }
        stream_destroy(&stream);
    }
}

static void rows_apart_keep_what_lies_between_them(void **state)
{
    struct stream *stream = NULL;
    struct problem p;

    (void)state;
    assert_int_equal(stream_create(3, &stream), STATUS_OK);
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 150, 130, 70, 5);
    guarded_fill(&p.c, 3, 1.0F);
    for (size_t row = 0; row < 150; row++) {
        for (size_t column = 130; column < 135; column++) {
            p.c.floats[row * p.gemm.ldc + column] = 77.0F;
        }
    }
    assert_int_equal(gemm_run(&p.gemm, stream), STATUS_OK);
    assert_product(&p, NULL);
    for (size_t row = 0; row < 150; row++) {
        for (size_t column = 130; column < 135; column++) {
            assert_true(p.c.floats[row * p.gemm.ldc + column] == 77.0F);
        }
    }
    problem_free(&p);
    stream_destroy(&stream);
}

static void empty_products_scale_what_is_there(void **state)
{
    struct stream *stream = NULL;
    struct problem p;

    (void)state;
    assert_int_equal(stream_create(2, &stream), STATUS_OK);
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 0, 5, 3, 1);
    assert_int_equal(gemm_run(&p.gemm, stream), STATUS_OK);
    problem_free(&p);
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 5, 0, 3, 1);
    assert_int_equal(gemm_run(&p.gemm, stream), STATUS_OK);
    problem_free(&p);
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 3, 5, 0, 0);
    assert_int_equal(gemm_run(&p.gemm, stream), STATUS_OK);
    for (size_t i = 0; i < 15; i++) {
        assert_true(p.c.floats[i] == 0.0F);
        p.c.floats[i] = (float)i;
    }
    p.gemm.beta = 2.0F;
    assert_int_equal(gemm_run(&p.gemm, stream), STATUS_OK);
    for (size_t i = 0; i < 15; i++) {
        assert_true(p.c.floats[i] == 2.0F * (float)i);
    }
    problem_free(&p);
    stream_destroy(&stream);
}

static void rows_that_overlap_are_refused_with_the_shape(void **state)
{
    struct stream *stream = NULL;
    struct problem p;

    (void)state;
    assert_int_equal(stream_create(2, &stream), STATUS_OK);
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 150, 130, 70, 0);
    p.gemm.lda = 3;
    assert_int_equal(gemm_run(&p.gemm, stream), STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, "150 x 130 x 70"));
    assert_int_equal(gemm_run_alone(&p.gemm), STATUS_ERR_INVALID);
    problem_free(&p);
    stream_destroy(&stream);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_for_all_transposes_and_teams),
        cmocka_unit_test(rows_apart_keep_what_lies_between_them),
        cmocka_unit_test(empty_products_scale_what_is_there),
        cmocka_unit_test(rows_that_overlap_are_refused_with_the_shape),
        cmocka_unit_test(the_library_starts_no_threads_of_its_own),
        cmocka_unit_test(many_threads_at_once_give_one_threads_bits),
        cmocka_unit_test(runs_are_repeated_to_the_bit_whatever_runs_beside_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
