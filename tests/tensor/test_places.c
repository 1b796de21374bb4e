/* Kernels that sum: accesses of 16 bytes are for tensors that begin well and rows that are whole packs, and no bit may tell
 * which there were. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "on_each.h"
#include "tensor/kernels.h"
#include "typed.h"

/* Rows in several blocks, columns of several warps. */
#define ROWS 70
#define COLS 1288

/* What one run reads and makes. Of the second the numbers are the first's, and the tensor `shifted` lies an element
 * further on than a boundary. */
struct run {
    struct typed in;
    struct typed shifted;
    void *at;
    struct typed dout;
    struct guarded wide; /* a gradient in fp32 */
    struct typed out;
    struct typed din;
    struct guarded row[2];     /* (ROWS) */
    struct guarded columns[4]; /* (COLS): two that are read, two that are added to */
    struct guarded partials;
};

static void run_make(struct run *r, enum dtype type, size_t shift, size_t partials)
{
    typed_make(&r->in, type, (size_t)ROWS * COLS);
    typed_make(&r->shifted, type, (size_t)ROWS * COLS + shift);
    typed_make(&r->dout, type, (size_t)ROWS * COLS);
    guarded_make(&r->wide, (size_t)ROWS * COLS);
    typed_make(&r->out, type, (size_t)ROWS * COLS);
    typed_make(&r->din, type, (size_t)ROWS * COLS);
    guarded_make(&r->partials, partials);
    typed_fill(&r->in, 1, 2.0F);
    typed_fill(&r->shifted, 9, 2.0F);
    typed_fill(&r->dout, 2, 1.0F);
    guarded_fill(&r->wide, 3, 1.0F);
    for (size_t i = 0; i < 2; i++) {
        guarded_make(&r->row[i], ROWS);
    }
    for (size_t i = 0; i < 4; i++) {
        guarded_make(&r->columns[i], COLS);
        guarded_fill(&r->columns[i], 4 + (uint32_t)i, 1.0F);
    }
    for (size_t i = 0; i < r->in.elems; i++) {
        typed_set(&r->shifted, i + shift, typed_at(&r->in, i));
    }
    r->at = dtype_at(r->shifted.data, type, shift);
}

static void run_free(struct run *r)
{
    typed_free(&r->in);
    typed_free(&r->shifted);
    typed_free(&r->dout);
    guarded_free(&r->wide);
    typed_free(&r->out);
    typed_free(&r->din);
    guarded_free(&r->row[0]);
    guarded_free(&r->row[1]);
    for (size_t i = 0; i < 4; i++) {
        guarded_free(&r->columns[i]);
    }
    guarded_free(&r->partials);
}

typedef enum status (*kernel_fn)(const struct kernel_ops *ops, struct run *r, enum dtype type,
                                 struct stream *stream);

static enum status sum_bias(const struct kernel_ops *ops, struct run *r, enum dtype type,
                            struct stream *stream)
{
    return ops->bias_backward(r->columns[2].floats, r->at, ROWS, COLS, type, stream);
}

static enum status slope_gelu(const struct kernel_ops *ops, struct run *r, enum dtype type,
                              struct stream *stream)
{
    return ops->bias_gelu_backward(r->din.data, r->columns[2].floats, r->dout.data, r->at, ROWS,
                                   COLS, type, stream);
}

static enum status norm_rows(const struct kernel_ops *ops, struct run *r, enum dtype type,
                             struct stream *stream)
{
    TRY(ops->layernorm_forward(r->out.data, r->row[0].floats, r->row[1].floats, r->at,
                               r->columns[0].floats, r->columns[1].floats, ROWS, COLS, 1e-5F, type,
                               stream));
    return ops->layernorm_backward(r->din.data, r->columns[2].floats, r->columns[3].floats,
                                   r->wide.floats, r->dout.data, r->at, r->columns[0].floats,
                                   r->row[0].floats, r->row[1].floats, ROWS, COLS,
                                   r->partials.floats, type, stream);
}

struct place_case {
    kernel_fn kernel;
    enum dtype type;
};

/* What a kernel does not make is NaN in both, and has the same bits. */
static void check_places(const struct kernel_ops *ops, struct stream *stream, int threads,
                         void *context)
{
    const struct place_case *test = context;
    const size_t partials = ops->layernorm_partials(COLS, threads);
    struct run runs[2];

    for (size_t i = 0; i < 2; i++) {
        run_make(&runs[i], test->type, i, partials);
        assert_int_equal(test->kernel(ops, &runs[i], test->type, stream), STATUS_OK);
    }
    typed_equal(&runs[1].out, &runs[0].out);
    typed_equal(&runs[1].din, &runs[0].din);
    guarded_equal(&runs[1].row[0], &runs[0].row[0]);
    guarded_equal(&runs[1].row[1], &runs[0].row[1]);
    guarded_equal(&runs[1].columns[2], &runs[0].columns[2]);
    guarded_equal(&runs[1].columns[3], &runs[0].columns[3]);
    run_free(&runs[0]);
    run_free(&runs[1]);
}

static void check(kernel_fn kernel)
{
    for (int type = 0; type < DTYPES; type++) {
        struct place_case test = {kernel, (enum dtype)type};

        on_each_variant_and_team(check_places, &test);
    }
}

static void the_sum_of_columns_does_not_depend_on_where_the_tensor_begins(void **state)
{
    (void)state;
    check(sum_bias);
}

static void nor_does_the_gradient_of_gelu(void **state)
{
    (void)state;
    check(slope_gelu);
}

static void nor_does_a_layer_norm(void **state)
{
    (void)state;
    check(norm_rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_of_columns_does_not_depend_on_where_the_tensor_begins),
        cmocka_unit_test(nor_does_the_gradient_of_gelu),
        cmocka_unit_test(nor_does_a_layer_norm),
    };

    return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
