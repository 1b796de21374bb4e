/* Where a sequence is cut, and a chunk that goes through the slices one after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "stages/model/slices.h"
#include "tests/stages/chunk_rig.h"

/* What position t costs, in the units of slices.h, one at a time. */
static double cost_between(size_t begin, size_t end, size_t C, size_t F)
{
    double cost = 0.0;

    for (size_t t = begin; t < end; t++) {
        cost += 4.0 * (double)C + 2.0 * (double)F + 2.0 * (double)(t + 1);
    }
    return cost;
}

static void check_cut(size_t k, size_t T, size_t C, size_t F)
{
    double whole = cost_between(0, T, C, F);
    struct slices slices;

    slices_cut(&slices, k, T, C, F);
    assert_int_equal(slices.count, k);
    assert_int_equal(slices.first[0], 0);
    assert_int_equal(slices.first[k], T);
    for (size_t i = 1; i <= k; i++) {
        size_t at = slices.first[i];
        double off = fabs(cost_between(0, at, C, F) - whole * (double)i / (double)k);
        double room = cost_between(0, at + 1, C, F) - cost_between(0, at, C, F);

        assert_true(at > slices.first[i - 1]);
        /* Nearest, unless a slice of one position has pushed it on. */
        assert_true(off <= room / 2.0 + 1e-6 || at == slices.first[i - 1] + 1 || at == T - (k - i));
    }
}

static void slices_cost_the_same_as_nearly_as_whole_tokens_allow(void **state)
{
    static const size_t counts[] = {1, 2, 3, 5, 8, 64};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        check_cut(counts[i], 1000, 8, 32);
        check_cut(counts[i], 1024, 768, 3072);
        check_cut(counts[i], 65536, 64, 256);
        check_cut(counts[i], counts[i], 16, 64);
        check_cut(counts[i], counts[i] + 1, 1, 1);
    }
}

/* C 1, F 0: position t costs 4 + 2(t + 1), those before n cost n² + 5n. Of 10 positions, 150, half is 75
 * and nearer to 6 (66) than to 7 (84): both are 9 off, so the earlier. Thirds: 50 is reached at 5 (50)
 * exactly; 100 lies between 7 (84) and 8 (104). */
static void a_cut_that_a_hand_has_made(void **state)
{
    struct slices slices;

    (void)state;
    slices_cut(&slices, 2, 10, 1, 0);
    assert_int_equal(slices.first[1], 6);
    assert_int_equal(slices_longest(&slices), 6);
    slices_cut(&slices, 3, 10, 1, 0);
    assert_int_equal(slices.first[1], 5);
    assert_int_equal(slices.first[2], 8);
}

/* The gradients of two runs side by side: `tolerance` of the largest of each tensor; 0: every bit. */
static void compare_gradients(const struct chunk_rig *rig, const struct chunk_rig *other,
                              double tolerance)
{
    assert_int_equal(rig->params.count, other->params.count);
    for (int32_t i = 0; i < rig->params.count; i++) {
        const struct param *param = &rig->params.table[i];
        const struct param *same = params_find(&other->params, param->name);
        double largest = 0.0;
        double off = 0.0;

        assert_non_null(same);
        for (size_t e = 0; e < param->elems; e++) {
            largest = fmax(largest, fabs((double)same->grad[e]));
            off = fmax(off, fabs((double)param->grad[e] - (double)same->grad[e]));
        }
        if (!(off <= tolerance * largest) || !(largest > 0.0)) {
            fail_msg("the gradient of %s is off by %.3g, where the largest is %.3g", param->name,
                     off, largest);
        }
    }
    for (size_t e = 0; rig->head.gradient != NULL && e < rig->head.elems; e++) {
        assert_true(fabs((double)rig->head.gradient[e] - (double)other->head.gradient[e]) <=
                    tolerance);
    }
}

