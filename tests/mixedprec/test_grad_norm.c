/* Norms: by hand, and with the same bits whatever is sliced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mixedprec/grad_norm.h"
#include "tensor/rng.h"
#include "tests/mixedprec/norm_rig.h"
#include "tests/mixedprec/params_rig.h"

#define KEYS     3
#define LARGE    ((size_t)71 * 113) /* elements of a.weight */
#define REPLICAS 5

/* The only rank there is. */
static const struct grad_norm_copy only = {.first_shard = true, .replicas = 1};

static void add(struct params *params, const char *name, int64_t rows, int64_t cols, int32_t key)
{
    params_rig_add(params, name, rows, cols, &(struct param){.norm_key = key});
}

static struct device *open_device(int threads)
{
    struct device *device = NULL;

    assert_int_equal(device_open(device_cpu(),
                                 &(struct device_config){.threads = threads, .type = DTYPE_FP32},
                                 &device),
                     STATUS_OK);
    return device;
}

static void norm_is_the_root_of_all_squares_by_key(void **state)
{
    struct norm_rig rig;
    struct params params;
    struct device *device = open_device(1);
    double sums[KEYS] = {0.0, 0.0, 0.0};
    const char *bad = "";

    (void)state;
    params_rig_make_four(&params);
    params.table[0].grad[34] = 3.0F;
    params.table[1].grad[0] = 4.0F;
    params.table[2].grad[5] = -12.0F;
    params.table[3].grad[12] = 84.0F;
    assert_int_equal(
        grad_norm_partials(&params, &only, norm_rig_run(&rig, &params, device), sums, KEYS, &bad),
        STATUS_OK);
    assert_null(bad);
    assert_true(sums[0] == 25.0 && sums[1] == 144.0 && sums[2] == 7056.0);
    assert_true(grad_norm_total(sums, KEYS, 1.0) == 85.0);
    assert_true(grad_norm_total(sums, KEYS, 4.0) == 21.25);
    device_close(&device);
    params_release(&params);
}

static void a_gradient_that_is_not_finite_is_named(void **state)
{
    struct norm_rig rig;
    static const float poison[] = {NAN, INFINITY, -INFINITY};
    struct device *device = open_device(1);

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct params params;
        double sums[KEYS] = {0.0, 0.0, 0.0};
        const char *bad = NULL;

        params_rig_make_four(&params);
        params.table[2].grad[32] = poison[i];
        params.table[3].grad[0] = poison[i];
        assert_int_equal(grad_norm_partials(&params, &only, norm_rig_run(&rig, &params, device),
                                            sums, KEYS, &bad),
                         STATUS_OK);
        assert_non_null(bad);
        assert_string_equal(bad, "b.weight");
        assert_true(isfinite(grad_norm_total(sums, KEYS, 65536.0)) == 0);
        params_release(&params);
    }
    device_close(&device);
}

static void clip_coefficient_binds_only_above_the_bound(void **state)
{
    (void)state;
    assert_true(grad_norm_coefficient(0.9, 1.0) == 1.0);
    assert_true(grad_norm_coefficient(1.0, 1.0) == 1.0);
    assert_true(fabs(grad_norm_coefficient(4.0, 1.0) - 1.0 / 4.000001) < 1e-15);
    assert_true(grad_norm_coefficient(1e30, 0.0) == 1.0);
}

/* What one replica of several has: the same gradients and main params, all of them or its slices. */
static void make_replica(struct params *params, enum dtype type, int32_t replicas, int32_t replica,
                         bool sliced)
{
    params_init(params, type, 2);
    add(params, "a.weight", 71, 113, 0);
    add(params, "a.bias", 1, 113, 0);
    add(params, "b.weight", 3, 11, 1);
    params->table[2].sharded = true;
    add(params, "c.bias", 1, 13, 2);
    if (sliced) {
        params_shard(params, replicas, replica);
    }
    params_rig_place(params);
    for (int32_t i = 0; i < params->count; i++) {
        struct param *param = &params->table[i];
        const struct rng_purpose gradient = {.seed = 5, .site = 1, .layer = (uint32_t)i};
        const struct rng_purpose weight = {.seed = 5, .site = 2, .layer = (uint32_t)i};
        float values[LARGE];

        rng_fill_normal(&gradient, 0, param->elems, 1.0F, param->grad);
        rng_fill_normal(&weight, 0, param->elems, 1.0F, values);
        assert_int_equal(param_put(param, 0, param->elems, values), STATUS_OK);
        /* What other replicas own of a sliced gradient is no sum here. */
        for (size_t e = 0; e < param->elems; e++) {
            if (e < param->own_first || e >= param->own_first + param->own_elems) {
                param->grad[e] = NAN;
            }
        }
    }
}

