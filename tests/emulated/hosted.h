/*
 * hosted -- small kernels that show what cuda_on_host.hpp does.
 */
#ifndef TESTS_EMULATED_HOSTED_H
#define TESTS_EMULATED_HOSTED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out (blocks,threads): its number, from blockIdx and threadIdx alone; no barrier. */
void hosted_number(int32_t *out, unsigned blocks, unsigned threads);

/* out (threads): in reversed, through shared memory; with or without the barrier that it takes. */
void hosted_reverse(float *out, const float *in, unsigned threads, int barrier);

/* out (threads): the sum of its warp by shuffles, where the odd warps go another way than the even ones and
 * every warp but the first goes round once more. */
void hosted_warp_sums(float *out, const float *in, unsigned threads);

/* out (threads): a bit for each lane of its warp with in > 0; threads from `leavers` on have left before. */
void hosted_votes(uint32_t *out, const float *in, unsigned threads, unsigned leavers);

/* out (threads): what a thread has copied to shared memory, with as many groups of copies waited for
 * as is right, or one too few; `in` 16 bytes a thread, of the first 16 threads only: the others get
 * zeros. */
void hosted_copies(float *out, const float *in, unsigned threads, int waits_for_all);

/* Half of the threads wait for all, the others for their warp: nobody goes on. */
void hosted_wait_for_ever(unsigned threads);

/* A lane asks one that does not take part. */
void hosted_ask_outside(unsigned threads);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_HOSTED_H */
