#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_case.h"
#include "guarded.h"
#include "naive_attention.h"
#include "on_each.h"
#include "tensor/kernels.h"
#include "typed.h"

/* Three of ten weights, in a shard of heads that is not the first. */
static const struct attention_dropout some = {
    .seed = 0x0123456789ABCDEFU,
    .site = 77,
    .layer = 5,
    .threshold = 19661,
    .first_sample = 0x300000001U,
    .first_head = 3,
};

/* A check that needs no team: once for each variant. */
typedef void (*check_fn)(const struct kernel_ops *ops, struct stream *stream);

static void run_once(const struct kernel_ops *ops, struct stream *stream, int threads,
                     void *context)
{
    if (threads == 1) {
        (*(const check_fn *)context)(ops, stream);
    }
}

static void on_each_variant(check_fn check)
{
    on_each_variant_and_team(run_once, &check);
}

/* Sum of out · dout of one head: the number whose gradient the backward is. */
static double objective(const double *const in[4], const double *factors, size_t T, size_t D)
{
    double *out = calloc(T * D + T, sizeof(*out));
    double sum = 0.0;

    assert_non_null(out);
    naive_attention_forward(out, out + T * D, in[0], in[1], in[2], factors, T, D);
    for (size_t i = 0; i < T * D; i++) {
        sum += out[i] * in[3][i];
    }
    free(out);
    return sum;
}

enum {
    QUOTIENT_T = 9,
    QUOTIENT_D = 3,
    QUOTIENT_ELEMS = QUOTIENT_T * QUOTIENT_D
};

/* `factors` (T,T) or NULL. The gradients are asked for twice: by the softmax's own derivative, and
 * by way of the forward's result. */
static void check_quotients(const double *factors)
{
    double in[4][QUOTIENT_ELEMS];
    const double *const heads[4] = {in[0], in[1], in[2], in[3]};
    double gradients[2][3][QUOTIENT_ELEMS];
    double out[QUOTIENT_ELEMS];
    double lse[QUOTIENT_T];

    for (int i = 0; i < 4 * QUOTIENT_ELEMS; i++) {
        in[i / QUOTIENT_ELEMS][i % QUOTIENT_ELEMS] = sin(1.7 * i + 0.3);
    }
    naive_attention_forward(out, lse, in[0], in[1], in[2], factors, QUOTIENT_T, QUOTIENT_D);
    for (int way = 0; way < 2; way++) {
        naive_attention_backward(gradients[way][0], gradients[way][1], gradients[way][2], in[3],
                                 way == 0 ? NULL : out, in[0], in[1], in[2], factors, QUOTIENT_T,
                                 QUOTIENT_D);
    }
    for (int i = 0; i < 3 * QUOTIENT_ELEMS; i++) {
        double *place = &in[i / QUOTIENT_ELEMS][i % QUOTIENT_ELEMS];
        double kept = *place;
        double above;
        double quotient;

        *place = kept + 1e-5;
        above = objective(heads, factors, QUOTIENT_T, QUOTIENT_D);
        *place = kept - 1e-5;
        quotient = (above - objective(heads, factors, QUOTIENT_T, QUOTIENT_D)) / 2e-5;
        *place = kept;
        for (int way = 0; way < 2; way++) {
            double gradient = gradients[way][i / QUOTIENT_ELEMS][i % QUOTIENT_ELEMS];

            assert_true(fabs(quotient - gradient) < 1e-8);
        }
    }
}

static void test_the_expected_gradients_are_difference_quotients(void **state)
{
    const struct attention_shape shape = {1, QUOTIENT_T, 1, QUOTIENT_D};
    double factors[QUOTIENT_T * QUOTIENT_T];

    (void)state;
    check_quotients(NULL);
    for (size_t i = 0; i < (size_t)QUOTIENT_T * QUOTIENT_T; i++) {
        factors[i] = attention_case_factor(&some, &shape, 0, 0, i / QUOTIENT_T, i % QUOTIENT_T);
    }
    check_quotients(factors);
}

/* Terms of order one are multiplied by 1 / 0.7, and so are their errors. */
static void test_both_directions_equal_the_double_precision_loops_by_any_team(void **state)
{
    (void)state;
    attention_case_check_shapes(&some, 1e-6 / 0.7);
}

/* Makes every weight visible: with a one in column k of value k and zeros beside it, column k of
 * out is the weight of key k; with a one in column q of query q's dout, column q of key k's dV is
 * what query q weighs it. */
