#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "on_each.h"
#include "tensor/kernels.h"
#include "typed.h"

enum {
    V = 13,
    TYPES = 3,
    MOST_ROWS = 1150
};

struct shape {
    size_t B;
    size_t T;
    size_t C;
};

/* The last ones have more columns than a block of a 16-bit format, and more rows than a block of CUDA looks
 * through at once. */
static const struct shape shapes[] = {{1, 1, 1}, {2, 3, 5},    {3, 7, 33}, {2, 5, 64},
                                      {0, 4, 8}, {1, 2, 1500}, {5, 230, 3}};

struct embedding {
    struct shape shape;
    enum dtype type;
    struct typed wte;
    struct typed wpe;
    struct typed wtt;
    struct guarded out;
    struct typed dout;
    struct guarded dwte;
    struct guarded dwpe;
    struct guarded dwtt;
    struct guarded dwte_want; /* what the gradients were before, then what they must be */
    struct guarded dwpe_want;
    struct guarded dwtt_want;
    int32_t *tokens; /* MOST_ROWS */
    int32_t *types;  /* likewise */
};

static void embedding_make(struct embedding *e, const struct shape *shape, enum dtype type)
{
    const size_t C = shape->C;

    e->shape = *shape;
    e->type = type;
    e->tokens = buffer_take(MOST_ROWS * sizeof(*e->tokens));
    e->types = buffer_take(MOST_ROWS * sizeof(*e->types));
    typed_make(&e->wte, type, V * C);
    typed_make(&e->wpe, type, shape->T * C);
    typed_make(&e->wtt, type, TYPES * C);
    guarded_make(&e->out, shape->B * shape->T * C);
    typed_make(&e->dout, type, shape->B * shape->T * C);
    guarded_make(&e->dwte, V * C);
    guarded_make(&e->dwpe, shape->T * C);
    guarded_make(&e->dwtt, TYPES * C);
    typed_fill(&e->wte, 1, 1.0F);
    typed_fill(&e->wpe, 2, 1.0F);
    typed_fill(&e->wtt, 4, 1.0F);
    typed_fill(&e->dout, 3, 1.0F);
    guarded_fill(&e->dwte, 5, 1.0F);
    guarded_fill(&e->dwpe, 6, 1.0F);
    guarded_fill(&e->dwtt, 7, 1.0F);
    guarded_copy(&e->dwte_want, &e->dwte);
    guarded_copy(&e->dwpe_want, &e->dwpe);
    guarded_copy(&e->dwtt_want, &e->dwtt);
    for (size_t i = 0; i < shape->B * shape->T; i++) {
        e->tokens[i] = (int32_t)(i * i * 7 % V); /* some several times, some never */
        e->types[i] = (int32_t)(i % 5 % 2);      /* the last one never */
    }
}

static void embedding_free(struct embedding *e)
{
    typed_free(&e->wte);
    typed_free(&e->wpe);
    typed_free(&e->wtt);
    guarded_free(&e->out);
    typed_free(&e->dout);
    guarded_free(&e->dwte);
    guarded_free(&e->dwpe);
    guarded_free(&e->dwtt);
    guarded_free(&e->dwte_want);
    guarded_free(&e->dwpe_want);
    guarded_free(&e->dwtt_want);
    buffer_give(e->tokens);
    buffer_give(e->types);
}

/* Shard `index` of `count`: parts of ceil(V / count) tokens, the last ones with less or none. */
static struct embedding_shape shard_of(const struct shape *s, size_t index, size_t count)
{
    size_t part = (V + count - 1) / count;
    size_t first = index * part < V ? index * part : V;
    size_t end = first + part < V ? first + part : V;

    return (struct embedding_shape){s->B, s->T, s->C, end - first, first, V, TYPES};
}

static float word_of(const struct embedding *e, size_t row, size_t c)
{
    return typed_at(&e->wte, (size_t)e->tokens[row] * e->shape.C + c);
}

static float position_of(const struct embedding *e, size_t row, size_t c)
{
    return typed_at(&e->wpe, row % e->shape.T * e->shape.C + c);
}

static void on_each_type(on_each_fn check)
{
    for (int type = 0; type < DTYPES; type++) {
        enum dtype context = (enum dtype)type;
        on_each_variant_and_team(check, &context);
    }
}

