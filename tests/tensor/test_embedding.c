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

enum {
    V = 13,
    TYPES = 3
};

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
    struct guarded wtt;
    struct guarded rows;    /* out, or dout */
    struct guarded wte_was; /* what the gradient was before */
    struct guarded wpe_was;
    struct guarded wtt_was;
    int32_t tokens[64];
    int32_t types[64];
};

static void embedding_make(struct embedding *e, const struct shape *shape)
{
    e->shape = *shape;
    guarded_make(&e->wte, V * shape->C);
    guarded_make(&e->wpe, shape->T * shape->C);
    guarded_make(&e->rows, shape->B * shape->T * shape->C);
    guarded_fill(&e->wte, 1, 1.0F);
    guarded_fill(&e->wpe, 2, 1.0F);
    guarded_make(&e->wtt, TYPES * shape->C);
    guarded_fill(&e->wtt, 4, 1.0F);
    guarded_copy(&e->wtt_was, &e->wtt);
    guarded_copy(&e->wte_was, &e->wte);
    guarded_copy(&e->wpe_was, &e->wpe);
    for (size_t i = 0; i < shape->B * shape->T; i++) {
        e->tokens[i] = (int32_t)(i * i * 7 % V); /* some several times, some never */
        e->types[i] = (int32_t)(i % 5 % 2);      /* the last one never */
    }
}

static void embedding_free(struct embedding *e)
{
    guarded_free(&e->wte);
    guarded_free(&e->wpe);
    guarded_free(&e->rows);
    guarded_free(&e->wte_was);
    guarded_free(&e->wpe_was);
    guarded_free(&e->wtt);
    guarded_free(&e->wtt_was);
}

/* Shard `index` of `count`: parts of ceil(V / count) tokens, the last ones with less or none. */
static struct embedding_shape shard_of(const struct shape *s, size_t index, size_t count)
{
    size_t part = (V + count - 1) / count;
    size_t first = index * part < V ? index * part : V;
    size_t end = first + part < V ? first + part : V;

    return (struct embedding_shape){s->B, s->T, s->C, end - first, first, V, TYPES};
}

