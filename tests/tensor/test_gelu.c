#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "on_each.h"
#include "tensor/kernels.h"
#include "tolerance.h"
#include "typed.h"

static const size_t shapes[][2] = {{1, 1}, {3, 7}, {5, 64}, {2, 65}, {17, 200}, {3, 520}, {0, 8}};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

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
    enum dtype type;
    size_t rows;
    size_t F;
    struct typed out;
    struct typed pre;
    struct typed bias;
    struct typed dout;
    struct typed din;
    struct guarded dbias;
};

static void case_make(struct gelu_case *c, enum dtype type, size_t rows, size_t F)
{
    c->type = type;
    c->rows = rows;
    c->F = F;
    typed_make(&c->out, type, rows * F);
    typed_make(&c->pre, type, rows * F);
    typed_make(&c->bias, type, F);
    typed_make(&c->dout, type, rows * F);
    typed_make(&c->din, type, rows * F);
    guarded_make(&c->dbias, F);
    typed_fill(&c->pre, 1, 6.0F);
    typed_fill(&c->bias, 2, 1.0F);
    typed_fill(&c->dout, 3, 1.0F);
    guarded_fill(&c->dbias, 4, 1.0F);
}

static void case_free(struct gelu_case *c)
{
    typed_free(&c->out);
    typed_free(&c->pre);
    typed_free(&c->bias);
    typed_free(&c->dout);
    typed_free(&c->din);
    guarded_free(&c->dbias);
}

static void run_case(const struct kernel_ops *ops, struct stream *stream, struct gelu_case *c)
{
    assert_int_equal(ops->bias_gelu_forward(c->out.data, c->pre.data, c->bias.data, c->rows, c->F,
                                            c->type, stream),
                     STATUS_OK);
    assert_int_equal(ops->bias_gelu_backward(c->din.data, c->dbias.floats, c->dout.data,
                                             c->pre.data, c->rows, c->F, c->type, stream),
                     STATUS_OK);
}

/* `check` finds the type in its context. */
static void on_each_type(on_each_fn check)
{
    for (int type = 0; type < DTYPES; type++) {
        enum dtype context = (enum dtype)type;
        on_each_variant_and_team(check, &context);
    }
}

static void check_kept(const struct typed *kept, size_t i, double want, double allowed,
                       const char *what)
{
    const double error = fabs((double)typed_at(kept, i) - want);

    if (!(error <= tolerance_kept(kept->type, want, allowed))) {
        fail_msg("%s[%zu] in %s: expected %.9g, off by %.3g", what, i, dtype_text(kept->type), want,
                 error);
    }
}

/* What is kept of pre decides on out and din, what is kept of din on dbias. */
static void check_shape(const struct kernel_ops *ops, struct stream *stream, enum dtype type,
                        size_t rows, size_t F)
{
    struct gelu_case c;
    struct typed was;
    struct guarded dbias_was;
    double *dbias = calloc(F, sizeof(*dbias));

    assert_non_null(dbias);
    case_make(&c, type, rows, F);
    typed_copy(&was, &c.pre);
    guarded_copy(&dbias_was, &c.dbias);
    run_case(ops, stream, &c);
    for (size_t f = 0; f < F; f++) {
        dbias[f] = (double)dbias_was.floats[f];
        for (size_t i = f; i < rows * F; i += F) {
            const float sum = typed_at(&was, i) + typed_at(&c.bias, f);
            const double pre = (double)dtype_round(type, sum);

            assert_true((double)typed_at(&c.pre, i) == pre);
            check_kept(&c.out, i, gelu(pre), 2e-6, "out");
            check_kept(&c.din, i, (double)typed_at(&c.dout, i) * gelu_slope(pre), 1e-6, "din");
            dbias[f] += (double)typed_at(&c.din, i);
        }
    }
    guarded_close(&c.dbias, dbias, 1e-6 * (double)(rows + 1), "dbias");
    case_free(&c);
    typed_free(&was);
    guarded_free(&dbias_was);
    free(dbias);
}

static void check_shapes(const struct kernel_ops *ops, struct stream *stream, int threads,
                         void *context)
{
    const enum dtype type = *(const enum dtype *)context;

    (void)threads;
    for (size_t s = 0; s < SHAPES; s++) {
        check_shape(ops, stream, type, shapes[s][0], shapes[s][1]);
    }
}

