#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "naive_head.h"
#include "tensor/kernels.h"
#include "tensor/kernels_cpu.h"
#include "tensor/stream.h"

static const char *const variants[] = {"cpu-v3", "cpu-base"};

/* N, C, V, seed: less and more than a block of rows, a piece and a span of a row. */
static const struct head_shape shapes[] = {
    {1, 1, 1, 1.0F},     {3, 5, 7, 0.5F},      {7, 16, 33, 1.0F},      {33, 24, 100, 0.25F},
    {515, 8, 65, 0.01F}, {9, 4, 2100, 0.125F}, {1030, 3, 32, 0.0625F}, {2, 8, 4096, 1.0F},
};

struct head_case {
    struct head_shape shape;
    struct guarded x;
    struct guarded wte;
    struct guarded dwte;
    struct guarded mask;
    int32_t *targets;
};

/* Every third row is masked; targets are scattered over the vocabulary. */
static void case_make(struct head_case *c, const struct head_shape *shape)
{
    c->shape = *shape;
    guarded_make(&c->x, shape->rows * shape->hidden);
    guarded_make(&c->wte, shape->vocab * shape->hidden);
    guarded_make(&c->dwte, shape->vocab * shape->hidden);
    guarded_make(&c->mask, shape->rows);
    guarded_fill(&c->x, 21, 1.0F);
    guarded_fill(&c->wte, 22, 1.0F);
    guarded_fill(&c->dwte, 23, 1.0F);
    c->targets = calloc(shape->rows, sizeof(*c->targets));
    assert_non_null(c->targets);
    for (size_t i = 0; i < shape->rows; i++) {
        c->mask.floats[i] = i % 3 == 1 ? 0.0F : 1.0F;
        c->targets[i] = (int32_t)(i * 7919 % shape->vocab);
    }
}

static void case_free(struct head_case *c)
{
    guarded_free(&c->x);
    guarded_free(&c->wte);
    guarded_free(&c->dwte);
    guarded_free(&c->mask);
    free(c->targets);
}

static double train(const struct kernel_ops *ops, struct head_case *c, int threads)
{
    struct guarded workspace;
    struct stream *stream = NULL;
    double loss = NAN;

    assert_int_equal(stream_create(threads, &stream), STATUS_OK);
    guarded_make(&workspace, head_workspace_floats(&c->shape, threads));
    assert_int_equal(ops->head_train(c->x.floats, c->dwte.floats, &loss, c->wte.floats, c->targets,
                                     c->mask.floats, &c->shape, workspace.floats, stream),
                     STATUS_OK);
    guarded_free(&workspace);
    stream_destroy(&stream);
    return loss;
}

static double evaluate(const struct kernel_ops *ops, struct head_case *c, int threads)
{
    struct guarded workspace;
    struct stream *stream = NULL;
    double loss = NAN;

    assert_int_equal(stream_create(threads, &stream), STATUS_OK);
    guarded_make(&workspace, head_workspace_floats(&c->shape, threads));
    assert_int_equal(ops->head_evaluate(c->x.floats, &loss, c->wte.floats, c->targets,
                                        c->mask.floats, &c->shape, workspace.floats, stream),
                     STATUS_OK);
    guarded_free(&workspace);
    stream_destroy(&stream);
    return loss;
}

static double *doubles(const struct guarded *from)
{
    double *memory = calloc(from->elems, sizeof(*memory));

    assert_non_null(memory);
    for (size_t i = 0; i < from->elems; i++) {
        memory[i] = (double)from->floats[i];
    }
    return memory;
}

