#include "comm_pieces_rig.h"

#include <string.h>

#define GUARD 64 /* bytes behind every piece that nobody may touch */

static const int32_t all_ranks[RIG_RANKS_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};

void pieces_connect(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, comm_share(self->comm, 2 * PIECES_BLOCK_BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_group(self, 0, 0, 1, self->rig->world) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* Nothing, less than a slice's grain, a slice for some members only, what divides and what does not. */
static const size_t sizes[] = {17, 0, 1, 15, 16, 33, 1000, 4096, 0, 70001, 2, 100};

#define SIZES ((int32_t)(sizeof(sizes) / sizeof(sizes[0])))

int32_t pieces_lay(void *from, bool mixed, struct comm_piece *pieces)
{
    unsigned char *at = from;

    for (int32_t i = 0; i < SIZES; i++) {
        size_t elem_bytes = mixed && i % 2 == 0 ? 2 : 4;
        size_t bytes = sizes[i] * elem_bytes;

        pieces[i] = (struct comm_piece){.data = at, .elems = sizes[i], .elem_bytes = elem_bytes};
        /* Not every piece begins on a cache line. */
        at += (bytes + GUARD + 3) / 4 * 4;
    }
    return SIZES;
}

void pieces_shift(const struct comm_piece *pieces, int32_t count, const void *from, void *to,
                  struct comm_piece *shifted)
{
    for (int32_t i = 0; i < count; i++) {
        size_t offset =
            (size_t)((const unsigned char *)pieces[i].data - (const unsigned char *)from);

        shifted[i] = pieces[i];
        shifted[i].data = (unsigned char *)to + offset;
    }
}

void pieces_write_element(const struct comm_piece *piece, int32_t i, size_t e, int32_t rank)
{
    float number = rig_float(rank, (uint32_t)i, e);

    memcpy((unsigned char *)piece->data + e * piece->elem_bytes, &number, piece->elem_bytes);
}

static bool reads_element(const struct comm_piece *piece, int32_t i, size_t e, int32_t rank)
{
    float number = rig_float(rank, (uint32_t)i, e);

    return memcmp((const unsigned char *)piece->data + e * piece->elem_bytes, &number,
                  piece->elem_bytes) == 0;
}

void pieces_fill(const struct comm_piece *pieces, int32_t count, int32_t rank)
{
    for (int32_t i = 0; i < count; i++) {
        for (size_t e = 0; e < pieces[i].elems; e++) {
            pieces_write_element(&pieces[i], i, e, rank);
        }
    }
}

bool pieces_guards_hold(const struct comm_piece *pieces, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const unsigned char *end =
            (const unsigned char *)pieces[i].data + pieces[i].elems * pieces[i].elem_bytes;

        for (int k = 0; k < GUARD; k++) {
            if (end[k] != PIECES_UNTOUCHED) {
                return false;
            }
        }
    }
    return true;
}

bool pieces_are_scattered(const struct rig_rank *self, const struct comm_piece *pieces,
                          int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const float *data = pieces[i].data;
        size_t first = 0;
        size_t elems = 0;
        size_t end;

        comm_slice(pieces[i].elems, self->rig->world, self->rank, &first, &elems);
        end = first + elems;
        if (!rig_reads_sum(data + first, first, elems, all_ranks, self->rig->world, (uint32_t)i) ||
            !rig_reads_sum(data, 0, first, &self->rank, 1, (uint32_t)i) ||
            !rig_reads_sum(data + end, end, pieces[i].elems - end, &self->rank, 1, (uint32_t)i)) {
            return false;
        }
    }
    return true;
}

/* Whether slice k of piece i is what member k has. */
static bool reads_slice(const struct comm_piece *piece, int32_t i, int32_t count, int32_t k)
{
    size_t first = 0;
    size_t elems = 0;

    comm_slice(piece->elems, count, k, &first, &elems);
    for (size_t e = first; e < first + elems; e++) {
        if (!reads_element(piece, i, e, k)) {
            return false;
        }
    }
    return true;
}

bool pieces_are_gathered(const struct rig_rank *self, const struct comm_piece *pieces,
                         int32_t count)
{
    bool right = true;

    for (int32_t i = 0; i < count; i++) {
        for (int32_t k = 0; k < self->rig->world; k++) {
            right = right && reads_slice(&pieces[i], i, self->rig->world, k);
        }
    }
    return right;
}