static void check_forward(const struct kernel_ops *ops, struct stream *stream, int threads,
                          void *context)
{
    const enum dtype type = *(const enum dtype *)context;

    (void)threads;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape s = shapes[i];
        const struct embedding_shape whole = shard_of(&s, 0, 1);
        struct embedding e;

        embedding_make(&e, &s, type);
        assert_int_equal(ops->embedding_forward(e.out.floats, e.tokens, NULL, e.wte.data,
                                                e.wpe.data, NULL, &whole, type, stream),
                         STATUS_OK);
        for (size_t at = 0; at < e.out.elems; at++) {
            const float want =
                word_of(&e, at / s.C, at % s.C) + position_of(&e, at / s.C, at % s.C);
            assert_true(e.out.floats[at] == want);
        }
        embedding_free(&e);
    }
}

static void the_output_is_the_words_row_plus_the_positions(void **state)
{
    (void)state;
    on_each_type(check_forward);
}

/* The order of additions is promised, so the naive loop gives the same bits in fp32. */
static void add_to_rows(struct guarded *want, const int32_t *ids, int32_t count,
                        const struct embedding *e)
{
    for (size_t at = 0; at < e->dout.elems; at++) {
        const int32_t id = ids[at / e->shape.C];
        if (id >= 0 && id < count) {
            want->floats[(size_t)id * e->shape.C + at % e->shape.C] += typed_at(&e->dout, at);
        }
    }
}

static void add_words(struct embedding *e)
{
    add_to_rows(&e->dwte_want, e->tokens, V, e);
}

static void add_positions(struct embedding *e)
{
    for (size_t at = 0; at < e->dout.elems; at++) {
        const size_t row = at / e->shape.C;
        e->dwpe_want.floats[row % e->shape.T * e->shape.C + at % e->shape.C] +=
            typed_at(&e->dout, at);
    }
}

static void add_types(struct embedding *e)
{
    add_to_rows(&e->dwtt_want, e->types, TYPES, e);
}

static void check_gradients(const struct embedding *e)
{
    guarded_equal(&e->dwte, &e->dwte_want);
    guarded_equal(&e->dwpe, &e->dwpe_want);
    guarded_equal(&e->dwtt, &e->dwtt_want);
}

static void check_backward(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    const enum dtype type = *(const enum dtype *)context;

    (void)threads;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct embedding_shape whole = shard_of(&shapes[i], 0, 1);
        struct embedding e;

        embedding_make(&e, &shapes[i], type);
        assert_int_equal(ops->embedding_backward(e.dwte.floats, e.dwpe.floats, NULL, e.dout.data,
                                                 e.tokens, NULL, &whole, type, stream),
                         STATUS_OK);
        add_words(&e);
        add_positions(&e);
        check_gradients(&e);
        embedding_free(&e);
    }
}

static void gradients_are_added_in_ascending_rows(void **state)
{
    (void)state;
    on_each_type(check_backward);
}

static const size_t shard_counts[] = {1, 2, 3, 4, V + 2};

#define SHARD_COUNTS (sizeof(shard_counts) / sizeof(shard_counts[0]))

/* The sum over the shards is exact: the shard that has the token gives all three rows. */
static void check_shards_forward(const struct kernel_ops *ops, struct stream *stream, int threads,
                                 void *context)
{
    const enum dtype type = *(const enum dtype *)context;
    const struct shape s = {3, 7, 33};

    (void)threads;
    for (size_t i = 0; i < SHARD_COUNTS; i++) {
        struct embedding e;
        struct guarded sum;

        embedding_make(&e, &s, type);
        guarded_make(&sum, e.out.elems);
        memset(sum.floats, 0, sum.elems * sizeof(float));
        for (size_t index = 0; index < shard_counts[i]; index++) {
            const struct embedding_shape shape = shard_of(&s, index, shard_counts[i]);
            const void *wte = dtype_at(e.wte.data, type, shape.first_token * s.C);

            assert_int_equal(ops->embedding_forward(e.out.floats, e.tokens, e.types, wte,
                                                    e.wpe.data, e.wtt.data, &shape, type, stream),
                             STATUS_OK);
            for (size_t at = 0; at < sum.elems; at++) {
                sum.floats[at] += e.out.floats[at];
            }
        }
        for (size_t at = 0; at < sum.elems; at++) {
            const size_t row = at / s.C;
            const size_t c = at % s.C;
            const float placed = word_of(&e, row, c) + position_of(&e, row, c);

            assert_true(sum.floats[at] ==
                        placed + typed_at(&e.wtt, (size_t)e.types[row] * s.C + c));
        }
        guarded_free(&sum);
        embedding_free(&e);
    }
}

