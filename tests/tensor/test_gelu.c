#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "tensor/kernels.h"
#include "tensor/kernels_cpu.h"
#include "tensor/stream.h"

static const char *const variants[] = {"cpu-v3", "cpu-base"};

static const size_t shapes[][2] = {{1, 1}, {3, 7}, {5, 64}, {2, 65}, {17, 200}, {0, 8}};

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(0.79788456 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double u = 0.79788456 * (x + 0.044715 * x * x * x);
    double t = tanh(u);

    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.79788456 * (1.0 + 3.0 * 0.044715 * x * x);
}

struct gelu_case {
    struct guarded out;
    struct guarded pre;
    struct guarded bias;
    struct guarded dout;
    struct guarded din;
    struct guarded dbias;
};

static void case_make(struct gelu_case *c, size_t rows, size_t F)
{
    guarded_make(&c->out, rows * F);
    guarded_make(&c->pre, rows * F);
    guarded_make(&c->bias, F);
    guarded_make(&c->dout, rows * F);
    guarded_make(&c->din, rows * F);
    guarded_make(&c->dbias, F);
    guarded_fill(&c->pre, 1, 6.0F);
    guarded_fill(&c->bias, 2, 1.0F);
    guarded_fill(&c->dout, 3, 1.0F);
    guarded_fill(&c->dbias, 4, 1.0F);
}

static void case_free(struct gelu_case *c)
{
    guarded_free(&c->out);
    guarded_free(&c->pre);
    guarded_free(&c->bias);
    guarded_free(&c->dout);
    guarded_free(&c->din);
    guarded_free(&c->dbias);
}

static void run_case(const struct kernel_ops *ops, struct gelu_case *c, size_t rows, size_t F,
                     int threads)
{
    struct stream *stream = NULL;

    assert_int_equal(stream_create(threads, &stream), STATUS_OK);
    assert_int_equal(
        ops->bias_gelu_forward(c->out.floats, c->pre.floats, c->bias.floats, rows, F, stream),
        STATUS_OK);
    assert_int_equal(ops->bias_gelu_backward(c->din.floats, c->dbias.floats, c->dout.floats,
                                             c->pre.floats, rows, F, stream),
                     STATUS_OK);
    stream_destroy(&stream);
}

static void check_case(const struct kernel_ops *ops, size_t rows, size_t F)
{
    struct gelu_case c;
    double *pre = calloc(rows * F + 1, sizeof(*pre));
    double *out = calloc(rows * F + 1, sizeof(*out));
    double *din = calloc(rows * F + 1, sizeof(*din));
    double *dbias = calloc(F, sizeof(*dbias));

    assert_non_null(pre);
    assert_non_null(out);
    assert_non_null(din);
    assert_non_null(dbias);
    case_make(&c, rows, F);
    for (size_t f = 0; f < F; f++) {
        dbias[f] = (double)c.dbias.floats[f];
        for (size_t row = 0; row < rows; row++) {
            size_t i = row * F + f;

            /* The sum is what the kernel keeps, rounded; the rest follows from it. */
            pre[i] = (double)(c.pre.floats[i] + c.bias.floats[f]);
            out[i] = gelu(pre[i]);
            din[i] = (double)c.dout.floats[i] * gelu_slope(pre[i]);
            dbias[f] += din[i];
        }
    }
    run_case(ops, &c, rows, F, 1);
    guarded_close(&c.pre, pre, 0.0, "pre");
    guarded_close(&c.out, out, 2e-6, "out");
    guarded_close(&c.din, din, 1e-6, "din");
    guarded_close(&c.dbias, dbias, 1e-6 * (double)(rows + 1), "dbias");
    case_free(&c);
    free(pre);
    free(out);
    free(din);
    free(dbias);
}

static void test_both_directions_equal_the_double_precision_loops(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t s = 0; ops != NULL && s < sizeof(shapes) / sizeof(*shapes); s++) {
            check_case(ops, shapes[s][0], shapes[s][1]);
        }
    }
}

