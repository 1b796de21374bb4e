/*
 * gemm_tile -- the part of a matrix product that one member of a team makes, on its own thread.
 *
 * fp32 operands go to the library as they are. Where a type is 16-bit, the tile is cut into blocks
 * of at most GEMM_BLOCK_ROWS × GEMM_BLOCK_COLUMNS of C and GEMM_BLOCK_DEPTH of K, in equal parts as
 * far as that goes: a block of a 16-bit operand is widened into scratch, the library multiplies
 * and accumulates in fp32, and a 16-bit C is rounded once, from the sum over all of K. A block that
 * is in scratch already stays there; the loops are ordered so that the operand stays which costs
 * more to widen. Edges and order depend on ops, types and shape only. For gemm.c.
 */
#ifndef TENSOR_GEMM_TILE_H
#define TENSOR_GEMM_TILE_H

#ifdef __cplusplus
extern "C" {
#endif

struct gemm;

/* M, N and K are not 0. `scratch`: GEMM_SCRATCH_FLOATS, unused and may be NULL where all types are
 * fp32. Returns the library's status, 0 for success. */
int gemm_tile_run(const struct gemm *tile, float *scratch);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_GEMM_TILE_H */
