/* A chunk whose F keeps less has the bits of one that keeps all, in the bytes that a hand counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/stages/chunk_rig.h"

/* Two runs of the same model have the same bits: loss, held-out loss, every gradient. */
static void assert_same(struct chunk_rig *rig, struct chunk_rig *other)
{
    double loss = chunk_rig_train(rig);
    double expected = chunk_rig_train(other);
    double evaluated = chunk_rig_evaluate(rig);

    assert_memory_equal(&loss, &expected, sizeof(loss));
    assert_true(loss > 2.0 && loss < 6.0);
    expected = chunk_rig_evaluate(other);
    assert_memory_equal(&evaluated, &expected, sizeof(loss));
    /* After an evaluation that has used the slots. */
    loss = chunk_rig_train(rig);
    expected = chunk_rig_train(other);
    assert_memory_equal(&loss, &expected, sizeof(loss));
    assert_int_equal(rig->params.count, other->params.count);
    for (int32_t i = 0; i < rig->params.count; i++) {
        const struct param *param = &rig->params.table[i];
        const struct param *same = params_find(&other->params, param->name);
        float largest = 0.0F;

        assert_non_null(same);
        for (size_t e = 0; e < param->elems; e++) {
            largest = param->grad[e] > largest ? param->grad[e] : largest;
        }
        if (memcmp(param->grad, same->grad, param->elems * sizeof(float)) != 0 ||
            !(largest > 0.0F)) {
            fail_msg("the gradient of %s is another, or nothing", param->name);
        }
    }
    if (rig->head.gradient != NULL) {
        assert_memory_equal(rig->head.gradient, other->head.gradient,
                            rig->head.elems * sizeof(float));
    }
}

static void check(const struct chunk_rig_case *is, enum chunk_rig_order order)
{
    struct chunk_rig_case plain = *is;
    struct chunk_rig rig;
    struct chunk_rig reference;

    memset(plain.recompute, 0, sizeof(plain.recompute));
    chunk_rig_make(&rig, is, order);
    chunk_rig_make(&reference, &plain, ORDER_ONE_BY_ONE);
    assert_same(&rig, &reference);
    chunk_rig_free(&rig);
    chunk_rig_free(&reference);
}

static void check_orders(const struct chunk_rig_case *is)
{
    for (int order = 0; order < CHUNK_RIG_ORDERS; order++) {
        check(is, (enum chunk_rig_order)order);
    }
}

static void every_kind_has_the_bits_of_none(void **state)
{
    static const struct chunk_rig_case cases[] = {
        {.layers = {3}, .chunks = 1},
        {.layers = {1, 2, 1}, .chunks = 3},
        {.layers = {2, 0, 1, 0}, .chunks = 4, .untied = true},
        {.layers = {0, 3}, .chunks = 2, .threads = 2},
        {.layers = {1, 2}, .chunks = 2, .type = DTYPE_BF16},
        {.layers = {1, 2}, .chunks = 2, .type = DTYPE_FP16, .threads = 2},
    };

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        for (int kind = RECOMPUTE_NONE; kind <= RECOMPUTE_FULL; kind++) {
            struct chunk_rig_case is = cases[c];

            for (int i = 0; i < CHUNK_RIG_CHUNKS_MOST; i++) {
                is.recompute[i] = (enum recompute)kind;
            }
            check_orders(&is);
        }
    }
}

static void chunks_of_different_kinds_share_a_workspace(void **state)
{
    struct chunk_rig_case is = {
        .layers = {1, 2, 2, 1},
        .chunks = 4,
        .recompute = {RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL},
    };

    (void)state;
    check_orders(&is);
}

/* B 2, T 64, C 32, F 128, 2 heads: N = 128, so that every piece is whole arena lines of 128 bytes.
 * N·C floats are 16,384 bytes, N are 512, N·heads 1,024. */
#define NC    UINT64_C(16384)
#define ROWS  UINT64_C(512)
#define LSE   UINT64_C(1024)
#define QKV   (3 * NC)
#define INNER (4 * NC)

static void expect_bytes(enum dtype type, enum recompute kind, size_t stash, size_t kept,
                         size_t again)
{
    struct chunk_rig_case is = {
        .layers = {2, 3},
        .chunks = 2,
        .hidden = 32,
        .positions = 64,
        .type = type,
        .recompute = {kind, kind},
    };
    struct chunk_rig rig;

    chunk_rig_make(&rig, &is, ORDER_SPLIT);
    assert_int_equal(rig.chunks[0].stash.planned_bytes + rig.chunks[1].stash.planned_bytes, stash);
    assert_int_equal(rig.chunks[0].kept.planned_bytes + rig.chunks[1].kept.planned_bytes, kept);
    assert_int_equal(rig.chunks[0].again.planned_bytes + rig.chunks[1].again.planned_bytes, again);
    chunk_rig_free(&rig);
}

/* Three micro-batches in flight of 5 layers: the outputs of 1 + 3 layers are not sent, the embedding
 * has one, the final norm has one and two numbers a row. Each layer: */
static void stashes_shrink_by_what_is_made_again(void **state)
{
    const size_t costly = QKV + NC + INNER + 4 * ROWS;
    const size_t cheap = NC + NC + LSE + NC + INNER;
    const size_t ends = NC + NC + 2 * ROWS;
    /* dY of each layer: inner, mid, Q|K|V; its input's in 1 + 1 + 2 layers; the final norm's. */
    const size_t dY = 3 * (5 * (INNER + NC + QKV) + 5 * NC);

    (void)state;
    expect_bytes(DTYPE_FP32, RECOMPUTE_NONE, 3 * (5 * (costly + cheap) + 4 * NC + ends), dY, 0);
    expect_bytes(DTYPE_FP32, RECOMPUTE_SELECTIVE, 3 * (5 * costly + 4 * NC + ends), dY, 15 * cheap);
    expect_bytes(DTYPE_FP32, RECOMPUTE_FULL, 3 * ends, dY, 3 * (5 * (costly + cheap) + 4 * NC));
}

/* Half of it in 16 bits, but for means, deviations and log-sum-exps. */
static void stashes_of_16_bits_are_half(void **state)
{
    const size_t costly = (QKV + NC + INNER) / 2 + 4 * ROWS;
    const size_t cheap = (NC + NC + NC + INNER) / 2 + LSE;
    const size_t ends = (NC + NC) / 2 + 2 * ROWS;
    const size_t dY = 3 * (5 * (INNER + NC + QKV) + 5 * NC) / 2;

    (void)state;
    expect_bytes(DTYPE_BF16, RECOMPUTE_NONE, 3 * (5 * (costly + cheap) + 2 * NC + ends), dY, 0);
    expect_bytes(DTYPE_FP16, RECOMPUTE_SELECTIVE, 3 * (5 * costly + 2 * NC + ends), dY, 15 * cheap);
    expect_bytes(DTYPE_BF16, RECOMPUTE_FULL, 3 * ends, dY, 3 * (5 * (costly + cheap) + 2 * NC));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_the_bits_of_none),
        cmocka_unit_test(chunks_of_different_kinds_share_a_workspace),
        cmocka_unit_test(stashes_shrink_by_what_is_made_again),
        cmocka_unit_test(stashes_of_16_bits_are_half),
    };

    return cmocka_run_group_tests_name("recompute", tests, NULL, NULL);
}
