#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "mixedprec/params.h"
#include "tests/mixedprec/params_rig.h"

/* Of an fp32 tensor. */
static float *as_floats(const struct params *params, int32_t i)
{
    assert_int_equal(params->table[i].type, DTYPE_FP32);
    return params->table[i].weight;
}

static void test_tensors_lie_apart_and_begin_at_zero_gradient(void **state)
{
    struct params params;

    (void)state;
    params_rig_make_four(&params);
    assert_int_equal(params.elems, 35 + 7 + 33 + 13);
    for (int32_t i = 0; i < params.count; i++) {
        for (size_t e = 0; e < params.table[i].elems; e++) {
            assert_true(params.table[i].grad[e] == 0.0F);
            as_floats(&params, i)[e] = (float)i;
        }
    }
    for (int32_t i = 0; i < params.count; i++) {
        for (size_t e = 0; e < params.table[i].elems; e++) {
            assert_true(as_floats(&params, i)[e] == (float)i);
        }
    }
    assert_ptr_equal(params_find(&params, "b.weight"), &params.table[2]);
    assert_null(params_find(&params, "b.bias"));
    params_release(&params);
    params_release(&params);
}

static void test_starting_weights_depend_on_site_layer_and_seed_alone(void **state)
{
    struct params params;
    struct params other;

    (void)state;
    params_rig_make_four(&params);
    assert_int_equal(params_initialize(&params, 1234), STATUS_OK);
    memset(&other, 0, sizeof(other));
    params_rig_add(&other, "b.weight", 3, 11, &(struct param){.norm_key = 1, .layer = 1});
    params_rig_place(&other);
    assert_int_equal(params_initialize(&other, 1234), STATUS_OK);
    assert_memory_equal(other.table[0].weight, params.table[2].weight, 33 * sizeof(float));
    assert_true(as_floats(&params, 1)[3] == 1.0F);
    assert_int_equal(params_initialize(&other, 1235), STATUS_OK);
    assert_true(as_floats(&other, 0)[0] != as_floats(&params, 2)[0]);
    params_release(&params);
    params_release(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_lie_apart_and_begin_at_zero_gradient),
        cmocka_unit_test(test_starting_weights_depend_on_site_layer_and_seed_alone),
    };

    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
