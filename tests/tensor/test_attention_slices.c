#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "attention_case.h"
#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"
#include "tensor/stream.h"
#include "typed.h"

#define MOST_SLICES 5

/* Where a sequence is cut: `first` ends with its length. */
struct cut {
    struct attention_shape shape;
    size_t slices;
    size_t first[MOST_SLICES + 1];
};

/* Beside, at and between the edges of panels of 24, of blocks of 48 and of squares of 8. */
static const struct cut cuts[] = {
    {{1, 1, 1, 1}, 1, {0, 1}},
    {{2, 5, 3, 7}, 5, {0, 1, 2, 3, 4, 5}},
    {{1, 49, 2, 5}, 2, {0, 48, 49}},
    {{1, 96, 1, 128}, 3, {0, 24, 48, 96}},
    {{3, 97, 1, 17}, 3, {0, 31, 71, 97}},
    {{1, 130, 2, 80}, 4, {0, 100, 101, 120, 130}},
    {{1, 256, 1, 64}, 2, {0, 143, 256}},
    {{2, 75, 1, 40}, 2, {0, 1, 75}},
};

static const struct attention_dropout some = {
    .seed = 77, .site = 3, .layer = 5, .threshold = 19661, .first_sample = 1000, .first_head = 2};

/* What one slice has of the whole tensors. */
struct piece {
    struct typed qkv;
    struct typed out;
    struct typed dqkv;
    struct guarded dout;
    struct guarded lse;
};

/* Rows [first, first + n) of each sequence, `columns` long, between whole and part. */
static void move(void *part, void *whole, enum dtype type, const struct cut *cut, size_t slice,
                 size_t columns, bool back)
{
    size_t n = cut->first[slice + 1] - cut->first[slice];
    size_t bytes = n * columns * dtype_bytes(type);

    for (size_t b = 0; b < cut->shape.batch; b++) {
        size_t at = (b * cut->shape.positions + cut->first[slice]) * columns;
        void *here = dtype_at(part, type, b * n * columns);
        void *there = dtype_at(whole, type, at);

        memcpy(back ? there : here, back ? here : there, bytes);
    }
}

static void piece_make(struct piece *piece, const struct attention_case *whole,
                       const struct cut *cut, size_t slice)
{
    size_t C = cut->shape.heads * cut->shape.head_size;
    size_t rows = cut->shape.batch * (cut->first[slice + 1] - cut->first[slice]);
    enum dtype type = whole->qkv.type;

    typed_make(&piece->qkv, type, rows * 3 * C);
    typed_make(&piece->out, type, rows * C);
    typed_make(&piece->dqkv, type, rows * 3 * C);
    guarded_make(&piece->dout, rows * C);
    guarded_make(&piece->lse, rows * cut->shape.heads);
    move(piece->qkv.data, whole->qkv.data, type, cut, slice, 3 * C, false);
    move(piece->dout.floats, whole->dout.floats, DTYPE_FP32, cut, slice, C, false);
}

static void piece_free(struct piece *piece)
{
    typed_free(&piece->qkv);
    typed_free(&piece->out);
    typed_free(&piece->dqkv);
    guarded_free(&piece->dout);
    guarded_free(&piece->lse);
}

static void put_lse(const struct piece *piece, struct attention_case *whole, const struct cut *cut,
                    size_t slice)
{
    size_t n = cut->first[slice + 1] - cut->first[slice];

    for (size_t i = 0; i < cut->shape.batch * cut->shape.heads * n; i++) {
        whole->lse.floats[i / n * cut->shape.positions + cut->first[slice] + i % n] =
            piece->lse.floats[i];
    }
}

/* Forward on each slice in order, `twice` on each as when it is made again, backward in the opposite order;
 * results in the place of those of the whole. */
static void run_slices(const struct kernel_ops *ops, struct attention_case *c,
                       const struct cut *cut, bool twice, struct stream *stream)
{
    size_t C = cut->shape.heads * cut->shape.head_size;
    size_t rows = cut->shape.batch * cut->shape.positions;
    enum dtype type = c->qkv.type;
    struct piece pieces[MOST_SLICES];
    struct guarded workspace;
    struct guarded dkeys;
    struct typed keys;

    guarded_make(&workspace, ops->attention_workspace(&cut->shape, stream_threads(stream)));
    typed_make(&keys, type, rows * 2 * C);
    guarded_make(&dkeys, rows * 2 * C);
    for (size_t i = 0; i < cut->slices; i++) {
        const struct attention_slice slice = {cut->first[i], cut->first[i + 1] - cut->first[i]};

        piece_make(&pieces[i], c, cut, i);
        for (int times = twice ? 2 : 1; times > 0; times--) {
            assert_int_equal(ops->attention_slice_forward(pieces[i].out.data, pieces[i].lse.floats,
                                                          keys.data, pieces[i].qkv.data,
                                                          &cut->shape, &slice, c->dropout,
                                                          workspace.floats, type, stream),
                             STATUS_OK);
        }
        move(pieces[i].out.data, c->out.data, type, cut, i, C, true);
        put_lse(&pieces[i], c, cut, i);
    }
    for (size_t i = cut->slices; i-- > 0;) {
        const struct attention_slice slice = {cut->first[i], cut->first[i + 1] - cut->first[i]};

        assert_int_equal(ops->attention_slice_backward(pieces[i].dqkv.data, dkeys.floats,
                                                       pieces[i].dout.floats, pieces[i].out.data,
                                                       keys.data, pieces[i].qkv.data,
                                                       pieces[i].lse.floats, &cut->shape, &slice,
                                                       c->dropout, workspace.floats, type, stream),
                         STATUS_OK);
        move(pieces[i].dqkv.data, c->dqkv.data, type, cut, i, 3 * C, true);
        piece_free(&pieces[i]);
    }
    typed_free(&keys);
    guarded_free(&dkeys);
    guarded_free(&workspace);
}

