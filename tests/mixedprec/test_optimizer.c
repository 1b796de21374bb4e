/* Updates of a table of parameters, against the formulas in double and across slices and formats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mixedprec/optimizer.h"
#include "tensor/rng.h"
#include "tests/mixedprec/params_rig.h"

/* Many blocks of a kernel, and no multiple of anything. */
#define LARGE 150001

static const struct optimizer_config adam = {
    .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = {.start = 0.1}};

static const struct optimizer_config sgd = {
    .kind = OPTIMIZER_SGD, .momentum = 0.9, .weight_decay = {.start = 0.1}};

static void add(struct params *params, const char *name, int64_t rows, int64_t cols)
{
    params_rig_add(params, name, rows, cols,
                   &(struct param){.init_value = 1.0F, .layer = (uint32_t)params->count});
}

static void make(struct params *params, enum dtype type, enum optimizer_kind kind, int32_t replicas,
                 int32_t replica)
{
    params_init(params, type, optimizer_moments(kind));
    add(params, "a.weight", 50, 7);
    add(params, "a.bias", 1, 70);
    add(params, "b.weight", 3, 11);
    add(params, "c.bias", 1, 13);
    params_shard(params, replicas, replica);
    params_rig_place(params);
    assert_int_equal(params_initialize(params, 3), STATUS_OK);
}

static struct device *open_device(void)
{
    struct device *device = NULL;

    assert_int_equal(device_open(device_cpu(),
                                 &(struct device_config){.threads = 2, .type = DTYPE_FP32},
                                 &device),
                     STATUS_OK);
    return device;
}

/* H10: with zero gradients one step of lr 0.1 and decay 0.1 multiplies matrices by 0.99, rounded once,
 * and leaves every one-dimensional parameter as it was; each replica does it to its slices. */
static void check_param(const struct param *param, const float *before)
{
    const float *after = param->weight;

    for (size_t e = 0; e < param->elems; e++) {
        bool own = e >= param->own_first && e < param->own_first + param->own_elems;
        double old = before[e];

        if (param->decays && own) {
            assert_true(fabs((double)after[e] - 0.99 * old) <= 1.05 * ldexp(fabs(old), -24));
            assert_true(after[e] != before[e]);
        } else {
            assert_true(after[e] == before[e]);
        }
    }
}

static void check_decay(const struct optimizer_config *config, int32_t replicas)
{
    struct device *device = open_device();
    struct params before;

    make(&before, DTYPE_FP32, config->kind, 1, 0);
    for (int32_t replica = 0; replica < replicas; replica++) {
        struct params params;

        make(&params, DTYPE_FP32, config->kind, replicas, replica);
        assert_int_equal(optimizer_update(config, &params, device, 1, 0.1, 1.0), STATUS_OK);
        for (int32_t i = 0; i < params.count; i++) {
            check_param(&params.table[i], before.table[i].weight);
        }
        params_release(&params);
    }
    params_release(&before);
    device_close(&device);
}

static void weight_decay_touches_matrices_only(void **state)
{
    (void)state;
    for (int32_t replicas = 1; replicas <= 3; replicas++) {
        check_decay(&adam, replicas);
        check_decay(&sgd, replicas);
    }
}

/* Against Adam in double, written out for one number. */
static void adam_follows_the_formula_over_several_updates(void **state)
{
    struct device *device = open_device();
    struct params params;
    float *floats = NULL;
    double weight = 0.5;
    double m = 0.0;
    double v = 0.0;

    (void)state;
    make(&params, DTYPE_FP32, OPTIMIZER_ADAM, 1, 0);
    floats = params.table[0].weight;
    floats[17] = 0.5F;
    for (int t = 1; t <= 5; t++) {
        double grad = 0.3 * t - 0.7;
        double scaled = grad * 0.25;

        params.table[0].grad[17] = (float)grad;
        assert_int_equal(optimizer_update(&adam, &params, device, t, 0.01, 0.25), STATUS_OK);
        m = 0.9 * m + 0.1 * scaled;
        v = 0.95 * v + 0.05 * scaled * scaled;
        weight -= 0.01 * 0.1 * weight;
        weight -= 0.01 * (m / (1.0 - pow(0.9, t))) / (sqrt(v / (1.0 - pow(0.95, t))) + 1e-8);
        assert_true(fabs((double)floats[17] - weight) < 2e-7);
    }
    device_close(&device);
    params_release(&params);
}