static void test_the_expected_slope_is_the_difference_quotient(void **state)
{
    (void)state;
    for (int i = -96; i < 96; i++) {
        double x = i / 16.0;
        double quotient = (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;

        assert_true(fabs(quotient - gelu_slope(x)) < 1e-8);
    }
}

static void test_far_arguments_give_the_limits(void **state)
{
    /* pre, gelu, slope */
    static const float far[][3] = {{1e4F, 1e4F, 1.0F},   {-1e4F, 0.0F, 0.0F},  {40.0F, 40.0F, 1.0F},
                                   {-40.0F, 0.0F, 0.0F}, {1e15F, 1e15F, 1.0F}, {-1e15F, 0.0F, 0.0F},
                                   {0.0F, 0.0F, 0.5F},   {-7.0F, 0.0F, 0.0F}};

    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t i = 0; ops != NULL && i < sizeof(far) / sizeof(*far); i++) {
            struct gelu_case c;

            case_make(&c, 1, 1);
            c.pre.floats[0] = far[i][0];
            c.bias.floats[0] = 0.0F;
            c.dout.floats[0] = 1.0F;
            run_case(ops, &c, 1, 1, 1);
            assert_true(fabsf(c.out.floats[0] - far[i][1]) <= 1e-7F * fabsf(far[i][1]) + 1e-9F);
            assert_true(fabsf(c.din.floats[0] - far[i][2]) <= 1e-7F);
            case_free(&c);
        }
    }
}

static void test_what_is_not_finite_stays_visible(void **state)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t i = 0; ops != NULL && i < sizeof(bad) / sizeof(*bad); i++) {
            struct gelu_case c;

            case_make(&c, 2, 70);
            c.pre.floats[69] = bad[i];
            run_case(ops, &c, 2, 70, 1);
            assert_true(!isfinite(c.out.floats[69]));
            assert_true(!isfinite(c.din.floats[69]));
            assert_true(!isfinite(c.dbias.floats[69]));
            assert_true(isfinite(c.out.floats[68]) && isfinite(c.dbias.floats[68]));
            case_free(&c);
        }
    }
}

static void test_a_team_of_any_size_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t s = 0; ops != NULL && s < sizeof(shapes) / sizeof(*shapes); s++) {
            struct gelu_case alone;

            case_make(&alone, shapes[s][0], shapes[s][1]);
            run_case(ops, &alone, shapes[s][0], shapes[s][1], 1);
            for (int threads = 2; threads <= 3; threads++) {
                struct gelu_case team;

                case_make(&team, shapes[s][0], shapes[s][1]);
                run_case(ops, &team, shapes[s][0], shapes[s][1], threads);
                guarded_equal(&team.out, &alone.out);
                guarded_equal(&team.din, &alone.din);
                guarded_equal(&team.dbias, &alone.dbias);
                case_free(&team);
            }
            case_free(&alone);
        }
    }
}

static void test_the_input_gradient_may_replace_the_output_gradient(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);
        struct gelu_case apart;
        struct stream *stream = NULL;

        if (ops == NULL) {
            continue;
        }
        case_make(&apart, 5, 130);
        run_case(ops, &apart, 5, 130, 1);
        guarded_fill(&apart.dbias, 4, 1.0F);
        assert_int_equal(stream_create(2, &stream), STATUS_OK);
        assert_int_equal(ops->bias_gelu_backward(apart.dout.floats, apart.dbias.floats,
                                                 apart.dout.floats, apart.pre.floats, 5, 130,
                                                 stream),
                         STATUS_OK);
        stream_destroy(&stream);
        guarded_equal(&apart.dout, &apart.din);
        case_free(&apart);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_expected_slope_is_the_difference_quotient),
        cmocka_unit_test(test_both_directions_equal_the_double_precision_loops),
        cmocka_unit_test(test_far_arguments_give_the_limits),
        cmocka_unit_test(test_what_is_not_finite_stays_visible),
        cmocka_unit_test(test_a_team_of_any_size_gives_the_same_bits),
        cmocka_unit_test(test_the_input_gradient_may_replace_the_output_gradient),
    };

    return cmocka_run_group_tests_name("gelu", tests, NULL, NULL);
}
