/*
 * bench_device -- GPT-2 training steps and the kernels of a layer on the device that trains: lines of
 * `name shape value unit`, tab separated; medians.
 *
 *     bench_device                 on a GPU (a build with WEIR_CUDA): GPT-2 124M and 774M in bf16, 8 and 4 sequences of 1024 a
 *                                  micro-batch, four micro-batches; then the kernels of a layer of 768
 *     bench_device --device cpu    the same lines for the CPU, with one thread and small shapes
 *
 * Tokens per second, the model's FLOP/s, and their share of a large product that is measured on the same device in
 * the same run; each kernel beside the least time that its bytes and multiplications need (device_rows.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/backends.h"
#include "stages/config.h"
#include "tensor/device.h"
#include "tests/bench/device_rows.h"
#include "tests/bench/step_rig.h"

struct scale {
    const char *device;
    struct step_shape models[2];
    size_t edge; /* of the large product */
    size_t samples;
    size_t positions;
    size_t hidden;
    size_t elems;
};

#define USUAL                                                                                  \
    .pp = 1, .tp = 1, .dp = 1, .virtual_stages = 1, .threads = 1, .vocab = 50257, .steps = 12, \
    .split = "auto", .sync = "auto", .dtype = "bf16"

static const struct scale gpu_scale = {
    .device = "cuda",
    .models = {{USUAL, .device = "cuda", .microbatches = 4, .micro_batch_size = 8, .seq_len = 1024,
                .layers = 12, .hidden = 768, .heads = 12},
               {USUAL, .device = "cuda", .microbatches = 4, .micro_batch_size = 4, .seq_len = 1024,
                .layers = 36, .hidden = 1280, .heads = 20}},
    .edge = 8192,
    .samples = 32,
    .positions = 1024,
    .hidden = 768,
    .elems = (size_t)64 << 20,
};

static const struct scale cpu_scale = {
    .device = "cpu",
    .models = {{USUAL, .device = "cpu", .microbatches = 2, .micro_batch_size = 1, .seq_len = 128,
                .layers = 2, .hidden = 128, .heads = 2},
               {USUAL, .device = "cpu", .microbatches = 2, .micro_batch_size = 1, .seq_len = 128,
                .layers = 4, .hidden = 128, .heads = 2}},
    .edge = 512,
    .samples = 1,
    .positions = 256,
    .hidden = 128,
    .elems = (size_t)1 << 20,
};

/* Children of their own train, so this comes before the process opens a device itself. */
static int measure_steps(const struct scale *scale, struct step_result results[2])
{
    int failed = 0;

    for (size_t i = 0; i < 2; i++) {
        failed += step_measure(&scale->models[i], &results[i]) != 0;
    }
    return failed;
}

static void print_steps(const struct step_shape *shape, const struct step_result *result,
                        const struct device_peaks *peaks)
{
    const double tokens = (double)(shape->microbatches * shape->micro_batch_size * shape->seq_len);
    const double rate = tokens / step_median(result->seconds, shape->steps);
    const double flops = rate * result->flops_per_token;
    char name[96];

    (void)snprintf(name, sizeof(name), "L%ld-C%ld-V%ld-%s,m%ld-%ldx%ld", shape->layers,
                   shape->hidden, shape->vocab, shape->dtype, shape->microbatches,
                   shape->micro_batch_size, shape->seq_len);
    (void)printf("step\t%s\t%.0f\ttokens/s\n", name, rate);
    (void)printf("step\t%s\t%.2f\tTFLOP/s\n", name, 1e-12 * flops);
    (void)printf("step\t%s\t%.1f\t%% of the large product\n", name,
                 100.0 * flops / peaks->flops_per_s);
}

static enum status print_all(const struct scale *scale, struct device *device,
                             const struct step_result results[2])
{
    struct device_peaks peaks;

    TRY(device_rows_peaks(device, DTYPE_BF16, scale->edge, &peaks));
    (void)printf("device\t%s\t%.1f\tGB/s copied\n", device_variant(device),
                 1e-9 * peaks.bytes_per_s);
    (void)printf("device\tbf16 product of %zu\t%.2f\tTFLOP/s\n", scale->edge,
                 1e-12 * peaks.flops_per_s);
    for (size_t i = 0; i < 2; i++) {
        print_steps(&scale->models[i], &results[i], &peaks);
    }
    return device_rows_bench(device, &peaks, scale->samples, scale->positions, scale->hidden,
                             scale->elems);
}

static enum status run(const struct scale *scale, const struct step_result results[2])
{
    struct config config;
    const struct device_backend *backend = NULL;
    struct device *device = NULL;
    enum status status;

    memset(&config, 0, sizeof(config));
    config.parallel.device = scale == &cpu_scale ? CONFIG_DEVICE_CPU : CONFIG_DEVICE_CUDA;
    TRY(backend_choose(&config, &backend));
    TRY(device_open(backend, &(struct device_config){.threads = 1, .type = DTYPE_BF16}, &device));
    status = print_all(scale, device, results);
    device_close(&device);
    return status;
}

int main(int argc, char **argv)
{
    const bool cpu = argc == 3 && strcmp(argv[1], "--device") == 0 && strcmp(argv[2], "cpu") == 0;
    const bool gpu = argc == 1 || (argc == 3 && strcmp(argv[1], "--device") == 0 &&
                                   strcmp(argv[2], "cuda") == 0);
    const struct scale *scale = cpu ? &cpu_scale : &gpu_scale;
    struct step_result results[2];

    if (!cpu && !gpu) {
        (void)fprintf(stderr, "usage: bench_device [--device cpu|cuda]\n");
        return EXIT_FAILURE;
    }
    if (measure_steps(scale, results) != 0) {
        return EXIT_FAILURE; /* the ranks have said why */
    }
    if (run(scale, results) < 0) {
        (void)fprintf(stderr, "bench_device: %s\n", status_last()->message);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
