/* Model copies of which each replica keeps a slice: room, places, and everything that writes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "mixedprec/optimizer.h"
#include "mixedprec/params.h"
#include "tensor/device.h"
#include "tests/mixedprec/params_rig.h"

#define REPLICAS 3

static const enum dtype types[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};

/* A table of 3000 elements, then of a layer a norm of 40, a matrix of 5000, a bias of 7. */
static void make(struct params *params, enum dtype type, int32_t replicas, int32_t replica,
                 bool scatters)
{
    params_init(params, type, 2);
    params_rig_add(params, "table", 30, 100, &(struct param){.init_value = 0.0F});
    params_rig_add(params, "norm", 1, 40, &(struct param){.fp32 = true, .init_value = 1.003F});
    params_rig_add(params, "matrix", 50, 100, &(struct param){.by_layer = true});
    params_rig_add(params, "bias", 1, 7, &(struct param){.by_layer = true, .init_value = 1.003F});
    params_shard(params, replicas, replica);
    if (scatters) {
        params_scatter(params, replicas);
    }
    params_rig_place(params);
}

/* By hand: ⌈5000/3⌉ = 1667 up to 1680, of which the last replica has 1640; the bias is the first
 * one's. Pieces begin at multiples of 128 bytes. */
static void every_replica_has_room_for_the_largest_slice_at_the_same_place(void **state)
{
    static const size_t owned[REPLICAS] = {1680, 1680, 1640};
    static const size_t bytes[] = {12032 + 256 + 6784 + 128, 6016 + 256 + 3456 + 128,
                                   6016 + 256 + 3456 + 128};

    (void)state;
    for (int t = 0; t < 3; t++) {
        for (int32_t replica = 0; replica < REPLICAS; replica++) {
            struct params params;
            const unsigned char *begin = NULL;

            make(&params, types[t], REPLICAS, replica, true);
            begin = params.weights.memory;
            assert_int_equal(params.weights.planned_bytes, bytes[t]);
            assert_int_equal(params.weights.used_bytes, bytes[t]);
            assert_false(params.table[0].scattered);
            assert_false(params.table[1].scattered);
            assert_true(params.table[2].scattered);
            assert_true(params.table[3].scattered);
            assert_int_equal(params.table[2].own_elems, owned[replica]);
            assert_int_equal(params.table[3].own_elems, replica == 0 ? 7 : 0);
            assert_int_equal((const unsigned char *)params.table[3].weight - begin, bytes[t] - 128);
            assert_ptr_equal(param_own_weight(&params.table[2]), params.table[2].weight);
            assert_ptr_equal(param_own_weight(&params.table[0]),
                             dtype_at(params.table[0].weight, types[t], params.table[0].own_first));
            params_release(&params);
        }
    }
}

static void one_replica_scatters_nothing(void **state)
{
    struct params params;

    (void)state;
    make(&params, DTYPE_FP32, 1, 0, true);
    for (int32_t i = 0; i < params.count; i++) {
        assert_false(params.table[i].scattered);
    }
    assert_int_equal(params.weights.planned_bytes, 12032 + 256 + 20096 + 128);
    params_release(&params);
}

/* What this replica has of the copy is that of a set which has all of it. */
static void assert_slices_of(const struct params *params, const struct params *whole)
{
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];
        const struct param *expected = &whole->table[i];

        for (size_t e = 0; e < param->own_elems; e++) {
            assert_true(params_rig_at(param_own_weight(param), param->type, e) ==
                        params_rig_at(expected->weight, param->type, param->own_first + e));
            assert_true(param->main[e] == expected->main[e]);
        }
    }
}

static void starting_weights_are_slices_of_the_same_numbers(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++) {
        for (int32_t replica = 0; replica < REPLICAS; replica++) {
            struct params params;
            struct params whole;

            make(&params, types[t], REPLICAS, replica, true);
            make(&whole, types[t], REPLICAS, replica, false);
            assert_int_equal(params_initialize(&params, 99), STATUS_OK);
            assert_int_equal(params_initialize(&whole, 99), STATUS_OK);
            assert_true(params_rig_at(whole.table[2].weight, types[t], 4999) != 0.0F);
            assert_slices_of(&params, &whole);
            params_release(&params);
            params_release(&whole);
        }
    }
}

/* Of the second replica, which owns 1680 to 3359: stretches before, across either edge, behind. */
static void values_are_put_where_they_are_owned_and_nowhere_else(void **state)
{
    static const size_t firsts[] = {0, 1630, 1680, 3310, 3360, 4900};
    float values[100];

    (void)state;
    for (size_t e = 0; e < 100; e++) {
        values[e] = 1.0F + (float)e * 0x1p-4F; /* of few bits: exact in every format up to 8 */
    }
    for (int t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
            struct params params;
            struct param *param = NULL;

            make(&params, types[t], REPLICAS, 1, true);
            param = &params.table[2];
            assert_int_equal(param_put(param, firsts[i], 100, values), STATUS_OK);
            for (size_t e = 0; e < 1680; e++) {
                size_t here = 1680 + e;
                bool put = here >= firsts[i] && here < firsts[i] + 100;
                float expected = put ? values[here - firsts[i]] : 0.0F;

                assert_true(params_rig_at(param->weight, types[t], e) == expected);
                assert_true(param->main[e] == expected);
            }
            /* The bias behind it, which is another replica's. */
            assert_true(params_rig_at(params.table[3].weight, types[t], 0) == 0.0F);
            params_release(&params);
        }
    }
}

static void an_update_has_the_bits_of_a_whole_copy(void **state)
{
    static const struct optimizer_config config = {
        .kind = OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    struct device *device = NULL;

    (void)state;
    assert_int_equal(device_open(device_cpu(),
                                 &(struct device_config){.threads = 2, .type = DTYPE_FP16},
                                 &device),
                     STATUS_OK);
    for (int t = 0; t < 3; t++) {
        struct params sets[2];

        for (int s = 0; s < 2; s++) {
            make(&sets[s], types[t], REPLICAS, 1, s == 0);
            assert_int_equal(params_initialize(&sets[s], 99), STATUS_OK);
            for (size_t e = 0; e < sets[s].table[2].elems; e++) {
                sets[s].table[2].grad[e] = 0.5F - (float)(e % 7);
            }
            assert_int_equal(optimizer_update(&config, &sets[s], device, 1, 0.01, 1.0), STATUS_OK);
        }
        assert_slices_of(&sets[0], &sets[1]);
        params_release(&sets[0]);
        params_release(&sets[1]);
    }
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_replica_has_room_for_the_largest_slice_at_the_same_place),
        cmocka_unit_test(one_replica_scatters_nothing),
        cmocka_unit_test(starting_weights_are_slices_of_the_same_numbers),
        cmocka_unit_test(values_are_put_where_they_are_owned_and_nowhere_else),
        cmocka_unit_test(an_update_has_the_bits_of_a_whole_copy),
    };

    return cmocka_run_group_tests_name("params_scatter", tests, NULL, NULL);
}
