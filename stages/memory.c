#include "stages/memory.h"

#include <stdio.h>

#include "base/check.h"

#define MIB (1024.0 * 1024.0)

void memory_add(struct memory_table *table, const char *name, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    ENSURE(table->count < MEMORY_ROWS_MOST, "no row left for %s", name);
    table->rows[table->count++] = (struct memory_row){.name = name, .bytes = bytes};
    table->total_bytes += bytes;
}

void memory_print(const struct memory_table *table, const char *place, char *text,
                  size_t text_bytes)
{
    int used =
        snprintf(text, text_bytes, "%s holds %.1f MiB:", place, (double)table->total_bytes / MIB);

    for (int32_t i = 0; i < table->count && used > 0 && (size_t)used < text_bytes; i++) {
        used += snprintf(text + used, text_bytes - (size_t)used, "%s %s %.1f", i == 0 ? "" : ",",
                         table->rows[i].name, (double)table->rows[i].bytes / MIB);
    }
}

enum status memory_check(const struct memory_table *table, const char *place, int64_t limit_bytes)
{
    char text[512];

    if (limit_bytes <= 0 || table->total_bytes <= (size_t)limit_bytes) {
        return STATUS_OK;
    }
    memory_print(table, place, text, sizeof(text));
    return status_fail(STATUS_ERR_REFUSED,
                       "train.memory_limit: %.1f MiB allowed, %.1f MiB needed; %s",
                       (double)limit_bytes / MIB, (double)table->total_bytes / MIB, text);
}
