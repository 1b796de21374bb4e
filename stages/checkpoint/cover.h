/*
 * cover -- whether the pieces of a tensor make it up: each of its elements once.
 *
 * The files of a checkpoint have a tensor, or the part of it that one shard has, in ranges of
 * elements. Whoever joins them, to load or to verify, puts each range here with the file that it is
 * from, and asks at the end. Their number alone says nothing: a hole and an overlap of the same size
 * add up to the whole.
 */
#ifndef STAGES_CHECKPOINT_COVER_H
#define STAGES_CHECKPOINT_COVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/grid.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cover_range {
    size_t first;
    size_t elems;
    int32_t file; /* by rank of the checkpoint's layout */
};

/* Zero is empty. */
struct cover {
    struct cover_range *ranges; /* owns */
    size_t count;
    size_t room;
};

/* Elements `first` … first + elems - 1, which are countable, are in `file`. */
enum status cover_add(struct cover *cover, size_t first, size_t elems, int32_t file);

/* What the ranges are of; all borrowed. */
struct cover_whole {
    const char *folder;              /* of the checkpoint */
    const struct grid_shape *layout; /* of its files */
    const char *name;                /* of the tensor */
    int32_t shard; /* the elements of whose part are counted; -1: of the whole tensor */
    size_t elems;
};

/* STATUS_OK where they are all elements 0 … elems - 1, each once. STATUS_ERR_REFUSED names the first
 * that are missing, or twice there, or too many, and the files. Sorts the ranges. */
enum status cover_check(struct cover *cover, const struct cover_whole *whole);

/* Empty again, for the next tensor. */
void cover_clear(struct cover *cover);

/* Safe on a zeroed one, and twice. */
void cover_release(struct cover *cover);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_COVER_H */