/* The sum of squares of one key as it should be, without slices, shards or kernels. */
static double naive_square(uint32_t site, int32_t key)
{
    static const struct {
        int32_t key;
        size_t elems;
    } tensors[] = {{0, LARGE}, {0, 113}, {1, 33}, {2, 13}};
    float values[LARGE];
    long double sum = 0.0L;

    for (uint32_t i = 0; i < 4; i++) {
        const struct rng_purpose purpose = {.seed = 5, .site = site, .layer = i};

        rng_fill_normal(&purpose, 0, tensors[i].elems, 1.0F, values);
        for (size_t e = 0; e < tensors[i].elems && tensors[i].key == key; e++) {
            sum += (long double)values[e] * (long double)values[e];
        }
    }
    return (double)sum;
}

/* Of one replica: gradients' sums, then main params' sums. */
static void both_sums(const struct params *params, const struct grad_norm_copy *copy,
                      struct device *device, double sums[2 * KEYS])
{
    struct norm_rig rig;
    const char *bad = "";

    memset(sums, 0, sizeof(double) * 2 * KEYS);
    assert_int_equal(
        grad_norm_partials(params, copy, norm_rig_run(&rig, params, device), sums, KEYS, &bad),
        STATUS_OK);
    assert_null(bad);
    assert_int_equal(
        params_norm_partials(params, copy, norm_rig_run(&rig, params, device), sums + KEYS, KEYS),
        STATUS_OK);
}

static void slices_change_no_bit_and_all_replicas_together_give_the_whole(void **state)
{
    struct device *device = open_device(2);

    (void)state;
    for (int32_t replicas = 1; replicas <= REPLICAS; replicas++) {
        double totals[2 * KEYS] = {0.0};

        for (int32_t replica = 0; replica < replicas; replica++) {
            const struct grad_norm_copy copy = {
                .first_shard = true, .replicas = replicas, .replica = replica};
            double sums[2][2 * KEYS];

            for (int sliced = 0; sliced < 2; sliced++) {
                struct params params;

                make_replica(&params, sliced == 0 ? DTYPE_FP32 : DTYPE_BF16, replicas, replica,
                             sliced != 0);
                both_sums(&params, &copy, device, sums[sliced]);
                params_release(&params);
            }
            assert_memory_equal(sums[0], sums[1], sizeof(sums[0]));
            for (int k = 0; k < 2 * KEYS; k++) {
                totals[k] += sums[0][k];
            }
        }
        for (int k = 0; k < 2 * KEYS; k++) {
            double expected = naive_square(k < KEYS ? 1 : 2, k % KEYS);

            /* Squares are exact, each of 8,136 additions rounds by 2^-53 at most. */
            assert_true(fabs(totals[k] - expected) <= 8136.0 * 0x1p-53 * expected);
        }
    }
    device_close(&device);
}

static void a_shard_that_is_not_the_first_answers_for_what_is_sharded_alone(void **state)
{
    struct norm_rig rig;
    const struct grad_norm_copy copy = {.first_shard = false, .replicas = 1};
    struct device *device = open_device(1);
    struct params params;
    double sums[2 * KEYS];
    const char *bad = NULL;
    int64_t zeros = -1;

    (void)state;
    make_replica(&params, DTYPE_FP32, 1, 0, false);
    both_sums(&params, &copy, device, sums);
    for (int k = 0; k < 2 * KEYS; k++) {
        assert_true(k % KEYS == 1 ? sums[k] > 0.0 : sums[k] == 0.0);
    }
    memset(params.table[0].grad, 0, params.table[0].elems * sizeof(float));
    params.table[2].grad[0] = 0.0F;
    params.table[2].grad[32] = -0.0F;
    assert_int_equal(grad_count_zeros(&params, &copy, norm_rig_run(&rig, &params, device), &zeros),
                     STATUS_OK);
    assert_int_equal(zeros, 2);
    /* Looked at all the same: it would spoil the weights here. */
    params.table[3].grad[4] = INFINITY;
    assert_int_equal(
        grad_norm_partials(&params, &copy, norm_rig_run(&rig, &params, device), sums, KEYS, &bad),
        STATUS_OK);
    assert_string_equal(bad, "c.bias");
    params_release(&params);
    device_close(&device);
}

