#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "guarded.h"
#include "head_stream.h"
#include "naive_head.h"
#include "sharded_head.h"
#include "tensor/kernels.h"

/* Rows, C, V, first token, seed: less and more than a piece and a span of a row. */
static const struct head_shape shapes[] = {
    {1, 1, 1, 0, 1.0F},        {3, 5, 7, 0, 0.5F},     {7, 16, 33, 0, 1.0F},
    {33, 24, 100, 0, 0.25F},   {515, 8, 65, 0, 0.01F}, {9, 4, 2100, 0, 0.125F},
    {1030, 3, 32, 0, 0.0625F}, {2, 8, 4096, 0, 1.0F},  {19, 7, 5, 0, 0.5F},
    {40, 12, 257, 0, 0.125F},  {4, 2, 6155, 0, 0.5F},
};

/* What is checked on each variant and in each type. */
typedef void (*check_fn)(const struct kernel_ops *ops, enum dtype type);

static void on_each_variant_and_type(check_fn check)
{
    for (size_t table = 0; head_table(table) != NULL; table++) {
        for (int type = 0; type < DTYPES; type++) {
            check(head_table(table), (enum dtype)type);
        }
    }
}

static double train_sharded(const struct kernel_ops *ops, struct head_case *c, int threads,
                            size_t shards)
{
    struct sharded_head head;
    double loss;

    sharded_head_make(&head, ops, c, threads, shards);
    sharded_head_logits(&head);
    loss = sharded_head_loss(&head, true);
    sharded_head_backward(&head);
    sharded_head_free(&head);
    return loss;
}

static double train(const struct kernel_ops *ops, struct head_case *c, int threads)
{
    return train_sharded(ops, c, threads, 1);
}

static double evaluate(const struct kernel_ops *ops, struct head_case *c, int threads)
{
    struct sharded_head head;
    double loss;

    sharded_head_make(&head, ops, c, threads, 1);
    sharded_head_logits(&head);
    loss = sharded_head_loss(&head, false);
    sharded_head_free(&head);
    return loss;
}

/*
 * Gradients may carry `unit` for each term of order `loss_seed` that they sum. Where the device rounds dlogits to
 * the type, each is off by `relative` of itself and by `least` of fp16's subnormals: of a row they sum to less than
 * 2 · loss_seed, of a column each is below loss_seed, and what they are multiplied by is below 1.
 */
static void check_case(const struct kernel_ops *ops, struct head_case *c, int threads,
                       size_t shards, double unit)
{
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
    const double seed = (double)c->shape.loss_seed;
    const double relative = head_dlogits_rounding(c->type);
    const double least = c->type == DTYPE_FP16 && relative > 0.0 ? 0x1p-25 : 0.0;
    double want = naive_head_loss(&naive);
    double loss;

    naive_head_gradients(&naive, seed, dx, dwte);
    loss = train_sharded(ops, c, threads, shards);
    assert_true(fabs(loss - want) <= unit * (1.0 + fabs(want)));
    guarded_close(&c->x, dx,
                  4.0 * unit * seed + 2.0 * relative * seed + least * (double)c->shape.vocab, "dx");
    guarded_close(&c->dwte, dwte,
                  unit * (1.0 + sqrt((double)c->shape.rows)) +
                      (relative * seed + least) * (double)c->shape.rows,
                  "dwte");
    guarded_check(&c->wte);
    free(x);
    free(wte);
    free(dx);
    free(dwte);
}

static void check_teams(const struct kernel_ops *ops, enum dtype type)
{
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
        for (int threads = 1; threads <= 3; threads++) {
            struct head_case c;

            head_case_make(&c, &shapes[s], type);
            check_case(ops, &c, threads, 1, 5e-7);
            head_case_free(&c);
        }
    }
}

static void test_loss_and_gradients_equal_the_double_precision_loops(void **state)
{
    (void)state;
    on_each_variant_and_type(check_teams);
}

static void check_shards(const struct kernel_ops *ops, enum dtype type)
{
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
        for (size_t shards = 2; shards <= SHARDED_HEAD_MOST; shards++) {
            struct head_case c;

            head_case_make(&c, &shapes[s], type);
            check_case(ops, &c, 2, shards, 5e-7);
            head_case_free(&c);
        }
    }
}