/* Gradients may carry `unit` for each term of order `loss_seed` that they sum. */
static void check_case(const struct kernel_ops *ops, struct head_case *c, int threads, double unit)
{
    double *x = doubles(&c->x);
    double *wte = doubles(&c->wte);
    double *dx = doubles(&c->x);
    double *dwte = doubles(&c->dwte);
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
    double loss;

    naive_head_gradients(&naive, (double)c->shape.loss_seed, dx, dwte);
    loss = train(ops, c, threads);
    assert_true(fabs(loss - want) <= unit * (1.0 + fabs(want)));
    guarded_close(&c->x, dx, 4.0 * unit * (double)c->shape.loss_seed, "dx");
    guarded_close(&c->dwte, dwte, unit * (1.0 + sqrt((double)c->shape.rows)), "dwte");
    guarded_check(&c->wte);
    free(x);
    free(wte);
    free(dx);
    free(dwte);
}

static void test_loss_and_gradients_equal_the_double_precision_loops(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t s = 0; ops != NULL && s < sizeof(shapes) / sizeof(*shapes); s++) {
            for (int threads = 1; threads <= 3; threads++) {
                struct head_case c;

                case_make(&c, &shapes[s]);
                check_case(ops, &c, threads, 5e-7);
                case_free(&c);
            }
        }
    }
}

static void test_the_expected_gradients_are_difference_quotients(void **state)
{
    enum {
        ROWS = 4,
        HIDDEN = 3,
        VOCAB = 5,
        X = ROWS * HIDDEN,
        ALL = X + VOCAB * HIDDEN
    };
    const int32_t targets[ROWS] = {2, 0, 4, 2};
    const float mask[ROWS] = {1.0F, 1.0F, 0.0F, 1.0F};
    double in[ALL];
    double gradients[ALL] = {0};
    struct naive_head head = {ROWS, HIDDEN, VOCAB, in, in + X, targets, mask};

    (void)state;
    for (int i = 0; i < ALL; i++) {
        in[i] = sin(2.3 * i + 0.1);
    }
    naive_head_gradients(&head, 0.5, gradients, gradients + X);
    for (int i = 0; i < ALL; i++) {
        double kept = in[i];
        double above;
        double below;

        in[i] = kept + 1e-5;
        above = naive_head_loss(&head);
        in[i] = kept - 1e-5;
        below = naive_head_loss(&head);
        in[i] = kept;
        assert_true(fabs(0.5 * (above - below) / 2e-5 - gradients[i]) < 1e-8);
    }
}

static void test_evaluation_gives_the_bits_of_training_and_only_reads(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t s = 0; ops != NULL && s < sizeof(shapes) / sizeof(*shapes); s++) {
            struct head_case c;
            struct guarded x;
            double loss;

            case_make(&c, &shapes[s]);
            guarded_copy(&x, &c.x);
            loss = evaluate(ops, &c, 2);
            guarded_equal(&c.x, &x);
            assert_true(loss == train(ops, &c, 2));
            guarded_free(&x);
            case_free(&c);
        }
    }
}

/* The products of these shapes are too small to be split. */
static void test_a_team_of_any_size_gives_the_same_bits_where_products_are_whole(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t s = 0; ops != NULL && s < sizeof(shapes) / sizeof(*shapes); s++) {
            struct head_case alone;
            double loss;

            case_make(&alone, &shapes[s]);
            loss = train(ops, &alone, 1);
            for (int threads = 2; threads <= 3; threads++) {
                struct head_case team;

                case_make(&team, &shapes[s]);
                assert_true(loss == train(ops, &team, threads));
                guarded_equal(&team.x, &alone.x);
                guarded_equal(&team.dwte, &alone.dwte);
                case_free(&team);
            }
            case_free(&alone);
        }
    }
}

static void test_equal_teams_give_equal_bits_where_products_are_split(void **state)
{
    const struct head_shape shape = {600, 40, 300, 0.01F};

    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (int threads = 1; ops != NULL && threads <= 3; threads++) {
            struct head_case first;
            struct head_case second;

            case_make(&first, &shape);
            case_make(&second, &shape);
            assert_true(train(ops, &first, threads) == train(ops, &second, threads));
            guarded_equal(&first.x, &second.x);
            guarded_equal(&first.dwte, &second.dwte);
            case_free(&second);
            case_free(&first);
        }
    }
}

