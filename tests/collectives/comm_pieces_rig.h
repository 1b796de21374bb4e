/*
 * comm_pieces_rig -- lists of pieces of all kinds of sizes, whose contents anybody can check.
 */
#ifndef TESTS_COLLECTIVES_COMM_PIECES_RIG_H
#define TESTS_COLLECTIVES_COMM_PIECES_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/comm.h"
#include "comm_rig.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PIECES_BLOCK_BYTES ((size_t)1 << 20) /* room for one list; the shared block holds two */
#define PIECES_UNTOUCHED   0xA5              /* what stands where nobody may write */
#define PIECES_MOST        12

/* Connects all ranks as group 0, without lanes. */
void pieces_connect(struct rig_rank *self);

/* Lays PIECES_MOST pieces with 75281 elements in all out from `from` on, each with a guard behind it;
 * of 4 bytes an element, and, where `mixed`, every other one of 2. Returns their number. */
int32_t pieces_lay(void *from, bool mixed, struct comm_piece *pieces);

/* The same list as it lies from `to` on in place of `from`. */
void pieces_shift(const struct comm_piece *pieces, int32_t count, const void *from, void *to,
                  struct comm_piece *shifted);

/* Element `e` of piece `i` as `rank` has it: as many bits of rig_float() as it has. */
void pieces_write_element(const struct comm_piece *piece, int32_t i, size_t e, int32_t rank);
void pieces_fill(const struct comm_piece *pieces, int32_t count, int32_t rank);

/* Whether the guards are as the whole block was. */
bool pieces_guards_hold(const struct comm_piece *pieces, int32_t count);

/* Whether, of each piece, the own slice is the sum in rank order, and the rest this rank's own. */
bool pieces_are_scattered(const struct rig_rank *self, const struct comm_piece *pieces,
                          int32_t count);

/* Whether each slice of each piece is what its member has. */
bool pieces_are_gathered(const struct rig_rank *self, const struct comm_piece *pieces,
                         int32_t count);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_COLLECTIVES_COMM_PIECES_RIG_H */
