#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/status.h"
#include "tensor/arena.h"
#include "tensor/device.h"
#include "tensor/gemm.h"
#include "tensor/kernels.h"
#include "tensor/kernels_cpu.h"
#include "tensor/stream.h"

static enum status open_cpu(int threads, enum dtype type, struct device **device_out)
{
    return device_open(device_cpu(), &(struct device_config){.threads = threads, .type = type},
                       device_out);
}

static size_t scratch_of(int threads, enum dtype type)
{
    return device_scratch_bytes(device_cpu(),
                                &(struct device_config){.threads = threads, .type = type});
}

static void the_cpu_opens_with_table_stream_and_variant(void **state)
{
    struct device *device = NULL;

    (void)state;
    assert_int_equal(open_cpu(2, DTYPE_FP32, &device), STATUS_OK);
    assert_ptr_equal(device_kernels(device), kernels_cpu());
    assert_int_equal(stream_threads(device_stream(device)), 2);
    assert_non_null(strstr(device_variant(device), kernels_cpu()->variant));
    assert_non_null(strstr(device_variant(device), "onednn-"));
    device_close(&device);
    assert_null(device);
    device_close(&device);
}

static void a_16_bit_type_has_scratch_for_products_and_fp32_none(void **state)
{
    struct device *device = NULL;

    (void)state;
    assert_int_equal(open_cpu(2, DTYPE_FP32, &device), STATUS_OK);
    assert_int_equal(stream_scratch_floats(device_stream(device)), 0);
    assert_null(stream_scratch(device_stream(device), 1));
    assert_int_equal(scratch_of(2, DTYPE_FP32), 0);
    device_close(&device);
    for (int type = DTYPE_BF16; type < DTYPES; type++) {
        assert_int_equal(open_cpu(2, (enum dtype)type, &device), STATUS_OK);
        assert_int_equal(stream_scratch_floats(device_stream(device)), GEMM_SCRATCH_FLOATS);
        assert_int_equal(scratch_of(2, (enum dtype)type), 2 * GEMM_SCRATCH_FLOATS * sizeof(float));
        device_close(&device);
    }
}

static void memory_is_zeroed_aligned_copied_and_cleared(void **state)
{
    struct device *device = NULL;
    float *tensor = NULL;
    float values[] = {1.0F, 2.0F, 3.0F};
    float back[] = {0.0F, 0.0F, 0.0F};
    void *memory = NULL;

    (void)state;
    assert_int_equal(open_cpu(1, DTYPE_FP32, &device), STATUS_OK);
    assert_int_equal(device_kind(device), DEVICE_CPU);
    assert_true(device_tensors_are_here(device));
    assert_int_equal(device_take(device, DEVICE_TENSORS, "test", 12, &memory), STATUS_OK);
    tensor = memory;
    assert_int_equal((uintptr_t)memory % ARENA_ALIGN_BYTES, 0);
    assert_true(tensor[0] == 0.0F && tensor[2] == 0.0F);
    assert_int_equal(device_copy(device, tensor, values, sizeof(values)), STATUS_OK);
    assert_int_equal(device_copy(device, back, tensor, sizeof(back)), STATUS_OK);
    assert_int_equal(device_wait(device, NULL, 0), STATUS_OK);
    assert_memory_equal(back, values, sizeof(back));
    assert_int_equal(device_zero(device, tensor, 8), STATUS_OK);
    assert_true(tensor[1] == 0.0F && tensor[2] == 3.0F);
    device_give(device, DEVICE_TENSORS, memory, 12);
    assert_int_equal(device_take(device, DEVICE_HOST, "too much", SIZE_MAX / 2, &memory),
                     STATUS_ERR_NO_MEMORY);
    assert_non_null(strstr(status_last()->message, "too much"));
    device_close(&device);
}

static void a_team_size_out_of_range_is_refused(void **state)
{
    struct device *device = NULL;

    (void)state;
    assert_int_equal(open_cpu(0, DTYPE_FP32, &device), STATUS_ERR_REFUSED);
    assert_null(device);
}

/* A table is an array of pointers behind its name. */
static void tables_have_no_empty_slot(void **state)
{
    const char *const variants[] = {"cpu-base", "cpu-v3"};

    (void)state;
    for (size_t v = 0; v < 2; v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);
        if (ops == NULL) {
            continue;
        }
        assert_string_equal(ops->variant, variants[v]);
        for (size_t at = 0; at < sizeof(*ops); at += sizeof(void *)) {
            void *slot = NULL;
            memcpy(&slot, (const unsigned char *)ops + at, sizeof(slot));
            assert_non_null(slot);
        }
    }
}

static void an_unknown_variant_is_not_found(void **state)
{
    (void)state;
    assert_null(kernels_cpu_find("cpu-v9"));
    assert_non_null(kernels_cpu_find("cpu-base"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_opens_with_table_stream_and_variant),
        cmocka_unit_test(a_16_bit_type_has_scratch_for_products_and_fp32_none),
        cmocka_unit_test(memory_is_zeroed_aligned_copied_and_cleared),
        cmocka_unit_test(a_team_size_out_of_range_is_refused),
        cmocka_unit_test(tables_have_no_empty_slot),
        cmocka_unit_test(an_unknown_variant_is_not_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
