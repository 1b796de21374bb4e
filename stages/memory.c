#include "stages/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024.0
#define MIB (1024.0 * KIB)
#define GIB (1024.0 * MIB)

/* From here on a larger unit says it with two digits. */
#define UNITS_FROM 10.0

struct names {
    const char *key;
    const char *text;
    const char *head;
};

static const struct names names[] = {
#define X(kind, key, text, head) {key, text, head},
    MEMORY_TABLE(X)
#undef X
};

void memory_add(struct memory_table *table, enum memory_kind kind, size_t bytes)
{
    table->bytes[kind] += bytes;
    table->total_bytes += bytes;
}

const char *memory_key(enum memory_kind kind)
{
    return names[kind].key;
}

const char *memory_text(enum memory_kind kind)
{
    return names[kind].text;
}

const char *memory_head(enum memory_kind kind)
{
    return names[kind].head;
}

struct memory_unit memory_unit_for(size_t bytes)
{
    if ((double)bytes >= UNITS_FROM * GIB) {
        return (struct memory_unit){.name = "GiB", .bytes = GIB};
    }
    if ((double)bytes >= UNITS_FROM * MIB) {
        return (struct memory_unit){.name = "MiB", .bytes = MIB};
    }
    return (struct memory_unit){.name = "KiB", .bytes = KIB};
}

void memory_print(const struct memory_table *table, const char *place, char *text,
                  size_t text_bytes)
{
    struct memory_unit unit = memory_unit_for(table->total_bytes);
    const char *before = "";
    int used = snprintf(text, text_bytes, "%s holds %.1f %s:", place,
                        (double)table->total_bytes / unit.bytes, unit.name);

    for (int kind = 0; kind < MEMORY_KINDS && used > 0 && (size_t)used < text_bytes; kind++) {
        if (table->bytes[kind] > 0) {
            used += snprintf(text + used, text_bytes - (size_t)used, "%s %s %.1f", before,
                             names[kind].text, (double)table->bytes[kind] / unit.bytes);
            before = ",";
        }
    }
}

enum status memory_check(const struct memory_table *table, const char *place, int64_t limit_bytes)
{
    struct memory_unit unit = memory_unit_for(table->total_bytes);
    char text[512];

    if (limit_bytes <= 0 || table->total_bytes <= (size_t)limit_bytes) {
        return STATUS_OK;
    }
    memory_print(table, place, text, sizeof(text));
    return status_fail(STATUS_ERR_REFUSED,
                       "train.memory_limit: %.1f %s allowed, %.1f %s needed; %s",
                       (double)limit_bytes / unit.bytes, unit.name,
                       (double)table->total_bytes / unit.bytes, unit.name, text);
}

static size_t state_bytes(const struct memory_table *table)
{
    size_t bytes = 0;

    for (int kind = 0; kind < MEMORY_STATE_KINDS; kind++) {
        bytes += table->bytes[kind];
    }
    return bytes;
}

static double each(const struct memory_table *table, size_t bytes)
{
    return table->parameters > 0 ? (double)bytes / (double)table->parameters : 0.0;
}

double memory_state_each(const struct memory_table *table)
{
    return each(table, state_bytes(table));
}

double memory_shared_each(const struct memory_table *table)
{
    return each(table,
                state_bytes(table) + table->bytes[MEMORY_BUCKETS] + table->bytes[MEMORY_GATHERED]);
}

void memory_compare(const struct memory_table *table, size_t used_bytes, size_t resident_bytes,
                    char *text, size_t text_bytes)
{
    struct memory_unit unit = memory_unit_for(table->total_bytes);
    int used = snprintf(text, text_bytes, "planned %.1f %s, used %.1f %s (arenas and segments)",
                        (double)table->total_bytes / unit.bytes, unit.name,
                        (double)used_bytes / unit.bytes, unit.name);

    if (resident_bytes > 0 && used > 0 && (size_t)used < text_bytes) {
        unit = memory_unit_for(resident_bytes);
        (void)snprintf(text + used, text_bytes - (size_t)used, ", resident %.1f %s",
                       (double)resident_bytes / unit.bytes, unit.name);
    }
}

/* Not getrusage(): its number survives an exec, so it may be that of whoever started weir. */
size_t memory_resident_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    static const char word[] = "VmHWM:";
    char line[128];
    unsigned long long kib = 0;

    while (file != NULL && kib == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, word, sizeof(word) - 1) == 0) {
            kib = strtoull(line + sizeof(word) - 1, NULL, 10);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (size_t)kib * 1024;
}