static void the_sum_over_shards_is_word_plus_position_plus_type(void **state)
{
    (void)state;
    on_each_type(check_shards_forward);
}

/* Every shard adds to the tables that all have; together they add to the word table once. */
static void check_shards_backward(const struct kernel_ops *ops, struct stream *stream, int threads,
                                  void *context)
{
    const enum dtype type = *(const enum dtype *)context;
    const struct shape s = {3, 7, 33};

    (void)threads;
    for (size_t i = 0; i < SHARD_COUNTS; i++) {
        struct embedding e;

        embedding_make(&e, &s, type);
        for (size_t index = 0; index < shard_counts[i]; index++) {
            const struct embedding_shape shape = shard_of(&s, index, shard_counts[i]);

            assert_int_equal(ops->embedding_backward(e.dwte.floats + shape.first_token * s.C,
                                                     e.dwpe.floats, e.dwtt.floats, e.dout.data,
                                                     e.tokens, e.types, &shape, type, stream),
                             STATUS_OK);
            add_positions(&e);
            add_types(&e);
        }
        add_words(&e);
        check_gradients(&e);
        embedding_free(&e);
    }
}

static void shards_add_to_their_words_and_to_all_positions_and_types(void **state)
{
    (void)state;
    on_each_type(check_shards_backward);
}

static void check_refused(const struct kernel_ops *ops, struct stream *stream, struct embedding *e,
                          const char *named)
{
    /* A shard: a token of another one is fine, one of none is not. */
    const struct embedding_shape shape = shard_of(&e->shape, 1, 2);

    assert_int_equal(ops->embedding_backward(e->dwte.floats, e->dwpe.floats, e->dwtt.floats,
                                             e->dout.data, e->tokens, e->types, &shape, e->type,
                                             stream),
                     STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, named));
    assert_non_null(strstr(status_last()->message, "row 4"));
    check_gradients(e);
}

/* On CUDA nobody is told: every other row is added, and nothing written beside the tables. */
static void check_left_out(const struct kernel_ops *ops, struct stream *stream, struct embedding *e)
{
    const struct embedding_shape whole = shard_of(&e->shape, 0, 1);

    assert_int_equal(ops->embedding_backward(e->dwte.floats, e->dwpe.floats, e->dwtt.floats,
                                             e->dout.data, e->tokens, e->types, &whole, e->type,
                                             stream),
                     STATUS_OK);
    add_words(e);
    add_positions(e);
    add_types(e);
    check_gradients(e);
}

static void check_wrong(const struct kernel_ops *ops, struct stream *stream, struct embedding *e,
                        const char *named)
{
    if (strncmp(ops->variant, "cuda", 4) == 0) {
        check_left_out(ops, stream, e);
    } else {
        check_refused(ops, stream, e, named);
    }
}

static void check_range(const struct kernel_ops *ops, struct stream *stream, int threads,
                        void *context)
{
    const struct shape s = {2, 3, 5};
    const int32_t wrong_tokens[] = {-1, V, INT32_MAX, INT32_MIN};
    const int32_t wrong_types[] = {-1, TYPES, INT32_MAX, INT32_MIN};

    (void)threads;
    (void)context;
    for (size_t i = 0; i < sizeof(wrong_tokens) / sizeof(wrong_tokens[0]); i++) {
        struct embedding e;

        embedding_make(&e, &s, DTYPE_FP32);
        e.types[4] = wrong_types[i];
        check_wrong(ops, stream, &e, "token type ");
        e.types[4] = 0;
        e.tokens[4] = wrong_tokens[i];
        check_wrong(ops, stream, &e, "token ");
        embedding_free(&e);
    }
}

static void a_token_or_type_out_of_range_is_named_or_left_out(void **state)
{
    (void)state;
    on_each_variant_and_team(check_range, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_output_is_the_words_row_plus_the_positions),
        cmocka_unit_test(gradients_are_added_in_ascending_rows),
        cmocka_unit_test(the_sum_over_shards_is_word_plus_position_plus_type),
        cmocka_unit_test(shards_add_to_their_words_and_to_all_positions_and_types),
        cmocka_unit_test(a_token_or_type_out_of_range_is_named_or_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
