#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "buffer.h"
#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"
#include "tensor/stream.h"
#include "tolerance.h"

static const size_t sizes[] = {0, 1, 7, 33, 1024, 1025, 5003};

#define SIZES   (sizeof(sizes) / sizeof(sizes[0]))
#define UPDATES ((size_t)3)

struct tensors {
    struct guarded weight;
    struct guarded moment1;
    struct guarded moment2;
    struct guarded grad;
};

static void tensors_make(struct tensors *t, size_t elems)
{
    guarded_make(&t->weight, elems);
    guarded_make(&t->moment1, elems);
    guarded_make(&t->moment2, elems);
    guarded_make(&t->grad, elems);
    guarded_fill(&t->weight, 1, 1.0F);
    memset(t->moment1.floats, 0, elems * sizeof(float));
    memset(t->moment2.floats, 0, elems * sizeof(float));
}

static void tensors_free(struct tensors *t)
{
    guarded_free(&t->weight);
    guarded_free(&t->moment1);
    guarded_free(&t->moment2);
    guarded_free(&t->grad);
}

/* The textbook form in double, with bias-corrected moments, for one element. */
struct naive {
    double weight;
    double moment1;
    double moment2;
    double travelled; /* magnitudes of all that was added to the weight */
};

static void naive_update(struct naive *n, double grad, const struct adam_step *step)
{
    const double g = grad * (double)step->grad_scale;
    const double t = (double)step->update;
    const double b1 = step->beta1;
    const double b2 = step->beta2;

    n->moment1 = b1 * n->moment1 + (1.0 - b1) * g;
    n->moment2 = b2 * n->moment2 + (1.0 - b2) * g * g;
    const double mean = n->moment1 / (1.0 - pow(b1, t));
    const double spread = sqrt(n->moment2 / (1.0 - pow(b2, t)));
    const double move = (double)step->lr * mean / (spread + (double)step->eps);
    const double decay = (double)step->lr * (double)step->weight_decay * n->weight;
    n->weight -= move + decay;
    n->travelled += fabs(move) + fabs(decay);
}

static void check_element(const struct tensors *t, size_t at, const struct naive *want)
{
    /* The weight is off by the rounding of each update and by the relative error of what was
     * added: a dozen roundings, and as many of the moments before. Moments that cancel are off by
     * what was cancelled, gradients of magnitude 1. */
    const double allowed =
        tolerance_fp32(1.0, UPDATES, 0) + tolerance_fp32(want->travelled, 2, 12 * UPDATES);

    assert_true(fabs((double)t->weight.floats[at] - want->weight) <= allowed);
    assert_true(fabs((double)t->moment1.floats[at] - want->moment1) <=
                tolerance_fp32(1.0, UPDATES, 3));
    assert_true(fabs((double)t->moment2.floats[at] - want->moment2) <=
                tolerance_fp32(1.0, UPDATES, 3));
}

/* Gradients of one sign, so that the moments do not cancel and relative errors stay small. */
static void fill_gradients(struct guarded *grad, uint32_t seed)
{
    guarded_fill(grad, seed, 1.0F);
    for (size_t at = 0; at < grad->elems; at++) {
        grad->floats[at] = fabsf(grad->floats[at]) + 0.01F;
        if (at % 3 == 0) {
            grad->floats[at] = -grad->floats[at];
        }
    }
}

static void check_adam(const struct kernel_ops *ops, struct stream *stream, int threads,
                       void *context)
{
    struct guarded *first = context;

    for (size_t i = 0; i < SIZES; i++) {
        struct adam_step step = {.lr = 0.01F,
                                 .beta1 = 0.9F,
                                 .beta2 = 0.95F,
                                 .eps = 1e-8F,
                                 .weight_decay = 0.1F,
                                 .grad_scale = 0.5F};
        struct naive want[5003];
        struct tensors t;
        tensors_make(&t, sizes[i]);
        for (size_t at = 0; at < sizes[i]; at++) {
            want[at] = (struct naive){.weight = t.weight.floats[at]};
        }
        for (step.update = 1; step.update <= (int64_t)UPDATES; step.update++) {
            fill_gradients(&t.grad, 10);
            assert_int_equal(ops->adam(t.weight.floats, t.moment1.floats, t.moment2.floats,
                                       t.grad.floats, sizes[i], &step, stream),
                             STATUS_OK);
            for (size_t at = 0; at < sizes[i]; at++) {
                naive_update(&want[at], t.grad.floats[at], &step);
            }
        }
        for (size_t at = 0; at < sizes[i]; at++) {
            check_element(&t, at, &want[at]);
        }
        if (threads == 1) {
            guarded_copy(&first[i], &t.weight);
        }
        guarded_equal(&t.weight, &first[i]);
        if (threads == ON_EACH_MOST_THREADS) {
            guarded_free(&first[i]);
        }
        tensors_free(&t);
    }
}

