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

static void put(const struct bench *b)
{
    assert_int_equal(device_copy(b->device, b->memory, b->host, sizeof(b->host)), STATUS_OK);
}

static void get(struct bench *b)
{
    assert_int_equal(device_copy(b->device, b->host, b->memory, sizeof(b->host)), STATUS_OK);
}

/* Numbers of bf16 behind 1 are 2^-7 apart, and ties go to the even one: (1 + 2^-8) rounded, then + 2^-8 rounded, is 1, but
 * 1 + 2^-8 + 2^-8 rounded once is the number behind 1. */
static void a_bias_is_added_before_the_sum_is_rounded(void **state)
{
    struct bench b;
    struct gemm gemm;
    uint16_t *numbers = NULL;

    (void)state;
    bench_make(&b, false);
    numbers = (uint16_t *)b.host;
    numbers[0] = dtype_to_bf16(1.0F);
    numbers[1] = dtype_to_bf16(0x1p-8F); /* A (1,2), B (2,1) is ones */
    numbers[2048] = dtype_to_bf16(1.0F);
    numbers[2049] = dtype_to_bf16(1.0F);
    numbers[6144] = dtype_to_bf16(0x1p-8F); /* the bias */
    put(&b);
    gemm = product(&b, DTYPE_BF16, 1, 1, 2);
    gemm.c_type = DTYPE_BF16;
    assert_int_equal(
        device_kernels(b.device)->projection_bias(&gemm, b.memory + 3072, device_stream(b.device)),
        STATUS_OK);
    get(&b);
    assert_true(dtype_from_bf16(numbers[4096]) == 1.0F + 0x1p-7F);
    assert_int_equal(fake_cublaslt_epilogues() > 0, 1);
    bench_free(&b);
}

/* Two layers have one plan, and each its own bias; what reads gelu's input asks for it too. */
static void an_epilogue_reads_what_each_call_names(void **state)
{
    struct bench b;
    struct gemm gemm;
    size_t before;

    (void)state;
    bench_make(&b, false);
    for (size_t i = 0; i < 8; i++) {
        b.host[3072 + i] = (float)i;
        b.host[3088 + i] = (float)i * 10.0F;
    }
    put(&b);
    gemm = product(&b, DTYPE_FP32, 2, 8, 4);
    before = fake_cublaslt_epilogues();
    for (size_t layer = 0; layer < 2; layer++) {
        gemm.c = b.memory + 2048 + layer * 64;
        assert_int_equal(device_kernels(b.device)->projection_bias(
                             &gemm, b.memory + 3072 + layer * 16, device_stream(b.device)),
                         STATUS_OK);
    }
    assert_int_equal(plans(&b), 1);
    assert_int_equal(fake_cublaslt_epilogues() - before, 2);
    get(&b);
    for (size_t i = 0; i < 16; i++) {
        assert_true(b.host[2048 + i] == (float)(i % 8));
        assert_true(b.host[2112 + i] == (float)(i % 8) * 10.0F);
    }
    bench_free(&b);
}

/* A at 0, B at 1024, bias at 3072, gelu's input at 3200, dbias at 3400: all that the epilogues make, with N columns. */
static void run_all(struct bench *b, enum dtype type, size_t N)
{
    const struct kernel_ops *ops = device_kernels(b->device);
    struct stream *stream = device_stream(b->device);
    struct gemm gemm = product(b, type, 3, N, 5);

    for (size_t i = 0; i < FLOATS; i++) {
        const float number = (float)((int)(i * 37 % 101) - 50) / 25.0F;

        b->host[i] = number;
        if (type != DTYPE_FP32 && i < 3400) {
            ((uint16_t *)b->host)[2 * i] = dtype_to_bf16(number);
            ((uint16_t *)b->host)[2 * i + 1] = dtype_to_bf16(number * 0.5F);
        }
    }
    put(b);
    gemm.c_type = type;
    assert_int_equal(ops->projection_gelu(b->memory + 2300, &gemm, b->memory + 3072, stream),
                     STATUS_OK);
    gemm.c = b->memory + 2600;
    assert_int_equal(
        ops->projection_gelu_backward(&gemm, b->memory + 3400, b->memory + 3200, stream),
        STATUS_OK);
    get(b);
}

/* As run_all(), of kernels and products that end in nothing. */
static void run_parts(struct bench *b, enum dtype type, size_t N)
{
    const struct kernel_ops *ops = device_kernels(b->device);
    struct stream *stream = device_stream(b->device);
    struct gemm gemm = product(b, type, 3, N, 5);

    gemm.c_type = type;
    put(b);
    assert_int_equal(ops->gemm(&gemm, stream), STATUS_OK);
    assert_int_equal(
        ops->bias_gelu_forward(b->memory + 2300, gemm.c, b->memory + 3072, 3, N, type, stream),
        STATUS_OK);
    gemm.c = b->memory + 2600;
    assert_int_equal(ops->gemm(&gemm, stream), STATUS_OK);
    assert_int_equal(ops->bias_gelu_backward(gemm.c, b->memory + 3400, gemm.c, b->memory + 3200, 3,
                                             N, type, stream),
                     STATUS_OK);
    get(b);
}

/* The numbers that both begin with, once more. */
static void begin_again(struct bench *b, const float *from)
{
    memcpy(b->host + 3400, from + 3400, 64 * sizeof(*from));
}

static void without_an_algorithm_kernels_do_it(void **state)
{
    static const enum dtype types[] = {DTYPE_FP32, DTYPE_BF16};
    static const size_t columns[] = {8, 7};
    struct bench b;
    float whole[FLOATS];
    float start[FLOATS];

    (void)state;
    for (size_t t = 0; t < 4; t++) {
        const size_t N = columns[t % 2];
        size_t before;

        bench_make(&b, false);
        fake_cublaslt_refuse_epilogues(true);
        run_all(&b, types[t / 2], N);
        before = fake_cublaslt_asked();
        run_all(&b, types[t / 2], N);
        assert_int_equal(fake_cublaslt_asked(), before); /* nor is it asked again */
        fake_cublaslt_refuse_epilogues(false);
        memcpy(whole, b.host, sizeof(whole));
        for (size_t i = 0; i < FLOATS; i++) {
            start[i] = (float)((int)(i * 37 % 101) - 50) / 25.0F;
        }
        begin_again(&b, start);
        run_parts(&b, types[t / 2], N);
        assert_memory_equal(whole, b.host, sizeof(whole));
        bench_free(&b);
    }
}

/* In fp32 the slope of gelu is weir's own, and where rows are not whole packs the library does not take it. */
static void gelus_slope_is_the_librarys_in_16_bits_and_whole_packs(void **state)
{
    static const struct {
        enum dtype type;
        size_t N;
        size_t epilogues;
    } cases[] = {{DTYPE_FP32, 8, 1}, {DTYPE_BF16, 8, 2}, {DTYPE_BF16, 7, 1}, {DTYPE_BF16, 12, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench b;
        size_t before;

        bench_make(&b, false);
        before = fake_cublaslt_epilogues();
        run_all(&b, cases[i].type, cases[i].N);
        assert_int_equal(fake_cublaslt_epilogues() - before, cases[i].epilogues);
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
        cmocka_unit_test(a_bias_is_added_before_the_sum_is_rounded),
        cmocka_unit_test(an_epilogue_reads_what_each_call_names),
        cmocka_unit_test(without_an_algorithm_kernels_do_it),
        cmocka_unit_test(gelus_slope_is_the_librarys_in_16_bits_and_whole_packs),
    };

    return cmocka_run_group_tests_name("gemm_cuda", tests, NULL, NULL);
}