/* Against gradient descent in double: one number of a matrix, which decays, one of a bias. */
static void gradient_descent_follows_the_formula_over_several_updates(void **state)
{
    struct device *device = open_device();
    struct params params;
    float *floats[2];
    double weight[2] = {0.5, 0.5};
    double moment[2] = {0.0, 0.0};

    (void)state;
    make(&params, DTYPE_FP32, OPTIMIZER_SGD, 1, 0);
    for (int i = 0; i < 2; i++) {
        floats[i] = params.table[i].weight;
        floats[i][17] = 0.5F;
    }
    for (int t = 1; t <= 5; t++) {
        double grad = 0.3 * t - 0.7;

        params.table[0].grad[17] = (float)grad;
        params.table[1].grad[17] = (float)grad;
        assert_int_equal(optimizer_update(&sgd, &params, device, t, 0.01, 0.25), STATUS_OK);
        for (int i = 0; i < 2; i++) {
            moment[i] = 0.9 * moment[i] + grad * 0.25 + (i == 0 ? 0.1 * weight[i] : 0.0);
            weight[i] -= 0.01 * moment[i];
            assert_true(fabs((double)floats[i][17] - weight[i]) < 2e-7);
            assert_true(fabs((double)params.table[i].moment1[17] - moment[i]) < 4e-7);
        }
    }
    device_close(&device);
    params_release(&params);
}

/* Every update has its own weight decay: without gradients a weight is the product of all. */
static void weight_decay_follows_its_schedule(void **state)
{
    struct optimizer_config config = adam;
    struct device *device = open_device();
    struct params params;
    float *floats = NULL;
    double expected = 0.5;

    (void)state;
    config.weight_decay =
        (struct wd_schedule){.kind = WD_LINEAR, .start = 0.2, .end = 1.0, .updates = 4};
    make(&params, DTYPE_FP32, OPTIMIZER_ADAM, 1, 0);
    floats = params.table[0].weight;
    floats[17] = 0.5F;
    for (int t = 1; t <= 6; t++) {
        static const double decay[] = {0.4, 0.6, 0.8, 1.0, 1.0, 1.0};

        assert_int_equal(optimizer_update(&config, &params, device, t, 0.1, 1.0), STATUS_OK);
        expected *= 1.0 - 0.1 * decay[t - 1];
        /* Factor and product of each update are rounded. */
        assert_true(fabs((double)floats[17] - expected) <= 2.0 * t * 0x1p-24 * expected);
    }
    device_close(&device);
    params_release(&params);
}

/* One large matrix, updated with the same gradients; returns its main params. */
static float *train_large(enum dtype type, const struct optimizer_config *config, int32_t replicas,
                          struct device *device)
{
    float *result = calloc(LARGE, sizeof(float));

    assert_non_null(result);
    for (int32_t replica = 0; replica < replicas; replica++) {
        struct params params;
        struct param *param = NULL;
        const uint16_t *halves = NULL;
        uint16_t *start = calloc(LARGE, sizeof(*start));

        assert_non_null(start);
        params_init(&params, type, optimizer_moments(config->kind));
        add(&params, "large.weight", LARGE, 1);
        params_shard(&params, replicas, replica);
        params_rig_place(&params);
        assert_int_equal(params_initialize(&params, 3), STATUS_OK);
        param = &params.table[0];
        halves = param->weight;
        for (size_t e = 0; e < LARGE && type != DTYPE_FP32; e++) {
            start[e] = halves[e];
        }
        for (int t = 1; t <= 2; t++) {
            const struct rng_purpose purpose = {.seed = 1, .site = 1, .layer = (uint32_t)t};

            rng_fill_normal(&purpose, 0, LARGE, 1.0F, param->grad);
            assert_int_equal(optimizer_update(config, &params, device, t, 0.01, 0.5), STATUS_OK);
        }
        memcpy(result + param->own_first, param->main, param->own_elems * sizeof(float));
        for (size_t e = 0; e < LARGE && type != DTYPE_FP32; e++) {
            /* What another replica owns comes from there. */
            if (e < param->own_first || e >= param->own_first + param->own_elems) {
                assert_int_equal(halves[e], start[e]);
            }
        }
        free(start);
        for (size_t e = 0; e < param->own_elems && type != DTYPE_FP32; e++) {
            uint16_t got = halves[param->own_first + e];

            assert_int_equal(got, type == DTYPE_BF16 ? dtype_to_bf16(param->main[e])
                                                     : dtype_to_fp16(param->main[e]));
        }
        params_release(&params);
    }
    return result;
}

/* Main params never see the format of the copy, nor how many own them, nor blocks. */
static void check_formats(const struct optimizer_config *config)
{
    struct device *device = open_device();
    float *expected = train_large(DTYPE_FP32, config, 1, device);

    for (int type = DTYPE_FP32; type < DTYPES; type++) {
        for (int32_t replicas = 1; replicas <= 3; replicas++) {
            float *got = train_large((enum dtype)type, config, replicas, device);

            assert_memory_equal(got, expected, LARGE * sizeof(float));
            free(got);
        }
    }
    free(expected);
    device_close(&device);
}

static void main_params_have_the_same_bits_in_every_format_and_slicing(void **state)
{
    (void)state;
    check_formats(&adam);
    check_formats(&sgd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weight_decay_touches_matrices_only),
        cmocka_unit_test(adam_follows_the_formula_over_several_updates),
        cmocka_unit_test(gradient_descent_follows_the_formula_over_several_updates),
        cmocka_unit_test(weight_decay_follows_its_schedule),
        cmocka_unit_test(main_params_have_the_same_bits_in_every_format_and_slicing),
    };

    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