static void test_masked_rows_give_no_gradient_and_no_loss(void **state)
{
    const struct head_shape shape = {1100, 4, 50, 1.0F};

    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);
        struct head_case c;
        struct guarded dwte;

        if (ops == NULL) {
            continue;
        }
        /* Rows of the first block, of the whole second block, then all rows. */
        case_make(&c, &shape);
        for (size_t i = 300; i < 1050; i++) {
            c.mask.floats[i] = 0.0F;
        }
        check_case(ops, &c, 2, 5e-7);
        for (size_t i = 1200; i < 4200; i++) {
            assert_true(c.x.floats[i] == 0.0F);
        }
        for (size_t i = 0; i < c.mask.elems; i++) {
            c.mask.floats[i] = 0.0F;
        }
        guarded_fill(&c.x, 31, 1.0F);
        guarded_copy(&dwte, &c.dwte);
        assert_true(evaluate(ops, &c, 2) == 0.0);
        assert_true(train(ops, &c, 2) == 0.0);
        guarded_equal(&c.dwte, &dwte);
        for (size_t i = 0; i < c.x.elems; i++) {
            assert_true(c.x.floats[i] == 0.0F);
        }
        guarded_free(&dwte);
        case_free(&c);
    }
}

/* Logits are 10000 for token 0, -10000 for token 1, 0 for the others. */
static void test_huge_logits_and_improbable_targets_give_the_right_loss(void **state)
{
    const struct head_shape shape = {3, 1, 40, 0.5F};
    const float dx[] = {0.0F, 1.0F, 0.5F}; /* 0.5 (wte[0] - wte[target]) */

    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);
        struct head_case c;

        if (ops == NULL) {
            continue;
        }
        case_make(&c, &shape);
        memset(c.wte.floats, 0, c.wte.elems * sizeof(float));
        memset(c.dwte.floats, 0, c.dwte.elems * sizeof(float));
        c.wte.floats[0] = 1.0F;
        c.wte.floats[1] = -1.0F;
        for (size_t i = 0; i < 3; i++) {
            c.x.floats[i] = 1e4F;
            c.mask.floats[i] = 1.0F;
        }
        c.targets[0] = 0;
        c.targets[1] = 1;
        c.targets[2] = 39;
        assert_true(evaluate(ops, &c, 1) == 30000.0);
        assert_true(train(ops, &c, 1) == 30000.0);
        assert_memory_equal(c.x.floats, dx, sizeof(dx));
        assert_true(c.dwte.floats[0] == 1e4F);
        assert_true(c.dwte.floats[1] == -5e3F);
        assert_true(c.dwte.floats[39] == -5e3F);
        assert_true(c.dwte.floats[2] == 0.0F);
        case_free(&c);
    }
}

static void test_what_is_not_finite_stays_visible(void **state)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t i = 0; ops != NULL && i < sizeof(bad) / sizeof(*bad); i++) {
            struct head_case c;

            case_make(&c, &shapes[2]);
            c.x.floats[0] = bad[i];
            assert_true(!isfinite(train(ops, &c, 1)));
            assert_true(!isfinite(c.x.floats[0]));
            assert_true(!isfinite(c.dwte.floats[0]));
            case_free(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_expected_gradients_are_difference_quotients),
        cmocka_unit_test(test_loss_and_gradients_equal_the_double_precision_loops),
        cmocka_unit_test(test_evaluation_gives_the_bits_of_training_and_only_reads),
        cmocka_unit_test(test_a_team_of_any_size_gives_the_same_bits_where_products_are_whole),
        cmocka_unit_test(test_equal_teams_give_equal_bits_where_products_are_split),
        cmocka_unit_test(test_masked_rows_give_no_gradient_and_no_loss),
        cmocka_unit_test(test_huge_logits_and_improbable_targets_give_the_right_loss),
        cmocka_unit_test(test_what_is_not_finite_stays_visible),
    };

    return cmocka_run_group_tests_name("head", tests, NULL, NULL);
}
