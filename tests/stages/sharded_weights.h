/*
 * sharded_weights -- a small model whose tensors lie in parts on several shards, with numbers that say
 * where they belong. For tests of files; every failure is a cmocka failure.
 */
#ifndef TESTS_STAGES_SHARDED_WEIGHTS_H
#define TESTS_STAGES_SHARDED_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "mixedprec/params.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHARDED_WEIGHTS 10

enum sharded_split {
    WHOLE,
    ROWS,    /* equal parts */
    WORDS,   /* parts of ceil(rows / tp), the last ones shorter */
    COLUMNS, /* equal parts */
    THIRDS   /* equal parts of each third */
};

struct sharded_weight {
    const char *name;
    int64_t rows;
    int64_t cols;
    enum sharded_split split;
};

extern const struct sharded_weight sharded_weights[SHARDED_WEIGHTS];

/* What stands at a place of a whole tensor: small integers, exact in a float. */
float sharded_weights_value(int32_t tensor, int64_t row, int64_t col);

/* Shard `shard` of `shards`: of which rows and columns it has. */
struct param sharded_weights_part(int32_t tensor, int32_t shard, int32_t shards);

/* Puts its numbers into a part in fp32, place by place, without the runs that the code under test goes
 * by. */
void sharded_weights_fill(struct param *param, int32_t tensor);

/* All tensors of one shard in fp32, each in memory of its own, and its end. */
void sharded_weights_make(struct params *params, int32_t shard, int32_t shards, bool filled);
void sharded_weights_drop(struct params *params);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_STAGES_SHARDED_WEIGHTS_H */