/* 5 tokens over 4 shards are 2, 2, 1 and none; 257 over 2 are 129 and 128. */
static void test_shards_of_the_vocabulary_give_the_loss_and_gradients_of_the_whole(void **state)
{
    (void)state;
    on_each_variant_and_type(check_shards);
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

static void check_evaluation(const struct kernel_ops *ops, enum dtype type)
{
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
        struct head_case c;
        struct guarded x;
        double loss;

        head_case_make(&c, &shapes[s], type);
        guarded_copy(&x, &c.x);
        loss = evaluate(ops, &c, 2);
        guarded_equal(&c.x, &x);
        assert_true(loss == train(ops, &c, 2));
        guarded_free(&x);
        head_case_free(&c);
    }
}

static void test_evaluation_gives_the_bits_of_training_and_only_reads(void **state)
{
    (void)state;
    on_each_variant_and_type(check_evaluation);
}

static void check_bits_of_teams(const struct kernel_ops *ops, enum dtype type)
{
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
        struct head_case alone;
        double loss;

        head_case_make(&alone, &shapes[s], type);
        loss = train(ops, &alone, 1);
        for (int threads = 2; threads <= 3; threads++) {
            struct head_case team;

            head_case_make(&team, &shapes[s], type);
            assert_true(loss == train(ops, &team, threads));
            guarded_equal(&team.x, &alone.x);
            guarded_equal(&team.dwte, &alone.dwte);
            head_case_free(&team);
        }
        head_case_free(&alone);
    }
}

/* The products of these shapes are too small to be split. */
static void test_a_team_of_any_size_gives_the_same_bits_where_products_are_whole(void **state)
{
    (void)state;
    on_each_variant_and_type(check_bits_of_teams);
}

static void check_repeated(const struct kernel_ops *ops, enum dtype type)
{
    const struct head_shape shape = {600, 40, 300, 0, 0.01F};

    for (int threads = 1; threads <= 3; threads++) {
        struct head_case first;
        struct head_case second;

        head_case_make(&first, &shape, type);
        head_case_make(&second, &shape, type);
        assert_true(train(ops, &first, threads) == train(ops, &second, threads));
        guarded_equal(&first.x, &second.x);
        guarded_equal(&first.dwte, &second.dwte);
        head_case_free(&second);
        head_case_free(&first);
    }
}

static void test_equal_teams_give_equal_bits_where_products_are_split(void **state)
{
    (void)state;
    on_each_variant_and_type(check_repeated);
}

