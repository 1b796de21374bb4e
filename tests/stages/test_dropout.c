/* Dropout of the model: the gradients are those of the masked forward, masks are no matter of when and
 * where they are made, and an evaluation has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/rng.h"
#include "tests/stages/chunk_rig.h"

static float *weight_of(const struct param *param)
{
    assert_int_equal(param->type, DTYPE_FP32);
    return param->weight;
}

static float *make_floats(size_t count)
{
    float *floats = calloc(count > 0 ? count : 1, sizeof(*floats));

    assert_non_null(floats);
    return floats;
}

/* The gradient of the whole parameter; a tied embedding's is in two parts. */
static float *gradient_of(const struct chunk_rig *rig, const struct param *param)
{
    float *gradient = make_floats(param->elems);
    bool tied = rig->head.gradient != NULL && strcmp(param->name, "wte.weight") == 0;

    for (size_t i = 0; i < param->elems; i++) {
        gradient[i] = param->grad[i] + (tied ? rig->head.gradient[i] : 0.0F);
    }
    return gradient;
}

static double norm_of(const float *values, size_t count)
{
    double sum = 0.0;

    for (size_t i = 0; i < count; i++) {
        sum += (double)values[i] * values[i];
    }
    return sqrt(sum);
}

/* The loss, as training has it, with `param` moved by `step` along `direction`. */
static double loss_at(struct chunk_rig *rig, const struct param *param, const float *direction,
                      double step)
{
    float *weight = weight_of(param);
    float *before = make_floats(param->elems);
    double loss;

    memcpy(before, weight, param->elems * sizeof(float));
    for (size_t i = 0; i < param->elems; i++) {
        weight[i] = (float)((double)before[i] + step * (double)direction[i]);
    }
    loss = chunk_rig_train(rig);
    memcpy(weight, before, param->elems * sizeof(float));
    free(before);
    return loss;
}

/*
 * The slope along `direction` (length 1), by central differences of fourth order. With h = 0.01 the
 * next term, which grows with h⁴ and was measured at larger h, is some 2e-6. A loss near 3.6 that is
 * made of rounded logits is off by some 1e-7, which comes through as 18 / (12 h) times that: 1.5e-5.
 */
static double slope_along(struct chunk_rig *rig, const struct param *param, const float *direction)
{
    const double h = 0.01;
    double near = loss_at(rig, param, direction, h) - loss_at(rig, param, direction, -h);
    double far = loss_at(rig, param, direction, 2 * h) - loss_at(rig, param, direction, -2 * h);

    return (8 * near - far) / (12 * h);
}

#define SLOPE_TOLERANCE 3e-5

static void check_slope(struct chunk_rig *rig, const struct param *param, const float *gradient,
                        float *direction, const char *which)
{
    double length = norm_of(direction, param->elems);
    double expected = 0.0;
    double slope;

    for (size_t i = 0; i < param->elems; i++) {
        direction[i] = (float)((double)direction[i] / length);
        expected += (double)gradient[i] * (double)direction[i];
    }
    slope = slope_along(rig, param, direction);
    if (!(fabs(slope - expected) <= SLOPE_TOLERANCE)) {
        fail_msg("%s along %s: slope %.8f, the gradient has %.8f", param->name, which, slope,
                 expected);
    }
}

/* Along the gradient itself, where a wrong one shows most, and across. */
static void check_parameter(struct chunk_rig *rig, const struct param *param, uint32_t number)
{
    const struct rng_purpose purpose = {.seed = 77, .site = 998, .layer = number};
    float *gradient = gradient_of(rig, param);
    float *direction = make_floats(param->elems);

    assert_true(norm_of(gradient, param->elems) > 50 * SLOPE_TOLERANCE);
    memcpy(direction, gradient, param->elems * sizeof(float));
    check_slope(rig, param, gradient, direction, "its gradient");
    rng_fill_normal(&purpose, 0, param->elems, 1.0F, direction);
    check_slope(rig, param, gradient, direction, "a random direction");
    free(gradient);
    free(direction);
}

static void check_gradients(double dropout, enum recompute recompute)
{
    struct chunk_rig_case is = {
        .layers = {1, 1},
        .chunks = 2,
        .dropout = dropout,
        .recompute = {recompute, recompute},
    };
    struct chunk_rig rig;

    chunk_rig_make(&rig, &is, ORDER_SPLIT);
    /* Starting weights, whose biases are 0 and whose attention is flat, would hide errors. */
    for (int32_t i = 0; i < rig.params.count; i++) {
        const struct param *param = &rig.params.table[i];
        const struct rng_purpose purpose = {.seed = 5, .site = 997, .layer = (uint32_t)i};
        float *noise = make_floats(param->elems);

        rng_fill_normal(&purpose, 0, param->elems, 0.2F, noise);
        for (size_t e = 0; e < param->elems; e++) {
            weight_of(param)[e] += noise[e];
        }
        free(noise);
    }
    for (int32_t i = 0; i < rig.params.count; i++) {
        (void)chunk_rig_train(&rig);
        check_parameter(&rig, &rig.params.table[i], (uint32_t)i);
    }
    chunk_rig_free(&rig);
}

static void gradients_are_slopes_without_dropout(void **state)
{
    (void)state;
    check_gradients(0.0, RECOMPUTE_NONE);
}