/* Of 8,023 elements, replica 1 of 3 has 2,688 … 5,375. */
static void a_whole_gradient_is_looked_at_everywhere_and_a_slice_where_it_is_owned(void **state)
{
    struct norm_rig rig;
    static const size_t places[] = {0, 2687, 2688, 5375, 5376, 8022};
    static const bool owned[] = {false, false, true, true, false, false};
    const struct grad_norm_copy copy = {.first_shard = true, .replicas = 3, .replica = 1};
    struct device *device = open_device(1);

    (void)state;
    for (int sliced = 0; sliced < 2; sliced++) {
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            struct params params;
            double sums[KEYS] = {0.0};
            const char *bad = NULL;

            make_replica(&params, DTYPE_FP32, 3, 1, sliced != 0);
            params.table[0].grad[places[i]] = NAN;
            assert_int_equal(grad_norm_partials(&params, &copy, norm_rig_run(&rig, &params, device),
                                                sums, KEYS, &bad),
                             STATUS_OK);
            if (sliced == 0 || owned[i]) {
                assert_non_null(bad);
                assert_string_equal(bad, "a.weight");
            } else {
                assert_null(bad);
            }
            /* Whether it is in the sum says who answers for it. */
            assert_true((isfinite(sums[0]) == 0) == owned[i]);
            params_release(&params);
        }
    }
    device_close(&device);
}

/* A scale of a power of two changes no bit of a norm; any other, the last few. */
static void the_norm_of_a_scaled_loss_is_divided_by_the_scale(void **state)
{
    static const float scales[] = {0x1p-20F, 65536.0F, 0x1p40F, 3.0F};
    struct device *device = open_device(1);
    double norms[5];

    (void)state;
    for (int s = 0; s < 5; s++) {
        float scale = s == 0 ? 1.0F : scales[s - 1];
        struct params params;
        double sums[2 * KEYS];

        make_replica(&params, DTYPE_FP32, 1, 0, false);
        for (int32_t i = 0; i < params.count; i++) {
            for (size_t e = 0; e < params.table[i].elems; e++) {
                params.table[i].grad[e] *= scale;
            }
        }
        both_sums(&params, &only, device, sums);
        norms[s] = grad_norm_total(sums, KEYS, (double)scale);
        params_release(&params);
    }
    assert_true(norms[0] > 80.0 && norms[0] < 100.0); /* √8,182 elements of variance 1 */
    assert_true(norms[1] == norms[0] && norms[2] == norms[0] && norms[3] == norms[0]);
    /* Each gradient was rounded by 2^-24 when it was multiplied by 3. */
    assert_true(fabs(norms[4] - norms[0]) <= 0x1p-24 * norms[0]);
    device_close(&device);
}

/* What replica `copy` counts where every hundredth element of one tensor is zero, and one of another. */
static int64_t count_of(const struct grad_norm_copy *copy, bool sliced, struct device *device)
{
    struct norm_rig rig;
    struct params params;
    int64_t zeros = -1;

    make_replica(&params, DTYPE_FP32, copy->replicas, copy->replica, sliced);
    for (size_t e = 0; e < LARGE; e += 100) {
        params.table[0].grad[e] = 0.0F;
    }
    params.table[3].grad[12] = -0.0F;
    assert_int_equal(grad_count_zeros(&params, copy, norm_rig_run(&rig, &params, device), &zeros),
                     STATUS_OK);
    params_release(&params);
    return zeros;
}

static void zeros_are_counted_once_by_all_replicas_together(void **state)
{
    struct device *device = open_device(2);

    (void)state;
    for (int32_t replicas = 1; replicas <= REPLICAS; replicas++) {
        int64_t totals[2] = {0, 0};

        for (int32_t replica = 0; replica < replicas; replica++) {
            const struct grad_norm_copy copy = {
                .first_shard = true, .replicas = replicas, .replica = replica};

            totals[0] += count_of(&copy, false, device);
            totals[1] += count_of(&copy, true, device);
        }
        assert_int_equal(totals[0], 81 + 1);
        assert_int_equal(totals[1], 81 + 1);
    }
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_is_the_root_of_all_squares_by_key),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_named),
        cmocka_unit_test(clip_coefficient_binds_only_above_the_bound),
        cmocka_unit_test(slices_change_no_bit_and_all_replicas_together_give_the_whole),
        cmocka_unit_test(a_shard_that_is_not_the_first_answers_for_what_is_sharded_alone),
        cmocka_unit_test(a_whole_gradient_is_looked_at_everywhere_and_a_slice_where_it_is_owned),
        cmocka_unit_test(the_norm_of_a_scaled_loss_is_divided_by_the_scale),
        cmocka_unit_test(zeros_are_counted_once_by_all_replicas_together),
    };

    return cmocka_run_group_tests_name("grad_norm", tests, NULL, NULL);
}
