/*
 * sampler -- which sample of the set stands where in the run: pure arithmetic.
 *
 * Samples are numbered through the whole run. Row `row` of micro-batch i on replica d of the step
 * that begins at `consumed` is number consumed + (i·dp + d)·micro_batch_size + row, whatever the
 * pipeline; number n is sample permutation(n mod samples) of epoch n div samples (in order where
 * not shuffled). No array of samples exists.
 *
 * So every step is full on every replica, whatever the number of samples: where an epoch ends within
 * a step, the step goes on with the next epoch. No sample is dropped, none is padding, and each
 * comes once an epoch.
 */
#ifndef STAGES_DATA_SAMPLER_H
#define STAGES_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sampler {
    int64_t samples; /* in the set, >= 1 */
    uint64_t seed;
    bool shuffle;
    int64_t micro_batch_size;
    int64_t replicas; /* dp */
    int64_t replica;  /* d of this rank */
};

/* The running number of a row. */
int64_t sampler_number(const struct sampler *sampler, int64_t consumed, int64_t microbatch,
                       int64_t row);

/* The sample of the set that stands at running number `number`. */
int64_t sampler_sample(const struct sampler *sampler, int64_t number);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_DATA_SAMPLER_H */
