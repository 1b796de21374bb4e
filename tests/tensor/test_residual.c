#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"

/* Additions in a promised order, so the naive loop gives the same bits in fp32. */

static const size_t shapes[][2] = {{1, 1}, {3, 5}, {17, 33}, {4, 768}, {0, 4}};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

enum target {
    TARGET_OWN,
    TARGET_IN,
    TARGET_RESIDUAL
};

static void check_residual(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    const enum target target = *(const enum target *)context;

    (void)threads;
    for (size_t i = 0; i < SHAPES; i++) {
        const size_t elems = shapes[i][0] * shapes[i][1];
        struct guarded own;
        struct guarded in;
        struct guarded residual;
        struct guarded bias;
        struct guarded want;
        guarded_make(&own, elems);
        guarded_make(&in, elems);
        guarded_make(&residual, elems);
        guarded_make(&bias, shapes[i][1]);
        guarded_make(&want, elems);
        guarded_fill(&in, 1, 1.0F);
        guarded_fill(&residual, 2, 1.0F);
        guarded_fill(&bias, 3, 1.0F);
        for (size_t at = 0; at < elems; at++) {
            const float sum = in.floats[at] + bias.floats[at % shapes[i][1]];
            want.floats[at] = residual.floats[at] + sum;
        }
        struct guarded *out = &own;
        if (target != TARGET_OWN) {
            out = target == TARGET_IN ? &in : &residual;
        }
        assert_int_equal(ops->bias_residual_forward(out->floats, in.floats, bias.floats,
                                                    residual.floats, shapes[i][0], shapes[i][1],
                                                    stream),
                         STATUS_OK);
        guarded_equal(out, &want);
        guarded_free(&own);
        guarded_free(&in);
        guarded_free(&residual);
        guarded_free(&bias);
        guarded_free(&want);
    }
}

static void the_output_is_residual_plus_input_and_bias(void **state)
{
    enum target target = TARGET_OWN;

    (void)state;
    on_each_variant_and_team(check_residual, &target);
}

static void the_output_may_be_an_operand(void **state)
{
    enum target targets[] = {TARGET_IN, TARGET_RESIDUAL};

    (void)state;
    on_each_variant_and_team(check_residual, &targets[0]);
    on_each_variant_and_team(check_residual, &targets[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_output_is_residual_plus_input_and_bias),
        cmocka_unit_test(the_output_may_be_an_operand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
