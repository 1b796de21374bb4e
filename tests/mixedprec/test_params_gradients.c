/* Gradients of which each replica keeps a slice: room, places, and everything that reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "mixedprec/grad_norm.h"
#include "mixedprec/optimizer.h"
#include "mixedprec/params.h"
#include "tensor/device.h"
#include "tests/mixedprec/norm_rig.h"
#include "tests/mixedprec/params_rig.h"

#define REPLICAS 3
#define MATRIX   1

/* A bias of 40, then a matrix of 5000 whose gradient W alone adds to. */
static void make(struct params *params, int32_t replicas, int32_t replica, bool scatters)
{
    params_init(params, DTYPE_BF16, 2);
    params_rig_add(params, "bias", 1, 40, &(struct param){.norm_key = 1});
    params_rig_add(params, "matrix", 50, 100, &(struct param){.in_w = true});
    params_shard(params, replicas, replica);
    if (scatters) {
        params_scatter_gradients(params, replicas);
    }
    params_rig_place(params);
    assert_int_equal(params_initialize(params, 99), STATUS_OK);
}

/* The sum that all replicas would have, of the slice that is here. */
static void fill(struct params *params)
{
    const struct param *matrix = &params->table[MATRIX];
    float *own = param_own_grad(matrix);

    for (size_t e = 0; e < matrix->own_elems; e++) {
        own[e] = 0.5F * (float)((matrix->own_first + e) % 7) - 1.0F;
    }
}

/* By hand: ⌈5000/3⌉ = 1667 up to 1680, of which the last replica has 1640. Pieces begin at multiples of 128
 * bytes. */
static void every_replica_has_room_for_the_largest_slice_at_the_same_place(void **state)
{
    static const size_t owned[REPLICAS] = {1680, 1680, 1640};

    (void)state;
    for (int32_t replica = 0; replica < REPLICAS; replica++) {
        struct params params;
        const struct param *matrix = NULL;

        make(&params, REPLICAS, replica, true);
        matrix = &params.table[MATRIX];
        assert_int_equal(params.gradients.planned_bytes, 256 + 6784);
        assert_int_equal(params.gradients.used_bytes, 256 + 6784);
        assert_true(matrix->own_grad);
        assert_false(params.table[0].own_grad);
        assert_int_equal(matrix->own_elems, owned[replica]);
        assert_ptr_equal(param_own_grad(matrix), matrix->grad);
        assert_ptr_equal(param_own_grad(&params.table[0]),
                         params.table[0].grad + params.table[0].own_first);
        params_release(&params);
    }
}

static void one_replica_scatters_nothing(void **state)
{
    struct params params;

    (void)state;
    make(&params, 1, 0, true);
    assert_false(params.table[MATRIX].own_grad);
    assert_int_equal(params.gradients.planned_bytes, 256 + 20096);
    params_release(&params);
}

struct seen {
    double sums[2];
    const char *bad;
    int64_t zeros;
};

static void look(const struct params *params, int32_t replica, struct device *device,
                 struct seen *seen)
{
    struct norm_rig rig;
    const struct grad_norm_copy copy = {
        .first_shard = true, .replicas = REPLICAS, .replica = replica};

    *seen = (struct seen){.bad = NULL};
    assert_int_equal(grad_norm_partials(params, &copy, norm_rig_run(&rig, params, device),
                                        seen->sums, 2, &seen->bad),
                     STATUS_OK);
    assert_int_equal(
        grad_count_zeros(params, &copy, norm_rig_run(&rig, params, device), &seen->zeros),
        STATUS_OK);
}

/* Norms, zeros and updates have the bits of a whole gradient, and a bad number is seen in it. */
static void what_reads_a_slice_finds_what_a_whole_gradient_has_there(void **state)
{
    static const struct optimizer_config config = {
        .kind = OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    struct device *device = NULL;

    (void)state;
    assert_int_equal(device_open(device_cpu(),
                                 &(struct device_config){.threads = 2, .type = DTYPE_BF16},
                                 &device),
                     STATUS_OK);
    for (int32_t replica = 0; replica < REPLICAS; replica++) {
        struct params sets[2];
        struct seen seen[2];

        for (int s = 0; s < 2; s++) {
            make(&sets[s], REPLICAS, replica, s == 1);
            fill(&sets[s]);
            look(&sets[s], replica, device, &seen[s]);
            assert_null(seen[s].bad);
            assert_int_equal(optimizer_update(&config, &sets[s], device, 1, 0.01, 1.0), STATUS_OK);
        }
        assert_memory_equal(seen[0].sums, seen[1].sums, sizeof(seen[0].sums));
        assert_true(seen[0].sums[0] > 1.0);
        assert_int_equal(seen[0].zeros, seen[1].zeros);
        assert_memory_equal(sets[0].table[MATRIX].main, sets[1].table[MATRIX].main,
                            sets[0].table[MATRIX].own_elems * sizeof(float));
        sets[1].table[MATRIX].grad[sets[1].table[MATRIX].own_elems - 1] = NAN;
        look(&sets[1], replica, device, &seen[1]);
        assert_string_equal(seen[1].bad, "matrix");
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
        cmocka_unit_test(what_reads_a_slice_finds_what_a_whole_gradient_has_there),
    };

    return cmocka_run_group_tests_name("params_gradients", tests, NULL, NULL);
}