/* Some rows are masked, then all. */
static void check_masked_rows(const struct kernel_ops *ops, enum dtype type)
{
    const struct head_shape shape = {300, 4, 50, 0, 1.0F};
    struct head_case c;
    struct guarded dwte;

    head_case_make(&c, &shape, type);
    check_case(ops, &c, 2, 3, 5e-7);
    for (size_t i = 4; i < 8; i++) {
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
    head_case_free(&c);
}

static void test_masked_rows_give_no_gradient_and_no_loss(void **state)
{
    (void)state;
    on_each_variant_and_type(check_masked_rows);
}

static void check_bad_masked_row(const struct kernel_ops *ops, enum dtype type, size_t shards)
{
    const struct head_shape *shape = &shapes[3];
    struct head_case clean;
    struct head_case c;
    struct sharded_head head;
    double loss;

    head_case_make(&clean, shape, type);
    loss = train_sharded(ops, &clean, 2, shards);
    head_case_make(&c, shape, type);
    sharded_head_make(&head, ops, &c, 2, shards);
    for (size_t i = 0; i < shape->hidden; i++) {
        c.x.floats[1 * shape->hidden + i] = NAN; /* row 1 is masked */
    }
    sharded_head_logits(&head);
    for (size_t s = 0; s < shards; s++) {
        const struct head_row *row = &head.rows[s * head.stride + 1];

        assert_true(row->max == 0.0 && row->sum == 0.0 && row->target == 0.0);
    }
    assert_true(sharded_head_loss(&head, true) == loss);
    memset(c.x.floats + shape->hidden, 0, shape->hidden * sizeof(float));
    sharded_head_backward(&head);
    guarded_equal(&c.x, &clean.x);
    guarded_equal(&c.dwte, &clean.dwte);
    sharded_head_free(&head);
    head_case_free(&c);
    head_case_free(&clean);
}

static void check_bad_masked_rows(const struct kernel_ops *ops, enum dtype type)
{
    for (size_t shards = 1; shards <= SHARDED_HEAD_MOST; shards++) {
        check_bad_masked_row(ops, type, shards);
    }
}

/* What overflows in a masked row of logits, or is not a number, stays there: nothing looks at it. */
static void test_nothing_in_a_masked_row_of_logits_reaches_the_others(void **state)
{
    (void)state;
    on_each_variant_and_type(check_bad_masked_rows);
}

/* Logits are 10000 for token 0, -10000 for token 1, 0 for the others. */
static void check_huge_logits(const struct kernel_ops *ops, size_t shards)
{
    const struct head_shape shape = {3, 1, 40, 0, 0.5F};
    const float dx[] = {0.0F, 1.0F, 0.5F}; /* 0.5 (wte[0] - wte[target]) */
    struct head_case c;

    head_case_make(&c, &shape, DTYPE_FP32);
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
    assert_true(train_sharded(ops, &c, 1, shards) == 30000.0);
    assert_memory_equal(c.x.floats, dx, sizeof(dx));
    assert_true(c.dwte.floats[0] == 1e4F);
    assert_true(c.dwte.floats[1] == -5e3F);
    assert_true(c.dwte.floats[39] == -5e3F);
    assert_true(c.dwte.floats[2] == 0.0F);
    head_case_free(&c);
}

static void test_huge_logits_and_improbable_targets_give_the_right_loss(void **state)
{
    (void)state;
    for (size_t table = 0; head_table(table) != NULL; table++) {
        for (size_t shards = 1; shards <= SHARDED_HEAD_MOST; shards++) {
            check_huge_logits(head_table(table), shards);
        }
    }
}

static void check_not_finite(const struct kernel_ops *ops, enum dtype type)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        for (size_t shards = 1; shards <= SHARDED_HEAD_MOST; shards++) {
            struct head_case c;

            head_case_make(&c, &shapes[2], type);
            c.x.floats[0] = bad[i];
            assert_true(!isfinite(train_sharded(ops, &c, 1, shards)));
            assert_true(!isfinite(c.x.floats[0]));
            assert_true(!isfinite(c.dwte.floats[0]));
            head_case_free(&c);
        }
    }
}

static void test_what_is_not_finite_stays_visible(void **state)
{
    (void)state;
    on_each_variant_and_type(check_not_finite);
}

/* In ascending rows, so that the bits are those of a loop; more rows than any block has threads. */
static void test_losses_are_added_in_ascending_rows(void **state)
{
    double *losses = buffer_take(1100 * sizeof(*losses));
    double *sum = buffer_take(sizeof(*sum));

    (void)state;
    for (size_t i = 0; i < 1100; i++) {
        losses[i] = 3.0 + sin(1.7 * (double)i);
    }
    for (size_t table = 0; head_table(table) != NULL; table++) {
        for (size_t rows = 0; rows <= 1100; rows += 275) {
            struct stream *stream = NULL;
            double want = 0.125;

            head_stream_open(2, DTYPE_FP32, &stream);
            *sum = 0.125;
            assert_int_equal(head_table(table)->head_add_losses(sum, losses, rows, stream),
                             STATUS_OK);
            head_stream_wait(stream);
            for (size_t i = 0; i < rows; i++) {
                want += losses[i];
            }
            assert_true(*sum == want);
            head_stream_close(&stream);
        }
    }
    buffer_give(losses);
    buffer_give(sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_expected_gradients_are_difference_quotients),
        cmocka_unit_test(test_loss_and_gradients_equal_the_double_precision_loops),
        cmocka_unit_test(test_shards_of_the_vocabulary_give_the_loss_and_gradients_of_the_whole),
        cmocka_unit_test(test_evaluation_gives_the_bits_of_training_and_only_reads),
        cmocka_unit_test(test_a_team_of_any_size_gives_the_same_bits_where_products_are_whole),
        cmocka_unit_test(test_equal_teams_give_equal_bits_where_products_are_split),
        cmocka_unit_test(test_masked_rows_give_no_gradient_and_no_loss),
        cmocka_unit_test(test_nothing_in_a_masked_row_of_logits_reaches_the_others),
        cmocka_unit_test(test_huge_logits_and_improbable_targets_give_the_right_loss),
        cmocka_unit_test(test_what_is_not_finite_stays_visible),
        cmocka_unit_test(test_losses_are_added_in_ascending_rows),
    };

    return cmocka_run_group_tests_name("head", tests, NULL, NULL);
}
