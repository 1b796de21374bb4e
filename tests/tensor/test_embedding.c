#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"

#define V 13

struct shape {
    size_t B;
    size_t T;
    size_t C;
};

static const struct shape shapes[] = {{1, 1, 1}, {2, 3, 5}, {3, 7, 33}, {2, 5, 64}, {0, 4, 8}};

struct embedding {
    struct shape shape;
    struct guarded wte;
    struct guarded wpe;
    struct guarded rows;    /* out, or dout */
    struct guarded wte_was; /* what the gradient was before */
    struct guarded wpe_was;
    int32_t tokens[64];
};

static void embedding_make(struct embedding *e, const struct shape *shape)
{
    e->shape = *shape;
    guarded_make(&e->wte, V * shape->C);
    guarded_make(&e->wpe, shape->T * shape->C);
    guarded_make(&e->rows, shape->B * shape->T * shape->C);
    guarded_fill(&e->wte, 1, 1.0F);
    guarded_fill(&e->wpe, 2, 1.0F);
    guarded_copy(&e->wte_was, &e->wte);
    guarded_copy(&e->wpe_was, &e->wpe);
    for (size_t i = 0; i < shape->B * shape->T; i++) {
        e->tokens[i] = (int32_t)(i * i * 7 % V); /* some several times, some never */
    }
}

static void embedding_free(struct embedding *e)
{
    guarded_free(&e->wte);
    guarded_free(&e->wpe);
    guarded_free(&e->rows);
    guarded_free(&e->wte_was);
    guarded_free(&e->wpe_was);
}

static void check_forward(const struct kernel_ops *ops, struct stream *stream, int threads,
                          void *context)
{
    (void)threads;
    (void)context;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape s = shapes[i];
        struct embedding e;
        embedding_make(&e, &s);
        assert_int_equal(ops->embedding_forward(e.rows.floats, e.tokens, e.wte.floats, e.wpe.floats,
                                                s.B, s.T, s.C, stream),
                         STATUS_OK);
        for (size_t at = 0; at < s.B * s.T * s.C; at++) {
            const size_t row = at / s.C;
            const size_t c = at % s.C;
            const float want =
                e.wte.floats[(size_t)e.tokens[row] * s.C + c] + e.wpe.floats[row % s.T * s.C + c];
            assert_true(e.rows.floats[at] == want);
        }
        embedding_free(&e);
    }
}

static void the_output_is_the_words_row_plus_the_positions(void **state)
{
    (void)state;
    on_each_variant_and_team(check_forward, NULL);
}

/* The order of additions is promised, so the naive loop gives the same bits in fp32. */
static void check_backward(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    (void)threads;
    (void)context;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape s = shapes[i];
        struct embedding e;
        embedding_make(&e, &s);
        guarded_fill(&e.rows, 3, 1.0F);
        assert_int_equal(ops->embedding_backward(e.wte.floats, e.wpe.floats, e.rows.floats,
                                                 e.tokens, s.B, s.T, s.C, V, stream),
                         STATUS_OK);
        for (size_t at = 0; at < s.B * s.T * s.C; at++) {
            const size_t row = at / s.C;
            const size_t c = at % s.C;
            e.wte_was.floats[(size_t)e.tokens[row] * s.C + c] += e.rows.floats[at];
            e.wpe_was.floats[row % s.T * s.C + c] += e.rows.floats[at];
        }
        guarded_equal(&e.wte, &e.wte_was);
        guarded_equal(&e.wpe, &e.wpe_was);
        embedding_free(&e);
    }
}

static void gradients_are_added_in_ascending_rows(void **state)
{
    (void)state;
    on_each_variant_and_team(check_backward, NULL);
}

static void check_range(const struct kernel_ops *ops, struct stream *stream, int threads,
                        void *context)
{
    const struct shape s = {2, 3, 5};
    const int32_t wrong[] = {-1, V, INT32_MAX, INT32_MIN};

    (void)threads;
    (void)context;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct embedding e;
        embedding_make(&e, &s);
        guarded_fill(&e.rows, 3, 1.0F);
        e.tokens[4] = wrong[i];
        assert_int_equal(ops->embedding_backward(e.wte.floats, e.wpe.floats, e.rows.floats,
                                                 e.tokens, s.B, s.T, s.C, V, stream),
                         STATUS_ERR_INVALID);
        assert_non_null(strstr(status_last()->message, "row 4"));
        guarded_equal(&e.wte, &e.wte_was);
        guarded_equal(&e.wpe, &e.wpe_was);
        embedding_free(&e);
    }
}

static void a_token_out_of_range_is_named_and_nothing_written(void **state)
{
    (void)state;
    on_each_variant_and_team(check_range, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_output_is_the_words_row_plus_the_positions),
        cmocka_unit_test(gradients_are_added_in_ascending_rows),
        cmocka_unit_test(a_token_out_of_range_is_named_and_nothing_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