static void test_both_directions_equal_the_double_precision_loops(void **state)
{
    (void)state;
    on_each_type(check_shapes);
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

static void check_far(const struct kernel_ops *ops, struct stream *stream, int threads,
                      void *context)
{
    const enum dtype type = *(const enum dtype *)context;
    /* pre, gelu, slope */
    static const float far[][3] = {{1e4F, 1e4F, 1.0F},   {-1e4F, 0.0F, 0.0F},  {40.0F, 40.0F, 1.0F},
                                   {-40.0F, 0.0F, 0.0F}, {1e15F, 1e15F, 1.0F}, {-1e15F, 0.0F, 0.0F},
                                   {0.0F, 0.0F, 0.5F},   {-7.0F, 0.0F, 0.0F}};

    (void)threads;
    for (size_t i = 0; i < sizeof(far) / sizeof(*far); i++) {
        struct gelu_case c;
        const float want = dtype_round(type, far[i][1]);

        if (fabs((double)far[i][0]) > dtype_largest(type)) {
            continue;
        }
        case_make(&c, type, 1, 1);
        typed_set(&c.pre, 0, far[i][0]);
        typed_set(&c.bias, 0, 0.0F);
        typed_set(&c.dout, 0, 1.0F);
        run_case(ops, stream, &c);
        assert_true(fabsf(typed_at(&c.out, 0) - want) <= 1e-7F * fabsf(want) + 1e-9F);
        assert_true(fabsf(typed_at(&c.din, 0) - far[i][2]) <= 1e-7F);
        case_free(&c);
    }
}

static void test_far_arguments_give_the_limits(void **state)
{
    (void)state;
    on_each_type(check_far);
}

static void check_not_finite(const struct kernel_ops *ops, struct stream *stream, int threads,
                             void *context)
{
    const enum dtype type = *(const enum dtype *)context;
    const float bad[] = {NAN, INFINITY, -INFINITY};

    (void)threads;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct gelu_case c;

        case_make(&c, type, 2, 70);
        typed_set(&c.pre, 69, bad[i]);
        run_case(ops, stream, &c);
        assert_true(!isfinite(typed_at(&c.out, 69)));
        assert_true(!isfinite(typed_at(&c.din, 69)));
        assert_true(!isfinite(c.dbias.floats[69]));
        assert_true(isfinite(typed_at(&c.out, 68)) && isfinite(c.dbias.floats[68]));
        case_free(&c);
    }
}

static void test_what_is_not_finite_stays_visible(void **state)
{
    (void)state;
    on_each_type(check_not_finite);
}

struct team_case {
    enum dtype type;
    struct gelu_case alone[SHAPES]; /* of the team of one */
};

static void check_teams(const struct kernel_ops *ops, struct stream *stream, int threads,
                        void *context)
{
    struct team_case *test = context;

    for (size_t s = 0; s < SHAPES; s++) {
        struct gelu_case *alone = &test->alone[s];
        struct gelu_case team;

        case_make(&team, test->type, shapes[s][0], shapes[s][1]);
        run_case(ops, stream, &team);
        if (threads == 1) {
            *alone = team;
            continue;
        }
        typed_equal(&team.out, &alone->out);
        typed_equal(&team.din, &alone->din);
        guarded_equal(&team.dbias, &alone->dbias);
        case_free(&team);
        if (threads == ON_EACH_MOST_THREADS) {
            case_free(alone);
        }
    }
}

static void test_a_team_of_any_size_gives_the_same_bits(void **state)
{
    struct team_case test;

    (void)state;
    for (int type = 0; type < DTYPES; type++) {
        test.type = (enum dtype)type;
        on_each_variant_and_team(check_teams, &test);
    }
}

static void check_replaced(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    const enum dtype type = *(const enum dtype *)context;
    struct gelu_case apart;

    (void)threads;
    case_make(&apart, type, 5, 130);
    run_case(ops, stream, &apart);
    guarded_fill(&apart.dbias, 4, 1.0F);
    assert_int_equal(ops->bias_gelu_backward(apart.dout.data, apart.dbias.floats, apart.dout.data,
                                             apart.pre.data, 5, 130, type, stream),
                     STATUS_OK);
    typed_equal(&apart.dout, &apart.din);
    case_free(&apart);
}

static void test_the_input_gradient_may_replace_the_output_gradient(void **state)
{
    (void)state;
    on_each_type(check_replaced);
}

/* Pieces of a row and of the whole tensor begin at different places: no bit may tell. */
static void check_recomputed(const struct kernel_ops *ops, struct stream *stream, int threads,
                             void *context)
{
    const enum dtype type = *(const enum dtype *)context;

    (void)threads;
    for (size_t s = 0; s < SHAPES; s++) {
        struct gelu_case c;
        struct typed again;

        case_make(&c, type, shapes[s][0], shapes[s][1]);
        run_case(ops, stream, &c);
        typed_make(&again, type, c.out.elems);
        assert_int_equal(ops->gelu_forward(again.data, c.pre.data, c.pre.elems, type, stream),
                         STATUS_OK);
        typed_equal(&again, &c.out);
        typed_free(&again);
        case_free(&c);
    }
}

static void test_what_is_computed_again_has_the_same_bits(void **state)
{
    (void)state;
    on_each_type(check_recomputed);
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
        cmocka_unit_test(test_what_is_computed_again_has_the_same_bits),
    };

    return cmocka_run_group_tests_name("gelu", tests, NULL, NULL);
}
