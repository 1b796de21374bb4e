#include "stages/checkpoint/sum.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct sum {
    XXH3_state_t *state; /* owns; aligned as the library wants it */
};

uint64_t sum_of(const void *bytes, size_t count)
{
    return XXH3_64bits(bytes, count);
}

enum status sum_open(struct sum **sum_out)
{
    struct sum *sum = malloc(sizeof(*sum));

    *sum_out = sum;
    if (sum != NULL) {
        sum->state = XXH3_createState();
    }
    if (sum == NULL || sum->state == NULL) {
        sum_close(sum_out);
        return status_fail(STATUS_ERR_NO_MEMORY, "summing bytes: no memory");
    }
    (void)XXH3_64bits_reset(sum->state);
    return STATUS_OK;
}

void sum_add(struct sum *sum, const void *bytes, size_t count)
{
    (void)XXH3_64bits_update(sum->state, bytes, count);
}

uint64_t sum_value(const struct sum *sum)
{
    return XXH3_64bits_digest(sum->state);
}

void sum_close(struct sum **sum)
{
    if (*sum != NULL) {
        (void)XXH3_freeState((*sum)->state);
    }
    free(*sum);
    *sum = NULL;
}