/* A training, an evaluation that uses the same slots and keys, and a training behind it. */
static void compare(const struct chunk_rig_case *is, enum chunk_rig_order order,
                    const struct chunk_rig_case *other_is, double tolerance)
{
    struct chunk_rig rig;
    struct chunk_rig other;

    chunk_rig_make(&rig, is, order);
    chunk_rig_make(&other, other_is, ORDER_ONE_BY_ONE);
    for (int times = 0; times < 2; times++) {
        assert_true(fabs(chunk_rig_train(&rig) - chunk_rig_train(&other)) <= tolerance);
        compare_gradients(&rig, &other, tolerance);
        assert_true(fabs(chunk_rig_evaluate(&rig) - chunk_rig_evaluate(&other)) <= tolerance);
    }
    chunk_rig_free(&rig);
    chunk_rig_free(&other);
}

/* A sum in another order is off by some 2^-24 a term; 16 bits are rounded once more wherever a product
 * has come out on the other side of a middle, by half a step of their significands. */
static double tolerance_of(enum dtype type)
{
    return type == DTYPE_FP32 ? 2e-6 : type == DTYPE_FP16 ? 0x1p-8 : 0x1p-5;
}

static const struct chunk_rig_case cases[] = {
    {.layers = {3}, .chunks = 1, .positions = 9, .slices = 2},
    {.layers = {1, 2, 1}, .chunks = 3, .positions = 61, .batch = 1, .slices = 3},
    {.layers = {2, 0, 1, 0}, .chunks = 4, .untied = true, .positions = 13, .slices = 5},
    {.layers = {0, 3}, .chunks = 2, .threads = 2, .positions = 50, .slices = 2, .dropout = 0.3},
    {.layers = {1, 2}, .chunks = 2, .type = DTYPE_BF16, .positions = 33, .slices = 3},
    {.layers = {1, 2}, .chunks = 2, .type = DTYPE_FP16, .positions = 20, .slices = 4},
};

static void slices_make_the_gradients_of_the_whole(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct chunk_rig_case whole = cases[c];

        whole.slices = 1;
        for (int order = 0; order < CHUNK_RIG_ORDERS; order++) {
            compare(&cases[c], (enum chunk_rig_order)order, &whole, tolerance_of(whole.type));
        }
    }
}

static void order_and_recompute_change_no_bit(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        for (int i = 0; i < CHUNK_RIG_ORDERS * 3; i++) {
            struct chunk_rig_case is = cases[c];

            for (int chunk = 0; chunk < CHUNK_RIG_CHUNKS_MOST; chunk++) {
                is.recompute[chunk] = (enum recompute)((i / CHUNK_RIG_ORDERS + chunk) % 3);
            }
            compare(&is, (enum chunk_rig_order)(i % CHUNK_RIG_ORDERS), &cases[c], 0.0);
        }
    }
}

/* B 2, T 64, A 32, 5 layers, two slices of which the longer has 34 positions: position t costs
 * 384 + 2(t + 1), those before n cost n² + 385n, all 28736; 14368 lies between 34 (14246) and 35 (14700). */
static void keys_are_kept_whole_and_all_else_for_the_longest_slice(void **state)
{
    static const struct chunk_rig_case is = {
        .layers = {2, 3}, .chunks = 2, .hidden = 32, .positions = 64, .slices = 2};
    const size_t whole = (size_t)2 * 64 * 2 * 32 * sizeof(float);
    struct chunk_rig rig;

    (void)state;
    chunk_rig_make(&rig, &is, ORDER_FORWARD_FIRST);
    assert_int_equal(rig.shape.T, 34);
    for (int i = 0; i < 2; i++) {
        /* Three micro-batches at once, of one their gradients. */
        assert_int_equal(rig.chunks[i].sequence_keys.planned_bytes,
                         3 * (size_t)is.layers[i] * whole);
        assert_int_equal(rig.chunks[i].key_sums.planned_bytes, (size_t)is.layers[i] * whole);
    }
    chunk_rig_free(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_cost_the_same_as_nearly_as_whole_tokens_allow),
        cmocka_unit_test(a_cut_that_a_hand_has_made),
        cmocka_unit_test(slices_make_the_gradients_of_the_whole),
        cmocka_unit_test(order_and_recompute_change_no_bit),
        cmocka_unit_test(keys_are_kept_whole_and_all_else_for_the_longest_slice),
    };

    return cmocka_run_group_tests_name("slices", tests, NULL, NULL);
}
