/* Parameters whose copy in the model has 16 bits: what is kept where, and what is rounded when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "mixedprec/params.h"
#include "tests/mixedprec/params_rig.h"

/* A matrix of 5000 elements, a bias of 7, a layer norm of 40. */
static void make(struct params *params, enum dtype type, int moments, int32_t replicas,
                 int32_t replica)
{
    params_init(params, type, moments);
    params_rig_add(params, "a.weight", 50, 100, &(struct param){.init_value = 0.0F});
    params_rig_add(params, "a.bias", 1, 7, &(struct param){.init_value = 1.003F});
    params_rig_add(params, "ln.weight", 1, 40, &(struct param){.fp32 = true, .init_value = 1.003F});
    params_shard(params, replicas, replica);
    params_rig_place(params);
}

/* By hand; pieces begin at multiples of 128 bytes: 10000 → 10112, 14 → 128, 160 → 256. */
static void memory_is_counted_by_what_is_kept(void **state)
{
    struct params params;

    (void)state;
    make(&params, DTYPE_BF16, 2, 1, 0);
    assert_int_equal(params.weights.planned_bytes, 10112 + 128 + 256);
    assert_int_equal(params.gradients.planned_bytes, 20096 + 128 + 256);
    assert_int_equal(params.main.planned_bytes, 20096 + 128);
    assert_int_equal(params.moments.planned_bytes, 2 * (20096 + 128 + 256));
    assert_int_equal(params.main.used_bytes, params.main.planned_bytes);
    params_release(&params);
    make(&params, DTYPE_FP16, 1, 1, 0);
    assert_int_equal(params.weights.planned_bytes, 10112 + 128 + 256);
    assert_int_equal(params.moments.planned_bytes, 20096 + 128 + 256);
    assert_null(params.table[0].moment2);
    params_release(&params);
    make(&params, DTYPE_FP32, 2, 1, 0);
    assert_int_equal(params.weights.planned_bytes, 20096 + 128 + 256);
    assert_int_equal(params.main.planned_bytes, 0);
    params_release(&params);
}

/* Three replicas: ⌈5000/3⌉ = 1667 up to 1680, the bias with the first, the norm 16 + 16 + 8. */
static void slices_take_main_params_and_moments_off_every_replica(void **state)
{
    static const size_t owned[3][3] = {{1680, 7, 16}, {1680, 0, 16}, {1640, 0, 8}};

    (void)state;
    for (int32_t replica = 0; replica < 3; replica++) {
        struct params params;
        size_t expected = 0;

        make(&params, DTYPE_BF16, 2, 3, replica);
        for (int32_t i = 0; i < 3; i++) {
            assert_true(params.table[i].sliced);
            assert_int_equal(params.table[i].own_elems, owned[replica][i]);
            expected += (owned[replica][i] * 4 + 127) / 128 * 128;
        }
        assert_int_equal(params.table[0].own_first, replica * 1680);
        assert_int_equal(params.moments.planned_bytes, 2 * expected);
        assert_int_equal(params.main.planned_bytes,
                         expected - (owned[replica][2] * 4 + 127) / 128 * 128);
        assert_int_equal(params.gradients.planned_bytes, 20096 + 128 + 256);
        params_release(&params);
    }
}

static void a_tensor_that_is_sliced_already_stays_so(void **state)
{
    struct params params;

    (void)state;
    params_init(&params, DTYPE_FP32, 2);
    params_rig_add(&params, "a.weight", 50, 100, &(struct param){.init_value = 0.0F});
    params_rig_add(&params, "b.weight", 50, 100, &(struct param){.init_value = 0.0F});
    param_slice(&params.table[0], 64, 128);
    params_shard(&params, 1, 0);
    assert_false(params.table[1].sliced);
    params_shard(&params, 2, 1);
    assert_int_equal(params.table[0].own_first, 64);
    assert_int_equal(params.table[0].own_elems, 128);
    assert_int_equal(params.table[1].own_first, 2512);
    assert_int_equal(params.table[1].own_elems, 2488);
    params_release(&params);
}