static void check_each_element(const struct kernel_ops *ops, struct stream *stream)
{
    const size_t T = 109;
    const struct attention_shape shape = {2, T, 2, T};
    const size_t row = 6 * T;
    size_t kept[2] = {0, 0};
    struct attention_case c;

    attention_case_make(&c, &shape, DTYPE_FP32, &some, 0.1F);
    for (size_t i = 0; i < c.dout.elems; i++) {
        size_t place = i / (2 * T) % T;
        bool own = i % T == place;

        c.dout.floats[i] = own ? 1.0F : 0.0F;
        typed_set(&c.qkv, i / (2 * T) * row + 4 * T + i % (2 * T), own ? 1.0F : 0.0F);
    }
    attention_case_run(ops, &c, stream);
    for (size_t i = 0; i < 4 * T * T; i++) {
        size_t b = i / (2 * T * T);
        size_t h = i / (T * T) % 2;
        size_t q = i / T % T;
        size_t k = i % T;
        bool keeps = k <= q && attention_case_factor(&some, &shape, b, h, q, k) > 0.0;

        assert_int_equal(typed_at(&c.out, (b * T + q) * 2 * T + h * T + k) > 0.0F, keeps);
        assert_int_equal(typed_at(&c.dqkv, (b * T + k) * row + 4 * T + h * T + q) > 0.0F, keeps);
        kept[keeps] += k <= q;
    }
    /* Of about 24,000 weights; the deviation of the share is 0.003. */
    assert_true(fabs((double)kept[1] / (double)(kept[0] + kept[1]) - 0.7) < 0.015);
    attention_case_free(&c);
}

static void test_exactly_the_weights_that_the_mask_names_are_kept_both_ways(void **state)
{
    (void)state;
    on_each_variant(check_each_element);
}

static void check_nothing_dropped(const struct kernel_ops *ops, struct stream *stream)
{
    struct attention_dropout nothing = some;
    const struct attention_shape shape = {2, 130, 2, 20};

    nothing.threshold = 0;
    for (int type = 0; type < DTYPES; type++) {
        struct attention_case with;
        struct attention_case without;

        attention_case_make(&with, &shape, (enum dtype)type, &nothing, 1.0F);
        attention_case_make(&without, &shape, (enum dtype)type, NULL, 1.0F);
        attention_case_run(ops, &with, stream);
        attention_case_run(ops, &without, stream);
        attention_case_equal(&with, &without);
        attention_case_free(&with);
        attention_case_free(&without);
    }
}

static void test_a_threshold_of_zero_has_the_bits_of_no_dropout(void **state)
{
    (void)state;
    on_each_variant(check_nothing_dropped);
}

static void check_lse(const struct kernel_ops *ops, struct stream *stream)
{
    const struct attention_shape shape = {1, 130, 2, 20};
    struct attention_case with;
    struct attention_case without;

    attention_case_make(&with, &shape, DTYPE_BF16, &some, 1.0F);
    attention_case_make(&without, &shape, DTYPE_BF16, NULL, 1.0F);
    attention_case_run(ops, &with, stream);
    attention_case_run(ops, &without, stream);
    guarded_equal(&with.lse, &without.lse);
    attention_case_free(&with);
    attention_case_free(&without);
}

static void test_the_log_sum_exp_knows_nothing_of_dropout(void **state)
{
    (void)state;
    on_each_variant(check_lse);
}

/* Compares, or takes over, a part of a tensor: `heads` of `whole` from `first_head` on, in `samples`
 * from `first_sample` on, which are all of `part`. `groups` is 3 for Q, K and V, 1 for out. */
struct part {
    const struct attention_case *whole;
    size_t first_sample;
    size_t first_head;
    size_t groups;
};

static size_t place_in_whole(const struct part *part, const struct attention_shape *shape, size_t i)
{
    size_t width = shape->heads * shape->head_size;
    size_t wide = part->whole->shape.heads * shape->head_size;
    size_t row = i / (width * part->groups) + part->first_sample * shape->positions;
    size_t group = i / width % part->groups;

    return (row * part->groups + group) * wide + part->first_head * shape->head_size + i % width;
}

static void take_part(struct attention_case *c, const struct part *part)
{
    struct part rows = *part;

    rows.groups = 3;
    for (size_t i = 0; i < c->qkv.elems; i++) {
        typed_set(&c->qkv, i, typed_at(&rows.whole->qkv, place_in_whole(&rows, &c->shape, i)));
    }
    rows.groups = 1;
    for (size_t i = 0; i < c->dout.elems; i++) {
        c->dout.floats[i] = rows.whole->dout.floats[place_in_whole(&rows, &c->shape, i)];
    }
}

