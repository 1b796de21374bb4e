/*
 * device_rows -- how long the kernels of a training step take on a device, beside the least time that their bytes and
 * multiplications need there.
 *
 * Both yardsticks are measured on the device itself: a copy of 256 MiB, and a large product in the format. Work is put
 * into the stream many times and waited for once, so that launches of a GPU overlap as in a step. Lines of
 * `name shape value unit`: "us", "% of floor" (100 is as fast as the slower of the two yardsticks allows).
 */
#ifndef TESTS_BENCH_DEVICE_ROWS_H
#define TESTS_BENCH_DEVICE_ROWS_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device;

struct device_peaks {
    double bytes_per_s; /* read and written */
    double flops_per_s; /* of products in `type` */
    enum dtype type;
};

/* M = N = K = `edge`, a multiple of 8. */
enum status device_rows_peaks(struct device *device, enum dtype type, size_t edge,
                              struct device_peaks *peaks_out);

/* The kernels of a layer of `hidden` with heads of 64, on `samples` sequences of `positions`; `elems` of the optimizer. */
enum status device_rows_bench(struct device *device, const struct device_peaks *peaks,
                              size_t samples, size_t positions, size_t hidden, size_t elems);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_BENCH_DEVICE_ROWS_H */