struct slices_check {
    const struct attention_dropout *dropout;
    double unit;
};

/* What is checked of the whole against loops in double precision holds for the slices too. Every bit of
 * a query's own is the whole's; dK and dV are added up in another order. */
static void check_cut(const struct kernel_ops *ops, struct stream *stream, const struct cut *cut,
                      enum dtype type, const struct slices_check *check)
{
    size_t C = cut->shape.heads * cut->shape.head_size;
    struct attention_case whole;
    struct attention_case slices;

    attention_case_make(&whole, &cut->shape, type, check->dropout, 1.0F);
    attention_case_make(&slices, &cut->shape, type, check->dropout, 1.0F);
    attention_case_run(ops, &whole, stream);
    run_slices(ops, &slices, cut, false, stream);
    attention_case_compare(ops, &slices, check->unit);
    typed_equal(&slices.out, &whole.out);
    guarded_equal(&slices.lse, &whole.lse);
    for (size_t row = 0; row < cut->shape.batch * cut->shape.positions; row++) {
        assert_memory_equal(dtype_at(slices.dqkv.data, type, row * 3 * C),
                            dtype_at(whole.dqkv.data, type, row * 3 * C), C * dtype_bytes(type));
    }
    if (cut->slices == 1) {
        typed_equal(&slices.dqkv, &whole.dqkv);
    }
    attention_case_free(&whole);
    attention_case_free(&slices);
}

static void check_cuts(const struct kernel_ops *ops, struct stream *stream, int threads,
                       void *context)
{
    for (size_t i = 0; threads < 3 && i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        for (int type = 0; type < DTYPES; type++) {
            check_cut(ops, stream, &cuts[i], (enum dtype)type, context);
        }
    }
}

static void test_slices_equal_the_double_precision_loops_over_the_whole(void **state)
{
    struct slices_check check = {.dropout = NULL, .unit = 1e-6};

    (void)state;
    on_each_variant_and_team(check_cuts, &check);
}

static void test_masks_of_dropout_are_those_of_the_whole(void **state)
{
    struct slices_check check = {.dropout = &some, .unit = 1e-6 / 0.7};

    (void)state;
    on_each_variant_and_team(check_cuts, &check);
}

/* Every two slices that 50 positions can be cut into. */
static void check_each_cut(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    for (size_t at = 1; threads == 1 && at < 50; at++) {
        const struct cut cut = {{1, 50, 1, 16}, 2, {0, at, 50}};

        check_cut(ops, stream, &cut, DTYPE_FP32, context);
    }
}

static void test_a_sequence_can_be_cut_anywhere(void **state)
{
    struct slices_check check = {.dropout = NULL, .unit = 1e-6};

    (void)state;
    on_each_variant_and_team(check_each_cut, &check);
}

static void check_again(const struct kernel_ops *ops, struct stream *stream, int threads,
                        void *context)
{
    const struct cut cut = {{2, 70, 2, 10}, 3, {0, 30, 52, 70}};

    (void)context;
    for (int type = 0; threads == 1 && type < DTYPES; type++) {
        struct attention_case once;
        struct attention_case twice;

        attention_case_make(&once, &cut.shape, (enum dtype)type, &some, 1.0F);
        attention_case_make(&twice, &cut.shape, (enum dtype)type, &some, 1.0F);
        run_slices(ops, &once, &cut, false, stream);
        run_slices(ops, &twice, &cut, true, stream);
        attention_case_equal(&once, &twice);
        attention_case_free(&once);
        attention_case_free(&twice);
    }
}

static void test_a_slice_that_is_made_again_leaves_every_bit_as_it_was(void **state)
{
    (void)state;
    on_each_variant_and_team(check_again, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_equal_the_double_precision_loops_over_the_whole),
        cmocka_unit_test(test_masks_of_dropout_are_those_of_the_whole),
        cmocka_unit_test(test_a_sequence_can_be_cut_anywhere),
        cmocka_unit_test(test_a_slice_that_is_made_again_leaves_every_bit_as_it_was),
    };

    return cmocka_run_group_tests_name("attention_slices", tests, NULL, NULL);
}
