#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "../tensor/guarded.h"
#include "../tensor/naive_head.h"
#include "../tensor/sharded_head.h"
#include "stages/model/head.h"

/* Rows: less than a block, a block, some blocks and a rest. */
static const struct head_shape shapes[] = {
    {33, 24, 100, 0, 0.25F},
    {HEAD_BLOCK_ROWS, 4, 65, 0, 0.01F},
    {2 * HEAD_BLOCK_ROWS + 7, 6, 32, 0, 0.0625F},
};

struct bench {
    struct tensor_parallel tp;
    struct head_case c;
    struct head head;
    struct arena arena;
    struct device *device;
};

static void bench_make(struct bench *bench, const struct head_shape *shape, int threads)
{
    *bench = (struct bench){.tp = {.size = 1}};
    head_case_make(&bench->c, shape, DTYPE_FP32);
    assert_int_equal(device_open(device_cpu(),
                                 &(struct device_config){.threads = threads, .type = DTYPE_FP32},
                                 &bench->device),
                     STATUS_OK);
    bench->head = (struct head){
        .shape = *shape,
        .weight = bench->c.wte.floats,
        .gradient = bench->c.dwte.floats,
        .tp = &bench->tp,
        .device = bench->device,
    };
    arena_measure(&bench->arena, "head");
    head_buffers_carve(&bench->head.buffers, shape, 1, kernels_cpu(), &bench->arena, NULL);
    assert_int_equal(arena_allocate(&bench->arena, true), STATUS_OK);
    head_buffers_carve(&bench->head.buffers, shape, 1, kernels_cpu(), &bench->arena, NULL);
}

static void bench_free(struct bench *bench)
{
    arena_release(&bench->arena);
    device_close(&bench->device);
    head_case_free(&bench->c);
}

/* Trains once, after an evaluation that must only read, and compares with the loops in double. */
static void check(struct bench *bench)
{
    struct head_case *c = &bench->c;
    double *x = guarded_doubles(&c->x);
    double *wte = guarded_doubles(&c->wte);
    double *dx = guarded_doubles(&c->x);
    double *dwte = guarded_doubles(&c->dwte);
    struct naive_head naive = {
        .rows = c->shape.rows,
        .hidden = c->shape.hidden,
        .vocab = c->shape.vocab,
        .x = x,
        .wte = wte,
        .targets = c->targets,
        .mask = c->mask.floats,
    };
    double want = naive_head_loss(&naive);
    double loss = 0.0;
    double evaluated = 0.0;

    naive_head_gradients(&naive, (double)c->shape.loss_seed, dx, dwte);
    assert_int_equal(
        head_evaluate(&bench->head, c->x.floats, c->targets, c->mask.floats, &evaluated),
        STATUS_OK);
    guarded_close(&c->x, x, 0.0, "x");
    assert_int_equal(head_train(&bench->head, c->x.floats, c->targets, c->mask.floats, &loss),
                     STATUS_OK);
    assert_true(loss == evaluated);
    assert_true(fabs(loss - want) <= 5e-7 * (1.0 + fabs(want)));
    guarded_close(&c->x, dx, 4.0 * 5e-7 * (double)c->shape.loss_seed, "dx");
    guarded_close(&c->dwte, dwte, 5e-7 * (1.0 + sqrt((double)c->shape.rows)), "dwte");
    free(x);
    free(wte);
    free(dx);
    free(dwte);
}

static void all_blocks_give_the_loss_and_gradients_of_the_double_precision_loops(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
        for (int threads = 1; threads <= 2; threads++) {
            struct bench bench;

            bench_make(&bench, &shapes[s], threads);
            check(&bench);
            bench_free(&bench);
        }
    }
}

static void blocks_without_a_target_give_no_loss_and_no_gradient(void **state)
{
    const struct head_shape shape = {2 * HEAD_BLOCK_ROWS + 76, 4, 50, 0, 1.0F};
    struct bench bench;
    struct guarded dwte;
    double loss = 0.0;

    (void)state;
    bench_make(&bench, &shape, 2);
    /* Rows of the first block and the whole second one, in which nothing is even looked at. */
    for (size_t i = 300; i < 2 * HEAD_BLOCK_ROWS + 26; i++) {
        bench.c.mask.floats[i] = 0.0F;
    }
    check(&bench);
    for (size_t i = 300 * shape.hidden; i < (2 * HEAD_BLOCK_ROWS + 26) * shape.hidden; i++) {
        assert_true(bench.c.x.floats[i] == 0.0F);
    }
    /* All of them. */
    for (size_t i = 0; i < shape.rows; i++) {
        bench.c.mask.floats[i] = 0.0F;
    }
    for (size_t i = 0; i < bench.c.x.elems; i++) {
        bench.c.x.floats[i] = NAN;
    }
    guarded_copy(&dwte, &bench.c.dwte);
    assert_int_equal(
        head_evaluate(&bench.head, bench.c.x.floats, bench.c.targets, bench.c.mask.floats, &loss),
        STATUS_OK);
    assert_true(loss == 0.0);
    assert_int_equal(
        head_train(&bench.head, bench.c.x.floats, bench.c.targets, bench.c.mask.floats, &loss),
        STATUS_OK);
    assert_true(loss == 0.0);
    guarded_equal(&bench.c.dwte, &dwte);
    for (size_t i = 0; i < bench.c.x.elems; i++) {
        assert_true(bench.c.x.floats[i] == 0.0F);
    }
    guarded_free(&dwte);
    bench_free(&bench);
}

/* What is planned for logits and losses follows from how many rows the kernels take at once, and from the rows. */
static void memory_is_for_the_rows_of_a_block(void **state)
{
    struct kernel_ops few = *kernels_cpu();
    const struct head_shape shape = {4096, 8, 64, 0, 1.0F}; /* a row of logits is 256 bytes */
    size_t planned[3];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        static const size_t rows[] = {1024, 4096, 100000};
        struct head_buffers buffers;
        struct arena arena;

        few.head_block_rows = rows[i];
        arena_measure(&arena, "head");
        head_buffers_carve(&buffers, &shape, 1, &few, &arena, NULL);
        planned[i] = arena.planned_bytes;
    }
    assert_int_equal(planned[1], 4 * planned[0]);
    assert_int_equal(planned[2], planned[1]);
    assert_true(planned[0] >= 1024 * (256 + sizeof(double) + sizeof(struct head_row)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_blocks_give_the_loss_and_gradients_of_the_double_precision_loops),
        cmocka_unit_test(blocks_without_a_target_give_no_loss_and_no_gradient),
        cmocka_unit_test(memory_is_for_the_rows_of_a_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
