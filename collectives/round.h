/*
 * round -- what all ranks give for one control_reduce(), and how it becomes one answer.
 *
 * Every rank has a slot. When all slots are given, round_reduce() folds the values in ascending
 * rank order and, inside a rank, in the order given, so that sums have the same bits however the
 * messages came. A round that does not hold together (names or keys that differ, a ONCE given twice
 * or never, a SAME that differs) has a failure as its answer, the same for every rank.
 *
 * Pure: no messages, no clock, no threads. Memory grows with the largest round seen and stays.
 */
#ifndef COLLECTIVES_ROUND_H
#define COLLECTIVES_ROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/control.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROUND_NAME_BYTES 64 /* of a round and of a key; longer names are cut */

struct round;

/* What one rank gives. Filled in place by whoever read it from a message. */
struct round_slot {
    bool given; /* set by the filler, cleared by round_reduce() */
    char name[ROUND_NAME_BYTES];
    uint64_t number;
    uint64_t shape; /* round_shape() of its keys */
    int32_t value_count;
    uint64_t *keys;  /* (value_count) index of the key */
    double *numbers; /* (value_count) SUM, MAX, ONCE */
    uint64_t *bits;  /* (value_count) SAME */
    char note[CONTROL_TEXT_BYTES];
    int32_t capacity; /* private to round.c */
};

struct round_result {
    enum status status; /* OK, ERR_FORMAT or ERR_REFUSED */
    char text[CONTROL_TEXT_BYTES];
    int32_t key_count;
    const double *numbers; /* (key_count) lent until the next slot is given */
    int32_t note_rank;
    char note[CONTROL_TEXT_BYTES];
};

enum status round_create(int32_t world, struct round **round_out);

/* Nulls the caller's pointer; NULL is fine. */
void round_destroy(struct round **round);

/* Makes room for `key_count` keys (0 … CONTROL_KEYS_MOST), which round_set_key() then names; the
 * keys of rank 0 count. STATUS_ERR_NO_MEMORY leaves the round as it was. */
enum status round_reserve_keys(struct round *round, int32_t key_count);
void round_set_key(struct round *round, int32_t index, enum control_op op, const char *name);

/* Lends the slot of `rank`, with room for `value_count` values (0 … CONTROL_KEYS_MOST), until
 * round_destroy() or the next call for the same rank. */
enum status round_open_slot(struct round *round, int32_t rank, int32_t value_count,
                            struct round_slot **slot_out);

/* Lends the slot of `rank` to be read. */
const struct round_slot *round_slot_of(const struct round *round, int32_t rank);

/* How many ranks have given; the lowest that has, or -1. */
int32_t round_given(const struct round *round, int32_t *first_out);

/* All slots must be given. Leaves them free for the next round. */
void round_reduce(struct round *round, struct round_result *result);

/* A number that differs, as good as surely, between different lists of keys. */
uint64_t round_shape(const struct control_key *keys, int32_t key_count);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_ROUND_H */
