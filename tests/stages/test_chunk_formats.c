/* A model in 16 bits is the model in fp32, but for rounding: every gradient of its chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/stages/chunk_rig.h"

/* |a - b| / |b|. */
static double distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0;
    double length = 0.0;

    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        length += (double)b[i] * b[i];
    }
    return sqrt(difference / length);
}

static void check(const struct chunk_rig_case *is, double tolerance)
{
    struct chunk_rig_case plain = *is;
    struct chunk_rig rig;
    struct chunk_rig reference;
    double loss;
    double expected;

    plain.type = DTYPE_FP32;
    chunk_rig_make(&rig, is, ORDER_SPLIT);
    chunk_rig_make(&reference, &plain, ORDER_ONE_BY_ONE);
    loss = chunk_rig_train(&rig);
    expected = chunk_rig_train(&reference);
    if (!(fabs(loss - expected) <= tolerance * expected) || loss == expected) {
        fail_msg("loss %.8f, in fp32 %.8f", loss, expected);
    }
    for (int32_t i = 0; i < rig.params.count; i++) {
        const struct param *param = &rig.params.table[i];
        double found = distance(param->grad, reference.params.table[i].grad, param->elems);

        if (!(found <= tolerance) || found == 0.0) {
            fail_msg("%s: a gradient %.3g away from that of fp32", param->name, found);
        }
    }
    if (rig.head.gradient != NULL) {
        assert_true(distance(rig.head.gradient, reference.head.gradient, rig.head.elems) <=
                    tolerance);
    }
    chunk_rig_free(&rig);
    chunk_rig_free(&reference);
}

/*
 * Weights, activations and gradients are rounded at some twenty places between the tokens and a
 * gradient; each adds an error of half a unit in the last place, 2⁻⁹ in bf16 and 2⁻¹² in fp16, in a
 * direction of its own, and norms and softmax of so small a model amplify them by two or three.
 */
#define BF16_TOLERANCE (16.0 / 512.0)
#define FP16_TOLERANCE (16.0 / 4096.0)

static void gradients_of_bf16_are_close_to_those_of_fp32(void **state)
{
    const struct chunk_rig_case plain = {.layers = {1, 2}, .chunks = 2, .type = DTYPE_BF16};
    const struct chunk_rig_case untied = {
        .layers = {2, 1}, .chunks = 2, .type = DTYPE_BF16, .untied = true, .dropout = 0.2};

    (void)state;
    check(&plain, BF16_TOLERANCE);
    check(&untied, BF16_TOLERANCE);
}

static void gradients_of_fp16_are_close_to_those_of_fp32(void **state)
{
    const struct chunk_rig_case plain = {.layers = {1, 2}, .chunks = 2, .type = DTYPE_FP16};
    const struct chunk_rig_case untied = {
        .layers = {2, 1}, .chunks = 2, .type = DTYPE_FP16, .untied = true, .dropout = 0.2};

    (void)state;
    check(&plain, FP16_TOLERANCE);
    check(&untied, FP16_TOLERANCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_bf16_are_close_to_those_of_fp32),
        cmocka_unit_test(gradients_of_fp16_are_close_to_those_of_fp32),
    };

    return cmocka_run_group_tests_name("chunk_formats", tests, NULL, NULL);
}
