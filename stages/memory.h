/*
 * memory -- what a rank will hold, known and printed before the first step.
 *
 * Shapes are static, so every block is planned: the table is made from the arenas' own measuring
 * pass and from the plan's buffers, and a rank whose sum exceeds train.memory_limit refuses with
 * the table.
 */
#ifndef STAGES_MEMORY_H
#define STAGES_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MEMORY_ROWS_MOST 16

struct memory_row {
    const char *name; /* a static string */
    size_t bytes;
};

struct memory_table {
    struct memory_row rows[MEMORY_ROWS_MOST];
    int32_t count;
    size_t total_bytes;
};

/* Appends a row; rows of 0 bytes are left out. */
void memory_add(struct memory_table *table, const char *name, size_t bytes);

/* "stage 1, shard 0 holds 41.2 MiB: params 12.1, gradients 12.1, ...", cut to `text_bytes`; `place` is
 * who holds it (grid_place_text()). */
void memory_print(const struct memory_table *table, const char *place, char *text,
                  size_t text_bytes);

/* STATUS_ERR_REFUSED with the table where the total exceeds `limit_bytes`; 0 is no limit. */
enum status memory_check(const struct memory_table *table, const char *place, int64_t limit_bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MEMORY_H */
