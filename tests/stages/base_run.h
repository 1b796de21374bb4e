/*
 * base_run -- one small training that the cases of the field are told in, in any layout: 4 layers
 * of 64, 4 heads, 32 positions, 256 tokens, tied; 8 sequences a step in micro-batches of one; Adam
 * at a constant 1e-3; a text of the test's own.
 *
 * "Close" is what two layouts that are not bit-equal may differ by (tests/stages/oracle.h).
 */
#ifndef TESTS_STAGES_BASE_RUN_H
#define TESTS_STAGES_BASE_RUN_H

#include "tests/stages/engine_rig.h"

#define BASE_LAYERS    4
#define BASE_HIDDEN    64
#define BASE_POSITIONS 32
#define BASE_VOCAB     256
#define BASE_BATCH     8
#define BASE_MORE      10

/* Zero is what stands in the comment. */
struct base_run {
    int pp;                        /* 1 */
    int tp;                        /* 1 */
    int dp;                        /* 1 */
    int virtual_stages;            /* 1 */
    const char *schedule;          /* 1f1b, or interleaved_1f1b where virtual_stages > 1 */
    int steps;                     /* 10; BASE_NO_STEPS: none at all */
    int micro_batch;               /* 1 */
    int batch;                     /* of all replicas: BASE_BATCH */
    const char *more[BASE_MORE];   /* further overrides; NULL: none */
    const struct rig_hooks *hooks; /* nobody looks */
};

#define BASE_NO_STEPS (-1)

/* The text; setup and teardown of a group of tests. */
int base_make(void **state);
int base_remove(void **state);

/* Turns a bit of the text's byte at `at`. Fails the test where it cannot. */
void base_turn_text(long at);

/* `base` with one more override, which must live as long. */
struct base_run base_with(const struct base_run *base, const char *more);

/* Runs it, whatever comes of it. */
void base_try(const struct base_run *base, struct rig_result *run);

/* Runs it. Fails the test where the run fails, ranks or copies disagree, or an element is nowhere. */
void base_train(const struct base_run *base, struct rig_result *run);

/* The same model, data and steps on one process, in one micro-batch. */
struct base_run base_reference(const struct base_run *base);

/* Fails the test where losses or norms of a step are further apart than close. */
void base_assert_close(const struct base_run *base, const struct rig_result *run,
                       const struct rig_result *reference);

/* Fails the test where anything has other bits. */
void base_assert_same(const struct base_run *base, const struct rig_result *run,
                      const struct rig_result *reference);

/* The tied head's copy is the embedding, bit for bit. */
void base_assert_copy(const struct rig_result *run);

/* Runs it and its reference, which it must be close to. */
void base_check(const struct base_run *base);

/*
 * Prints of bytes that must be the same wherever they are: by step and by any key, the first one
 * counts and the others are compared. For hooks, which the rig calls one at a time.
 */
#define BASE_KEYS 16

struct base_prints {
    uint64_t print[RIG_STEPS_MOST][BASE_KEYS];
    int count[RIG_STEPS_MOST][BASE_KEYS];
    int different; /* from the first one */
};

#define BASE_PRINT_START 0xcbf29ce484222325U

/* The print of what `print` was made of and these bytes; BASE_PRINT_START: of nothing. */
uint64_t base_print(uint64_t print, const void *data, size_t bytes);

void base_put_print(struct base_prints *prints, int64_t step, int key, uint64_t print);

#endif /* TESTS_STAGES_BASE_RUN_H */
