#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "buffer.h"
#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"
#include "tensor/stream.h"

static const size_t sizes[] = {0, 1, 7, 33, 1024, 1025, 5003};

#define SIZES     (sizeof(sizes) / sizeof(sizes[0]))
#define MOST      ((size_t)5003)
#define UPDATES   3
#define OPERATION 0x1p-24 /* relative error of one, at most */

struct tensors {
    struct guarded weight;
    struct guarded moment;
    struct guarded grad;
};

static void tensors_make(struct tensors *t, size_t elems)
{
    guarded_make(&t->weight, elems);
    guarded_make(&t->moment, elems);
    guarded_make(&t->grad, elems);
    guarded_fill(&t->weight, 1, 1.0F);
    memset(t->moment.floats, 0, elems * sizeof(float));
}

static void tensors_free(struct tensors *t)
{
    guarded_free(&t->weight);
    guarded_free(&t->moment);
    guarded_free(&t->grad);
}

/* The formula in double, with the magnitudes that rounding is relative to. */
struct naive {
    double weight;
    double moment;
};

static void naive_update(struct naive *n, double grad, const struct sgd_step *step)
{
    const double g = grad * (double)step->grad_scale + (double)step->weight_decay * n->weight;

    n->moment = (double)step->momentum * n->moment + g;
    n->weight -= (double)step->lr * n->moment;
}

/* What all teams and variants are compared with. */
struct kept {
    struct guarded weight[SIZES];
    struct guarded moment[SIZES];
    bool there;
};

static void run_updates(const struct kernel_ops *ops, struct stream *stream, struct tensors *t,
                        struct naive *want)
{
    const struct sgd_step step = {
        .lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, .grad_scale = 0.5F};
    size_t elems = t->weight.elems;

    for (uint32_t update = 0; update < UPDATES; update++) {
        guarded_fill(&t->grad, 10 + update, 1.0F);
        assert_int_equal(
            ops->sgd(t->weight.floats, t->moment.floats, t->grad.floats, elems, &step, stream),
            STATUS_OK);
        for (size_t at = 0; at < elems; at++) {
            naive_update(&want[at], t->grad.floats[at], &step);
        }
    }
}

static void check_sgd(const struct kernel_ops *ops, struct stream *stream, int threads,
                      void *context)
{
    struct kept *kept = context;
    struct naive want[MOST] = {{0.0, 0.0}};

    (void)threads;
    for (size_t i = 0; i < SIZES; i++) {
        struct tensors t;
        tensors_make(&t, sizes[i]);
        for (size_t at = 0; at < sizes[i]; at++) {
            want[at] = (struct naive){.weight = t.weight.floats[at]};
        }
        run_updates(ops, stream, &t, want);
        for (size_t at = 0; at < sizes[i]; at++) {
            /* No magnitude exceeds 2: gradients 0.5, decay 0.01, moments 1.4, weights 1.3. An update
             * rounds the moment four times and the weight twice; earlier errors come along. */
            assert_true(fabs((double)t.moment.floats[at] - want[at].moment) <=
                        2.0 * 4 * UPDATES * OPERATION);
            assert_true(fabs((double)t.weight.floats[at] - want[at].weight) <=
                        2.0 * 2 * UPDATES * OPERATION);
        }
        if (!kept->there) {
            guarded_copy(&kept->weight[i], &t.weight);
            guarded_copy(&kept->moment[i], &t.moment);
        }
        guarded_equal(&t.weight, &kept->weight[i]);
        guarded_equal(&t.moment, &kept->moment[i]);
        tensors_free(&t);
    }
    kept->there = true;
}

static void updates_follow_the_formula_with_the_same_bits_in_every_team_and_variant(void **state)
{
    struct kept kept = {.there = false};

    (void)state;
    on_each_variant_and_team(check_sgd, &kept);
    for (size_t i = 0; i < SIZES; i++) {
        guarded_free(&kept.weight[i]);
        guarded_free(&kept.moment[i]);
    }
}

/* By hand: 1.5 = 1 + 0.25·2, 1.25 = 2 - 0.5·1.5; then 1.3125 = 1 + 0.25·1.25, 2.0625 = 0.5·1.5 + 1.3125,
 * 0.21875 = 1.25 - 0.5·2.0625. All of them are floats. */