static void main_params_are_the_copy_itself_where_that_is_fp32(void **state)
{
    struct params params;

    (void)state;
    make(&params, DTYPE_FP32, 2, 2, 1);
    for (int32_t i = 0; i < params.count; i++) {
        assert_ptr_equal(params.table[i].main,
                         (float *)params.table[i].weight + params.table[i].own_first);
    }
    params_release(&params);
    make(&params, DTYPE_BF16, 2, 2, 1);
    assert_int_equal(params.table[0].type, DTYPE_BF16);
    assert_int_equal(params.table[2].type, DTYPE_FP32);
    assert_ptr_equal(params.table[2].main, (float *)params.table[2].weight + 32);
    params_release(&params);
}

/* Numbers around 1, where neighbours are 2^-7 (bf16) or 2^-10 (fp16) apart, and what is nearest. */
static void values_are_put_rounded_into_the_copy_and_exactly_into_what_is_owned(void **state)
{
    static const struct {
        enum dtype type;
        float value;
        float rounded;
    } cases[] = {
        {DTYPE_BF16, 1.0F + 0x1p-8F, 1.0F},
        {DTYPE_BF16, 1.0F + 0x1.8p-8F, 1.0F + 0x1p-7F},
        {DTYPE_BF16, 1.0F + 0x3p-8F, 1.0F + 0x2p-7F},
        {DTYPE_FP16, 1.0F + 0x1p-11F, 1.0F},
        {DTYPE_FP16, 1.0F + 0x1.8p-11F, 1.0F + 0x1p-10F},
        {DTYPE_FP16, 1.0F + 0x3p-11F, 1.0F + 0x2p-10F},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct params params;
        struct param *param = NULL;
        float values[100];

        make(&params, cases[i].type, 2, 2, 1);
        param = &params.table[0];
        for (size_t e = 0; e < 100; e++) {
            values[e] = cases[i].value;
        }
        /* 2512 is the first that this replica owns. */
        assert_int_equal(param_put(param, 2462, 100, values), STATUS_OK);
        for (size_t e = 0; e < param->elems; e++) {
            assert_true(params_rig_at(param->weight, param->type, e) ==
                        (e >= 2462 && e < 2562 ? cases[i].rounded : 0.0F));
        }
        for (size_t e = 0; e < param->own_elems; e++) {
            assert_true(param->main[e] == (e < 50 ? cases[i].value : 0.0F));
        }
        assert_int_equal(param_put(param, 0, 100, values), STATUS_OK);
        assert_true(param->main[50] == 0.0F);
        assert_int_equal(param_put(param, 4900, 100, values), STATUS_OK);
        assert_true(param->main[2387] == 0.0F);
        assert_true(param->main[2388] == cases[i].value && param->main[2487] == cases[i].value);
        params_release(&params);
    }
}

/* One set of one replica against the numbers of fp32. */
static void check_start(const struct params *params, const struct params *plain)
{
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];
        const float *expected = plain->table[i].weight;

        for (size_t e = 0; e < param->elems; e++) {
            assert_true(params_rig_at(param->weight, param->type, e) ==
                        dtype_round(param->type, expected[e]));
        }
        assert_memory_equal(param->main, expected + param->own_first,
                            param->own_elems * sizeof(float));
    }
    assert_true(params_rig_at(params->table[1].weight, params->table[1].type, 3) != 1.003F);
    assert_true(params_rig_at(params->table[2].weight, params->table[2].type, 3) == 1.003F);
}

/* The starting weights are those of fp32, rounded once in the copy and not at all in main params. */
static void starting_weights_are_the_same_numbers_in_every_format(void **state)
{
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_FP16};
    struct params plain;

    (void)state;
    make(&plain, DTYPE_FP32, 2, 1, 0);
    assert_int_equal(params_initialize(&plain, 99), STATUS_OK);
    for (int t = 0; t < 2; t++) {
        for (int32_t replica = 0; replica < 3; replica++) {
            struct params params;

            make(&params, types[t], 2, 3, replica);
            assert_int_equal(params_initialize(&params, 99), STATUS_OK);
            check_start(&params, &plain);
            params_release(&params);
        }
    }
    params_release(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_counted_by_what_is_kept),
        cmocka_unit_test(slices_take_main_params_and_moments_off_every_replica),
        cmocka_unit_test(a_tensor_that_is_sliced_already_stays_so),
        cmocka_unit_test(main_params_are_the_copy_itself_where_that_is_fp32),
        cmocka_unit_test(values_are_put_rounded_into_the_copy_and_exactly_into_what_is_owned),
        cmocka_unit_test(starting_weights_are_the_same_numbers_in_every_format),
    };

    return cmocka_run_group_tests_name("params_types", tests, NULL, NULL);
}