static void gradients_are_slopes_of_the_masked_loss(void **state)
{
    (void)state;
    check_gradients(0.25, RECOMPUTE_NONE);
    check_gradients(0.25, RECOMPUTE_FULL);
}

/* Bits of the gradients of all parameters. */
static void assert_same_gradients(const struct chunk_rig *a, const struct chunk_rig *b)
{
    assert_int_equal(a->params.count, b->params.count);
    for (int32_t i = 0; i < a->params.count; i++) {
        const struct param *param = &a->params.table[i];
        const struct param *other = params_find(&b->params, param->name);

        assert_non_null(other);
        if (memcmp(param->grad, other->grad, param->elems * sizeof(float)) != 0) {
            fail_msg("the gradient of %s is another", param->name);
        }
    }
    if (a->head.gradient != NULL) {
        assert_memory_equal(a->head.gradient, b->head.gradient, a->head.elems * sizeof(float));
    }
}

static void check_masks(const struct chunk_rig_case *is, enum chunk_rig_order order,
                        const struct chunk_rig *reference, double expected)
{
    struct chunk_rig rig;
    double loss;

    chunk_rig_make(&rig, is, order);
    loss = chunk_rig_train(&rig);
    assert_memory_equal(&loss, &expected, sizeof(loss));
    assert_same_gradients(&rig, reference);
    chunk_rig_free(&rig);
}

/* Every cut, order and kind of recompute has the bits of one chunk. */
static void check_all_masks(enum dtype type)
{
    static const struct chunk_rig_case cuts[] = {
        {.layers = {3}, .chunks = 1},
        {.layers = {1, 2}, .chunks = 2},
        {.layers = {1, 0, 1, 1}, .chunks = 4},
    };
    struct chunk_rig_case is = {.layers = {3}, .chunks = 1, .dropout = 0.1, .type = type};
    struct chunk_rig reference;
    double expected;

    chunk_rig_make(&reference, &is, ORDER_ONE_BY_ONE);
    expected = chunk_rig_train(&reference);
    for (size_t c = 0; c < sizeof(cuts) / sizeof(cuts[0]); c++) {
        is = cuts[c];
        is.dropout = 0.1;
        is.type = type;
        for (int kind = RECOMPUTE_NONE; kind <= RECOMPUTE_FULL; kind++) {
            for (int i = 0; i < CHUNK_RIG_CHUNKS_MOST; i++) {
                is.recompute[i] = (enum recompute)kind;
            }
            for (int order = 0; order < CHUNK_RIG_ORDERS; order++) {
                check_masks(&is, (enum chunk_rig_order)order, &reference, expected);
            }
        }
    }
    chunk_rig_free(&reference);
}

/* H05: other micro-batches run between F and the recompute of one. */
static void recompute_and_chunks_have_the_masks_of_one_forward(void **state)
{
    (void)state;
    check_all_masks(DTYPE_FP32);
    check_all_masks(DTYPE_BF16);
    check_all_masks(DTYPE_FP16);
}

static void evaluation_drops_nothing(void **state)
{
    struct chunk_rig_case is = {.layers = {2}, .chunks = 1};
    struct chunk_rig plain;
    struct chunk_rig dropped;
    double evaluated;
    double expected;
    double trained;

    (void)state;
    chunk_rig_make(&plain, &is, ORDER_ONE_BY_ONE);
    is.dropout = 0.5;
    chunk_rig_make(&dropped, &is, ORDER_ONE_BY_ONE);
    expected = chunk_rig_evaluate(&plain);
    evaluated = chunk_rig_evaluate(&dropped);
    assert_memory_equal(&evaluated, &expected, sizeof(expected));
    trained = chunk_rig_train(&plain);
    assert_memory_equal(&trained, &expected, sizeof(expected));
    trained = chunk_rig_train(&dropped);
    assert_true(fabs(trained - expected) > 1e-3);
    evaluated = chunk_rig_evaluate(&dropped);
    assert_memory_equal(&evaluated, &expected, sizeof(expected));
    chunk_rig_free(&plain);
    chunk_rig_free(&dropped);
}

/* The same tokens at another place of the run are dropped by other masks. */
static void masks_are_the_samples_own(void **state)
{
    struct chunk_rig_case is = {.layers = {1}, .chunks = 1, .dropout = 0.2};
    struct chunk_rig rig;
    double first;
    double again;
    double later;

    (void)state;
    chunk_rig_make(&rig, &is, ORDER_ONE_BY_ONE);
    first = chunk_rig_train(&rig);
    again = chunk_rig_train(&rig);
    rig.consumed = 1000;
    later = chunk_rig_train(&rig);
    assert_memory_equal(&first, &again, sizeof(first));
    assert_true(fabs(later - first) > 1e-4);
    chunk_rig_free(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes_without_dropout),
        cmocka_unit_test(gradients_are_slopes_of_the_masked_loss),
        cmocka_unit_test(recompute_and_chunks_have_the_masks_of_one_forward),
        cmocka_unit_test(evaluation_drops_nothing),
        cmocka_unit_test(masks_are_the_samples_own),
    };

    return cmocka_run_group_tests_name("dropout", tests, NULL, NULL);
}