static void check_by_hand(const struct kernel_ops *ops, struct stream *stream, int threads,
                          void *context)
{
    const struct sgd_step step = {
        .lr = 0.5F, .momentum = 0.5F, .weight_decay = 0.25F, .grad_scale = 0.125F};
    const float moments[] = {1.5F, 2.0625F};
    const float weights[] = {1.25F, 0.21875F};
    struct tensors t;

    (void)threads;
    (void)context;
    tensors_make(&t, 35);
    for (size_t at = 0; at < 35; at++) {
        t.weight.floats[at] = 2.0F;
        t.grad.floats[at] = 8.0F;
    }
    for (int update = 0; update < 2; update++) {
        assert_int_equal(
            ops->sgd(t.weight.floats, t.moment.floats, t.grad.floats, 35, &step, stream),
            STATUS_OK);
        for (size_t at = 0; at < 35; at++) {
            assert_true(t.moment.floats[at] == moments[update]);
            assert_true(t.weight.floats[at] == weights[update]);
        }
    }
    tensors_free(&t);
}

static void two_updates_are_those_computed_by_hand(void **state)
{
    (void)state;
    on_each_variant_and_team(check_by_hand, NULL);
}

/* An element computed in the rest of a vector loop has the bits it has inside the loop. */
static void check_places(const struct kernel_ops *ops, struct stream *stream, int threads,
                         void *context)
{
    const struct sgd_step step = {
        .lr = 0.01F, .momentum = 0.9F, .weight_decay = 0.1F, .grad_scale = 0.3F};
    struct tensors whole;
    struct tensors single;

    (void)threads;
    (void)context;
    tensors_make(&whole, 259);
    tensors_make(&single, 259);
    for (uint32_t twice = 0; twice < 2; twice++) {
        guarded_fill(&whole.grad, 3 + twice, 1.0F);
        guarded_fill(&single.grad, 3 + twice, 1.0F);
        assert_int_equal(ops->sgd(whole.weight.floats, whole.moment.floats, whole.grad.floats, 259,
                                  &step, stream),
                         STATUS_OK);
        for (size_t at = 0; at < 259; at++) {
            assert_int_equal(ops->sgd(single.weight.floats + at, single.moment.floats + at,
                                      single.grad.floats + at, 1, &step, stream),
                             STATUS_OK);
        }
    }
    guarded_equal(&whole.weight, &single.weight);
    guarded_equal(&whole.moment, &single.moment);
    tensors_free(&whole);
    tensors_free(&single);
}

static void an_elements_bits_do_not_depend_on_its_place(void **state)
{
    (void)state;
    on_each_variant_and_team(check_places, NULL);
}

/* Of 16 bits: what a second pass would have rounded, in every team, and nothing beyond. */
static void check_copy(const struct kernel_ops *ops, struct stream *stream, int threads,
                       void *context)
{
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_FP16};
    const size_t copy_bytes = (9001 + 2) * sizeof(uint16_t);
    uint16_t *copy = buffer_take(copy_bytes);

    (void)threads;
    (void)context;
    for (int i = 0; i < 2; i++) {
        const struct sgd_step step = {
            .lr = 0.01F, .grad_scale = 0.3F, .copy = copy + 1, .copy_type = types[i]};
        struct tensors t;
        tensors_make(&t, 9001);
        guarded_fill(&t.grad, 5, 1.0F);
        memset(copy, 0x55, copy_bytes);
        assert_int_equal(
            ops->sgd(t.weight.floats, t.moment.floats, t.grad.floats, 9001, &step, stream),
            STATUS_OK);
        for (size_t at = 0; at < 9001; at++) {
            const float want = t.weight.floats[at];
            assert_int_equal(copy[1 + at],
                             types[i] == DTYPE_BF16 ? dtype_to_bf16(want) : dtype_to_fp16(want));
        }
        assert_true(copy[0] == 0x5555 && copy[9002] == 0x5555);
        tensors_free(&t);
    }
    buffer_give(copy);
}

static void a_copy_gets_the_new_weights_rounded(void **state)
{
    (void)state;
    on_each_variant_and_team(check_copy, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_follow_the_formula_with_the_same_bits_in_every_team_and_variant),
        cmocka_unit_test(two_updates_are_those_computed_by_hand),
        cmocka_unit_test(an_elements_bits_do_not_depend_on_its_place),
        cmocka_unit_test(a_copy_gets_the_new_weights_rounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
