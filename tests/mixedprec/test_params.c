#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mixedprec/grad_norm.h"
#include "mixedprec/optimizer.h"
#include "mixedprec/params.h"

/* The only rank there is. */
static const struct grad_norm_copy only = {.first_shard = true, .first_replica = true};

static void add(struct params *params, const char *name, int64_t rows, int64_t cols, int32_t key)
{
    struct param param = {
        .rows = rows,
        .cols = cols,
        .decays = rows > 1,
        .norm_key = key,
        .init_std = rows > 1 ? 0.02F : 0.0F,
        .init_value = 1.0F,
        .site = 7,
        .layer = (uint32_t)key,
    };

    (void)snprintf(param.name, sizeof(param.name), "%s", name);
    assert_int_equal(params_add(params, &param), STATUS_OK);
}

static void make(struct params *params)
{
    memset(params, 0, sizeof(*params));
    add(params, "a.weight", 5, 7, 0);
    add(params, "a.bias", 1, 7, 0);
    add(params, "b.weight", 3, 11, 1);
    add(params, "c.bias", 1, 13, 2);
    params_measure(params);
    assert_int_equal(params_place(params), STATUS_OK);
}

static void test_tensors_lie_apart_and_begin_at_zero_gradient(void **state)
{
    struct params params;

    (void)state;
    make(&params);
    assert_int_equal(params.elems, 35 + 7 + 33 + 13);
    for (int32_t i = 0; i < params.count; i++) {
        for (size_t e = 0; e < params.table[i].elems; e++) {
            assert_true(params.table[i].grad[e] == 0.0F);
            params.table[i].weight[e] = (float)i;
        }
    }
    for (int32_t i = 0; i < params.count; i++) {
        for (size_t e = 0; e < params.table[i].elems; e++) {
            assert_true(params.table[i].weight[e] == (float)i);
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
    make(&params);
    params_initialize(&params, 1234);
    memset(&other, 0, sizeof(other));
    add(&other, "b.weight", 3, 11, 1);
    params_measure(&other);
    assert_int_equal(params_place(&other), STATUS_OK);
    params_initialize(&other, 1234);
    assert_memory_equal(other.table[0].weight, params.table[2].weight, 33 * sizeof(float));
    assert_true(params.table[1].weight[3] == 1.0F);
    params_initialize(&other, 1235);
    assert_true(other.table[0].weight[0] != params.table[2].weight[0]);
    params_release(&params);
    params_release(&other);
}

static void test_norm_is_the_root_of_all_squares_by_key(void **state)
{
    struct params params;
    struct device *device = NULL;
    double sums[3] = {0.0, 0.0, 0.0};
    const char *bad = "";

    (void)state;
    make(&params);
    assert_int_equal(device_open(DEVICE_CPU, 1, &device), STATUS_OK);
    params.table[0].grad[34] = 3.0F;
    params.table[1].grad[0] = 4.0F;
    params.table[2].grad[5] = -12.0F;
    params.table[3].grad[12] = 84.0F;
    assert_int_equal(grad_norm_partials(&params, &only, device, sums, 3, &bad), STATUS_OK);
    assert_null(bad);
    assert_true(sums[0] == 25.0 && sums[1] == 144.0 && sums[2] == 7056.0);
    assert_true(grad_norm_total(sums, 3) == 85.0);
    device_close(&device);
    params_release(&params);
}

static void test_a_gradient_that_is_not_finite_is_named(void **state)
{
    static const float poison[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct params params;
        struct device *device = NULL;
        double sums[3] = {0.0, 0.0, 0.0};
        const char *bad = NULL;

        make(&params);
        assert_int_equal(device_open(DEVICE_CPU, 1, &device), STATUS_OK);
        params.table[2].grad[32] = poison[i];
        params.table[3].grad[0] = poison[i];
        assert_int_equal(grad_norm_partials(&params, &only, device, sums, 3, &bad), STATUS_OK);
        assert_non_null(bad);
        assert_string_equal(bad, "b.weight");
        assert_true(isfinite(grad_norm_total(sums, 3)) == 0);
        device_close(&device);
        params_release(&params);
    }
}

static void test_clip_coefficient_binds_only_above_the_bound(void **state)
{
    (void)state;
    assert_true(grad_norm_coefficient(0.9, 1.0) == 1.0);
    assert_true(grad_norm_coefficient(1.0, 1.0) == 1.0);
    assert_true(fabs(grad_norm_coefficient(4.0, 1.0) - 1.0 / 4.000001) < 1e-15);
    assert_true(grad_norm_coefficient(1e30, 0.0) == 1.0);
}

/* H10: with zero gradients one step of lr 0.1 and decay 0.1 multiplies matrices by 0.99, exactly,
 * and leaves every one-dimensional parameter as it was. */
static void test_weight_decay_touches_matrices_only(void **state)
{
    struct params params;
    struct params before;
    struct device *device = NULL;
    const struct optimizer_config config = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

    (void)state;
    make(&params);
    make(&before);
    params_initialize(&params, 3);
    params_initialize(&before, 3);
    assert_int_equal(device_open(DEVICE_CPU, 1, &device), STATUS_OK);
    assert_int_equal(optimizer_update(&config, &params, device, 1, 0.1, 1.0), STATUS_OK);
    for (int32_t i = 0; i < params.count; i++) {
        const struct param *param = &params.table[i];

        for (size_t e = 0; e < param->elems; e++) {
            float old = before.table[i].weight[e];

            if (param->decays) {
                assert_true(fabs((double)param->weight[e] - 0.99 * old) <=
                            6e-8 * fabs((double)old));
            } else {
                assert_true(param->weight[e] == old);
            }
        }
    }
    device_close(&device);
    params_release(&params);
    params_release(&before);
}

/* Against Adam in double, written out for one number. */
static void test_adam_follows_the_formula_over_several_updates(void **state)
{
    struct params params;
    struct device *device = NULL;
    const struct optimizer_config config = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    double weight = 0.5;
    double m = 0.0;
    double v = 0.0;

    (void)state;
    make(&params);
    assert_int_equal(device_open(DEVICE_CPU, 1, &device), STATUS_OK);
    params.table[0].weight[17] = 0.5F;
    for (int t = 1; t <= 5; t++) {
        double grad = 0.3 * t - 0.7;
        double scaled = grad * 0.25;

        params.table[0].grad[17] = (float)grad;
        assert_int_equal(optimizer_update(&config, &params, device, t, 0.01, 0.25), STATUS_OK);
        m = 0.9 * m + 0.1 * scaled;
        v = 0.95 * v + 0.05 * scaled * scaled;
        weight -= 0.01 * 0.1 * weight;
        weight -= 0.01 * (m / (1.0 - pow(0.9, t))) / (sqrt(v / (1.0 - pow(0.95, t))) + 1e-8);
        assert_true(fabs(params.table[0].weight[17] - weight) < 2e-7);
    }
    device_close(&device);
    params_release(&params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_lie_apart_and_begin_at_zero_gradient),
        cmocka_unit_test(test_starting_weights_depend_on_site_layer_and_seed_alone),
        cmocka_unit_test(test_norm_is_the_root_of_all_squares_by_key),
        cmocka_unit_test(test_a_gradient_that_is_not_finite_is_named),
        cmocka_unit_test(test_clip_coefficient_binds_only_above_the_bound),
        cmocka_unit_test(test_weight_decay_touches_matrices_only),
        cmocka_unit_test(test_adam_follows_the_formula_over_several_updates),
    };

    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
