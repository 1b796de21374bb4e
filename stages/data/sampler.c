#include "stages/data/sampler.h"

#include "tensor/rng.h"

/* What the numbers of the data order are for, apart from every other use of the seed: "data". */
#define SITE_DATA_ORDER 0x64617461u

int64_t sampler_number(const struct sampler *sampler, int64_t consumed, int64_t microbatch,
                       int64_t row)
{
    return consumed +
           (microbatch * sampler->replicas + sampler->replica) * sampler->micro_batch_size + row;
}

int64_t sampler_sample(const struct sampler *sampler, int64_t number)
{
    const struct rng_purpose purpose = {.seed = sampler->seed, .site = SITE_DATA_ORDER, .layer = 0};
    int64_t epoch = number / sampler->samples;
    int64_t place = number % sampler->samples;

    if (!sampler->shuffle) {
        return place;
    }
    return (int64_t)rng_permute(&purpose, (uint64_t)epoch, (uint64_t)sampler->samples,
                                (uint64_t)place);
}