static void updates_follow_the_formula_whatever_the_team(void **state)
{
    struct guarded first[SIZES];

    (void)state;
    on_each_variant_and_team(check_adam, first);
}

/* Update 1 from zero moments moves each weight by lr · sign(g), by hand. */
static void check_first_update(const struct kernel_ops *ops, struct stream *stream, int threads,
                               void *context)
{
    const struct adam_step step = {.lr = 0.125F,
                                   .beta1 = 0.9F,
                                   .beta2 = 0.999F,
                                   .eps = 0.0F,
                                   .weight_decay = 0.0F,
                                   .grad_scale = 1.0F,
                                   .update = 1};
    struct tensors t;

    (void)threads;
    (void)context;
    tensors_make(&t, 50);
    fill_gradients(&t.grad, 5);
    for (size_t at = 0; at < 50; at++) {
        t.weight.floats[at] = 1.0F;
    }
    assert_int_equal(ops->adam(t.weight.floats, t.moment1.floats, t.moment2.floats, t.grad.floats,
                               50, &step, stream),
                     STATUS_OK);
    for (size_t at = 0; at < 50; at++) {
        const double want = t.grad.floats[at] > 0.0F ? 0.875 : 1.125;
        assert_true(fabs((double)t.weight.floats[at] - want) <=
                    tolerance_fp32(0.125, 2, 12) + 1e-7);
    }
    tensors_free(&t);
}

static void the_first_update_moves_by_the_learning_rate(void **state)
{
    (void)state;
    on_each_variant_and_team(check_first_update, NULL);
}

/* An element computed in the rest of a vector loop has the bits it has inside the loop. */
static void check_places(const struct kernel_ops *ops, struct stream *stream, int threads,
                         void *context)
{
    const struct adam_step step = {.lr = 0.01F,
                                   .beta1 = 0.9F,
                                   .beta2 = 0.95F,
                                   .eps = 1e-8F,
                                   .weight_decay = 0.1F,
                                   .grad_scale = 0.3F,
                                   .update = 4};
    struct tensors whole;
    struct tensors single;

    (void)threads;
    (void)context;
    tensors_make(&whole, 259);
    tensors_make(&single, 259);
    for (int twice = 0; twice < 2; twice++) {
        guarded_fill(&whole.grad, 3 + (uint32_t)twice, 1.0F);
        guarded_fill(&single.grad, 3 + (uint32_t)twice, 1.0F);
        assert_int_equal(ops->adam(whole.weight.floats, whole.moment1.floats, whole.moment2.floats,
                                   whole.grad.floats, 259, &step, stream),
                         STATUS_OK);
        for (size_t at = 0; at < 259; at++) {
            assert_int_equal(ops->adam(single.weight.floats + at, single.moment1.floats + at,
                                       single.moment2.floats + at, single.grad.floats + at, 1,
                                       &step, stream),
                             STATUS_OK);
        }
    }
    guarded_equal(&whole.weight, &single.weight);
    guarded_equal(&whole.moment1, &single.moment1);
    guarded_equal(&whole.moment2, &single.moment2);
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
    struct tensors plain;
    struct tensors copied;

    (void)threads;
    (void)context;
    for (int i = 0; i < 2; i++) {
        struct adam_step step = {.lr = 0.01F,
                                 .beta1 = 0.9F,
                                 .beta2 = 0.95F,
                                 .eps = 1e-8F,
                                 .weight_decay = 0.1F,
                                 .grad_scale = 0.3F,
                                 .update = 4};
        tensors_make(&plain, 9001);
        tensors_make(&copied, 9001);
        fill_gradients(&plain.grad, 5);
        fill_gradients(&copied.grad, 5);
        memset(copy, 0x55, copy_bytes);
        assert_int_equal(ops->adam(plain.weight.floats, plain.moment1.floats, plain.moment2.floats,
                                   plain.grad.floats, 9001, &step, stream),
                         STATUS_OK);
        step.copy = copy + 1;
        step.copy_type = types[i];
        assert_int_equal(ops->adam(copied.weight.floats, copied.moment1.floats,
                                   copied.moment2.floats, copied.grad.floats, 9001, &step, stream),
                         STATUS_OK);
        guarded_equal(&copied.weight, &plain.weight);
        for (size_t at = 0; at < 9001; at++) {
            const float want = plain.weight.floats[at];
            assert_int_equal(copy[1 + at],
                             types[i] == DTYPE_BF16 ? dtype_to_bf16(want) : dtype_to_fp16(want));
        }
        assert_true(copy[0] == 0x5555 && copy[9002] == 0x5555);
        tensors_free(&plain);
        tensors_free(&copied);
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
        cmocka_unit_test(updates_follow_the_formula_whatever_the_team),
        cmocka_unit_test(the_first_update_moves_by_the_learning_rate),
        cmocka_unit_test(an_elements_bits_do_not_depend_on_its_place),
        cmocka_unit_test(a_copy_gets_the_new_weights_rounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
