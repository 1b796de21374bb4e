/* What the GPU's product does beside multiplying: plans, refusals, TF32. The numbers are tests/tensor/test_gemm's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "tensor/cuda/device_cuda.h"
#include "tensor/cuda/gemm_cuda.h"
#include "tensor/device.h"
#include "tensor/gemm.h"
#include "tensor/kernels.h"
#include "tensor/stream.h"
#include "tests/emulated/fake_cublaslt.h"
#include "tests/emulated/fake_cuda.h"

#define FLOATS 4096

/* A GPU with one block of memory, and the host's copy of it. */
struct bench {
    struct device *device;
    float *memory;
    float host[FLOATS];
};

static void bench_make(struct bench *b, bool tf32)
{
    const struct device_config config = {.threads = 1, .tf32 = tf32};
    void *memory = NULL;

    fake_cuda_reset(3);
    assert_int_equal(device_open(device_cuda(), &config, &b->device), STATUS_OK);
    assert_int_equal(device_take(b->device, DEVICE_TENSORS, "test", sizeof(b->host), &memory),
                     STATUS_OK);
    b->memory = memory;
    memset(b->host, 0, sizeof(b->host));
}

static void bench_free(struct bench *b)
{
    device_give(b->device, DEVICE_TENSORS, b->memory, sizeof(b->host));
    device_close(&b->device);
    assert_int_equal(fake_cuda_left(), 0);
    assert_int_equal(fake_cublaslt_left(), 0);
}

static enum status run(struct bench *b, const struct gemm *gemm)
{
    return device_kernels(b->device)->gemm(gemm, device_stream(b->device));
}

static size_t plans(const struct bench *b)
{
    return gemm_cuda_plans(stream_queue(device_stream(b->device))->gemm);
}

/* A at 0, B at 1024, C at 2048, without gaps. */
static struct gemm product(const struct bench *b, enum dtype type, size_t M, size_t N, size_t K)
{
    return (struct gemm){.a_type = type,
                         .b_type = type,
                         .M = M,
                         .N = N,
                         .K = K,
                         .alpha = 1.0F,
                         .a = b->memory,
                         .b = b->memory + 1024,
                         .c = b->memory + 2048,
                         .lda = K,
                         .ldb = N,
                         .ldc = N};
}

static void the_library_is_asked_once_for_a_shape(void **state)
{
    struct bench b;
    struct gemm gemm;
    size_t before;

    (void)state;
    bench_make(&b, false);
    before = fake_cublaslt_asked();
    gemm = product(&b, DTYPE_FP32, 3, 4, 5);
    for (int i = 0; i < 5; i++) {
        gemm.beta = (float)i;
        assert_int_equal(run(&b, &gemm), STATUS_OK);
    }
    gemm.c = b.memory + 3072; /* elsewhere, as well aligned */
    assert_int_equal(run(&b, &gemm), STATUS_OK);
    assert_int_equal(plans(&b), 1);
    gemm.c = b.memory + 3073;
    assert_int_equal(run(&b, &gemm), STATUS_OK);
    assert_int_equal(plans(&b), 2);
    gemm.op_a = GEMM_TRANSPOSED;
    assert_int_equal(run(&b, &gemm), STATUS_OK);
    gemm.K--;
    assert_int_equal(run(&b, &gemm), STATUS_OK);
    assert_int_equal(plans(&b), 4);
    assert_int_equal(fake_cublaslt_asked() - before, 4);
    bench_free(&b);
}

/* More shapes than there is room for, twice: the last ones push others out, and every product is right. */
static void more_shapes_than_plans_work_too(void **state)
{
    struct bench b;
    float found[4];

    (void)state;
    bench_make(&b, false);
    for (size_t i = 0; i < 1024; i++) {
        b.host[i] = 1.0F;
        b.host[1024 + i] = 0.5F;
    }
    assert_int_equal(device_copy(b.device, b.memory, b.host, sizeof(b.host)), STATUS_OK);
    for (int round = 0; round < 2; round++) {
        for (size_t K = 1; K <= GEMM_CUDA_PLANS + 20; K++) {
            const struct gemm gemm = product(&b, DTYPE_FP32, 2, 2, K);

            assert_int_equal(run(&b, &gemm), STATUS_OK);
            assert_int_equal(device_copy(b.device, found, gemm.c, sizeof(found)), STATUS_OK);
            for (int i = 0; i < 4; i++) {
                assert_true(found[i] == 0.5F * (float)K);
            }
        }
    }
    assert_true(plans(&b) > GEMM_CUDA_PLANS + 20);
    bench_free(&b);
}

static void what_the_library_does_not_have_is_named(void **state)
{
    struct bench b;
    struct gemm gemm;

    (void)state;
    bench_make(&b, false);
    gemm = product(&b, DTYPE_BF16, 30, 7, 5);
    fake_cublaslt_refuse_rows(7);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run(&b, &gemm), STATUS_ERR_UNSUPPORTED);
        assert_non_null(
            strstr(status_last()->message, "NN of 30 x 7 x 5 (M, N, K), bf16 x bf16 to fp32"));
        assert_non_null(strstr(status_last()->message,
                               "no algorithm: the functionality requested is not supported"));
    }
    fake_cublaslt_refuse_rows(0);
    assert_int_equal(run(&b, &gemm), STATUS_OK);
    gemm.a_type = DTYPE_FP32;
    assert_int_equal(run(&b, &gemm), STATUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_last()->message, "fp32 x bf16 to fp32"));
    gemm.lda = 4;
    assert_int_equal(run(&b, &gemm), STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, "lda is 4"));
    bench_free(&b);
}

static void a_lost_gpu_fails_the_product(void **state)
{
    struct bench b;
    struct gemm gemm;

    (void)state;
    bench_make(&b, false);
    gemm = product(&b, DTYPE_FP32, 2, 2, 2);
    fake_cuda_abort(fake_cuda_gpu());
    assert_int_equal(run(&b, &gemm), STATUS_ERR_CUDA);
    assert_non_null(strstr(status_last()->message, "failed to execute"));
    bench_free(&b);
}

/* 1 + 2^-11 is 1 or 1 + 2^-10 in TF32, and neither in fp32. */
static void tf32_is_for_who_asks_for_it(void **state)
{
    (void)state;
    for (int tf32 = 0; tf32 < 2; tf32++) {
        struct bench b;
        struct gemm gemm;
        float found = 0.0F;

        bench_make(&b, tf32 == 1);
        assert_int_equal(strstr(device_variant(b.device), "tf32") != NULL, tf32);
        gemm = product(&b, DTYPE_FP32, 1, 1, 1);
        b.host[0] = 1.0F + 0x1p-11F;
        b.host[1024] = 1.0F;
        assert_int_equal(device_copy(b.device, b.memory, b.host, sizeof(b.host)), STATUS_OK);
        assert_int_equal(run(&b, &gemm), STATUS_OK);
        assert_int_equal(device_copy(b.device, &found, gemm.c, sizeof(found)), STATUS_OK);
        assert_int_equal(found == 1.0F + 0x1p-11F, tf32 == 0);
        bench_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_is_asked_once_for_a_shape),
        cmocka_unit_test(more_shapes_than_plans_work_too),
        cmocka_unit_test(what_the_library_does_not_have_is_named),
        cmocka_unit_test(a_lost_gpu_fails_the_product),
        cmocka_unit_test(tf32_is_for_who_asks_for_it),
    };

    return cmocka_run_group_tests_name("gemm_cuda", tests, NULL, NULL);
}
