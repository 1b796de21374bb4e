/*
 * course_word -- one action of a course in 32 bits. Private to course*.c.
 *
 * Three bits of kind, then the chunk, then the micro-batch: chunks times micro-batches are few enough
 * (plan.c: MOST_CELLS), whatever their shares.
 */
#ifndef SCHEDULER_COURSE_WORD_H
#define SCHEDULER_COURSE_WORD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum course_kind {
    COURSE_F,
    COURSE_I,
    COURSE_W,
    COURSE_B,
    COURSE_SEND, /* SEND + direction; where the course_end says so, a word follows: the micro-batch whose
                    landing buffer it waits for, or COURSE_NOTHING */
    COURSE_SYNC = COURSE_SEND + 2
};

#define COURSE_KIND_BITS 3
#define COURSE_NOTHING   UINT32_MAX

static inline uint32_t course_word(enum course_kind kind, uint32_t chunk, uint32_t microbatch,
                                   int chunk_bits)
{
    return (uint32_t)kind | chunk << COURSE_KIND_BITS |
           microbatch << (COURSE_KIND_BITS + chunk_bits);
}

static inline enum course_kind course_word_kind(uint32_t word)
{
    return (enum course_kind)(word & ((1U << COURSE_KIND_BITS) - 1));
}

static inline uint32_t course_word_chunk(uint32_t word, int chunk_bits)
{
    return word >> COURSE_KIND_BITS & ((1U << chunk_bits) - 1);
}

static inline uint32_t course_word_microbatch(uint32_t word, int chunk_bits)
{
    return word >> (COURSE_KIND_BITS + chunk_bits);
}

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_COURSE_WORD_H */
