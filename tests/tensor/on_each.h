/*
 * on_each -- runs a kernel's check on every variant that this machine has, with teams of one to
 * three threads.
 */
#ifndef TESTS_TENSOR_ON_EACH_H
#define TESTS_TENSOR_ON_EACH_H

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_ops;
struct stream;

#define ON_EACH_MOST_THREADS 3

/* `threads` is the team's size: 1 comes first for each variant, so that a check may keep the
 * result of the first team and compare those of the others. */
typedef void (*on_each_fn)(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context);

void on_each_variant_and_team(on_each_fn check, void *context);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_ON_EACH_H */