static void compare_part(const struct attention_case *c, const struct part *part)
{
    struct part rows = *part;
    const size_t T = c->shape.positions;

    rows.groups = 3;
    for (size_t i = 0; i < c->dqkv.elems; i++) {
        assert_true(typed_at(&c->dqkv, i) ==
                    typed_at(&rows.whole->dqkv, place_in_whole(&rows, &c->shape, i)));
    }
    rows.groups = 1;
    for (size_t i = 0; i < c->out.elems; i++) {
        assert_true(typed_at(&c->out, i) ==
                    typed_at(&rows.whole->out, place_in_whole(&rows, &c->shape, i)));
    }
    for (size_t i = 0; i < c->lse.elems; i++) {
        size_t sample = i / T / c->shape.heads + rows.first_sample;
        size_t head = i / T % c->shape.heads + rows.first_head;

        assert_true(c->lse.floats[i] ==
                    rows.whole->lse.floats[(sample * rows.whole->shape.heads + head) * T + i % T]);
    }
}

/* Two samples with four heads, against each half of the heads and each sample alone. */
static void check_shards(const struct kernel_ops *ops, struct stream *stream)
{
    const struct attention_shape all = {2, 101, 4, 20};
    const struct attention_shape share = {1, 101, 2, 20};

    for (int type = 0; type < DTYPES; type++) {
        struct attention_case whole;

        attention_case_make(&whole, &all, (enum dtype)type, &some, 1.0F);
        attention_case_run(ops, &whole, stream);
        for (size_t i = 0; i < 4; i++) {
            const struct part part = {&whole, i / 2, i % 2 * 2, 1};
            struct attention_dropout own = some;
            struct attention_case shard;

            own.first_sample += part.first_sample;
            own.first_head += part.first_head;
            attention_case_make(&shard, &share, (enum dtype)type, &own, 1.0F);
            take_part(&shard, &part);
            attention_case_run(ops, &shard, stream);
            compare_part(&shard, &part);
            attention_case_free(&shard);
        }
        attention_case_free(&whole);
    }
}

static void test_shards_of_heads_and_samples_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    on_each_variant(check_shards);
}

static void check_purposes(const struct kernel_ops *ops, struct stream *stream)
{
    const struct attention_shape shape = {1, 30, 1, 8};
    struct attention_dropout others[6] = {some, some, some, some, some, some};
    struct attention_case here;

    others[0].seed += (uint64_t)1 << 40;
    others[1].site++;
    others[2].layer++;
    others[3].first_sample++;
    others[4].first_sample += (uint64_t)1 << 40;
    others[5].first_head++;
    attention_case_make(&here, &shape, DTYPE_FP32, &some, 1.0F);
    attention_case_run(ops, &here, stream);
    for (size_t i = 0; i < 6; i++) {
        struct attention_case there;

        attention_case_make(&there, &shape, DTYPE_FP32, &others[i], 1.0F);
        attention_case_run(ops, &there, stream);
        assert_memory_not_equal(here.out.data, there.out.data, here.out.elems * sizeof(float));
        assert_memory_not_equal(here.dqkv.data, there.dqkv.data, here.dqkv.elems * sizeof(float));
        attention_case_free(&there);
    }
    attention_case_free(&here);
}

static void test_every_purpose_has_a_mask_of_its_own(void **state)
{
    (void)state;
    on_each_variant(check_purposes);
}

/* A weight that is not kept is multiplied as a zero, and so hides nothing. */
static void check_not_finite(const struct kernel_ops *ops, struct stream *stream)
{
    const struct attention_shape shape = {1, 30, 1, 4};

    for (size_t i = 0; i < (size_t)3 * DTYPES; i++) {
        struct attention_case c;

        attention_case_make(&c, &shape, (enum dtype)(i / 3), &some, 1.0F);
        typed_set(&c.qkv, 240 + i % 3 * 4, NAN);
        attention_case_run(ops, &c, stream);
        assert_true(!isfinite(typed_at(&c.out, 80)));
        assert_true(!isfinite(typed_at(&c.dqkv, 240)));
        attention_case_free(&c);
    }
}

static void test_what_is_not_finite_stays_visible(void **state)
{
    (void)state;
    on_each_variant(check_not_finite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_expected_gradients_are_difference_quotients),
        cmocka_unit_test(test_both_directions_equal_the_double_precision_loops_by_any_team),
        cmocka_unit_test(test_exactly_the_weights_that_the_mask_names_are_kept_both_ways),
        cmocka_unit_test(test_a_threshold_of_zero_has_the_bits_of_no_dropout),
        cmocka_unit_test(test_the_log_sum_exp_knows_nothing_of_dropout),
        cmocka_unit_test(test_shards_of_heads_and_samples_give_the_bits_of_the_whole),
        cmocka_unit_test(test_every_purpose_has_a_mask_of_its_own),
        cmocka_unit_test(test_what_is_not_finite_stays_visible),
    };

    return cmocka_run_group_tests_name("attention_dropout", tests, NULL, NULL);
}