static void check_forward(const struct kernel_ops *ops, struct stream *stream, int threads,
                          void *context)
{
    (void)threads;
    (void)context;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape s = shapes[i];
        const struct embedding_shape whole = shard_of(&s, 0, 1);
        struct embedding e;

        embedding_make(&e, &s);
        assert_int_equal(ops->embedding_forward(e.rows.floats, e.tokens, NULL, e.wte.floats,
                                                e.wpe.floats, NULL, &whole, stream),
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
        const struct embedding_shape whole = shard_of(&s, 0, 1);
        struct embedding e;

        embedding_make(&e, &s);
        guarded_fill(&e.rows, 3, 1.0F);
        assert_int_equal(ops->embedding_backward(e.wte.floats, e.wpe.floats, NULL, e.rows.floats,
                                                 e.tokens, NULL, &whole, stream),
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

/* The sum over the shards is exact: the shard that has the token gives all three rows. */
static void check_shards_forward(const struct kernel_ops *ops, struct stream *stream, int threads,
                                 void *context)
{
    const struct shape s = {3, 7, 33};
    const size_t counts[] = {1, 2, 3, 4, V + 2};

    (void)threads;
    (void)context;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct embedding e;
        struct guarded sum;

        embedding_make(&e, &s);
        guarded_make(&sum, e.rows.elems);
        memset(sum.floats, 0, sum.elems * sizeof(float));
        for (size_t index = 0; index < counts[i]; index++) {
            const struct embedding_shape shape = shard_of(&s, index, counts[i]);

            assert_int_equal(ops->embedding_forward(e.rows.floats, e.tokens, e.types,
                                                    e.wte.floats + shape.first_token * s.C,
                                                    e.wpe.floats, e.wtt.floats, &shape, stream),
                             STATUS_OK);
            for (size_t at = 0; at < sum.elems; at++) {
                sum.floats[at] += e.rows.floats[at];
            }
        }
        for (size_t at = 0; at < sum.elems; at++) {
            const size_t row = at / s.C;
            const size_t c = at % s.C;
            const float word = e.wte.floats[(size_t)e.tokens[row] * s.C + c];
            const float type = e.wtt.floats[(size_t)e.types[row] * s.C + c];
            const float placed = word + e.wpe.floats[row % s.T * s.C + c];

            assert_true(sum.floats[at] == placed + type);
        }
        guarded_free(&sum);
        embedding_free(&e);
    }
}

static void the_sum_over_shards_is_word_plus_position_plus_type(void **state)
{
    (void)state;
    on_each_variant_and_team(check_shards_forward, NULL);
}

/* Every shard adds to the tables that all have; together they add to the word table once. */
static void check_shards_backward(const struct kernel_ops *ops, struct stream *stream, int threads,
                                  void *context)
{
    const struct shape s = {3, 7, 33};
    const size_t counts[] = {1, 2, 3, 4, V + 2};

    (void)threads;
    (void)context;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct embedding e;

        embedding_make(&e, &s);
        guarded_fill(&e.rows, 3, 1.0F);
        for (size_t index = 0; index < counts[i]; index++) {
            const struct embedding_shape shape = shard_of(&s, index, counts[i]);

            assert_int_equal(ops->embedding_backward(e.wte.floats + shape.first_token * s.C,
                                                     e.wpe.floats, e.wtt.floats, e.rows.floats,
                                                     e.tokens, e.types, &shape, stream),
                             STATUS_OK);
            for (size_t at = 0; at < e.rows.elems; at++) {
                const size_t row = at / s.C;
                const size_t c = at % s.C;

                e.wpe_was.floats[row % s.T * s.C + c] += e.rows.floats[at];
                e.wtt_was.floats[(size_t)e.types[row] * s.C + c] += e.rows.floats[at];
            }
        }
        for (size_t at = 0; at < e.rows.elems; at++) {
            e.wte_was.floats[(size_t)e.tokens[at / s.C] * s.C + at % s.C] += e.rows.floats[at];
        }
        guarded_equal(&e.wte, &e.wte_was);
        guarded_equal(&e.wpe, &e.wpe_was);
        guarded_equal(&e.wtt, &e.wtt_was);
        embedding_free(&e);
    }
}

static void shards_add_to_their_words_and_to_all_positions_and_types(void **state)
{
    (void)state;
    on_each_variant_and_team(check_shards_backward, NULL);
}

static void check_refused(const struct kernel_ops *ops, struct stream *stream, struct embedding *e,
                          const char *named)
{
    /* A shard: a token of another one is fine, one of none is not. */
    const struct embedding_shape shape = shard_of(&e->shape, 1, 2);

    assert_int_equal(ops->embedding_backward(e->wte.floats, e->wpe.floats, e->wtt.floats,
                                             e->rows.floats, e->tokens, e->types, &shape, stream),
                     STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, named));
    assert_non_null(strstr(status_last()->message, "row 4"));
    guarded_equal(&e->wte, &e->wte_was);
    guarded_equal(&e->wpe, &e->wpe_was);
    guarded_equal(&e->wtt, &e->wtt_was);
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

        embedding_make(&e, &s);
        guarded_fill(&e.rows, 3, 1.0F);
        e.types[4] = wrong_types[i];
        check_refused(ops, stream, &e, "token type ");
        e.types[4] = 0;
        e.tokens[4] = wrong_tokens[i];
        check_refused(ops, stream, &e, "token ");
        embedding_free(&e);
    }
}

static void a_token_or_type_out_of_range_is_named_and_nothing_written(void **state)
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
        cmocka_unit_test(a_token_or_type_out_of_range_is_named_and_nothing_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
