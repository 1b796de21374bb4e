/*
 * peak -- how many fp32 operations this machine can do, as the yardstick of the benches.
 *
 * Multiply-add chains on registers, nothing loaded or stored, with the widest vectors the
 * processor has. A fused multiply-add counts as two operations, as it does for a GEMM. Measured
 * in the same run as what is compared with it, because shared machines change their speed.
 */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

#ifdef __cplusplus
extern "C" {
#endif

/* fp32 operations a second of `threads` threads together, the caller counted: the best of several
 * rounds, a quarter of a second in all. 0 where the threads cannot be started. */
double peak_measure_flops(int threads);

/* "avx512", "avx2-fma", "generic"; a static string. */
const char *peak_isa(void);

#ifdef __cplusplus
}
#endif

#endif /* BENCH_PEAK_H */
