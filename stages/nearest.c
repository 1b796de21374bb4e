#include "stages/nearest.h"

#include <string.h>

#define SLIP_MOST 4

static size_t least(size_t one, size_t two, size_t three)
{
    size_t less = one < two ? one : two;

    return less < three ? less : three;
}

/* Levenshtein 1966, with the last two rows of the table only. */
size_t nearest_edits(const char *one, const char *other)
{
    size_t table[2][NEAREST_WORD_BYTES + 1];
    size_t height = strnlen(one, NEAREST_WORD_BYTES);
    size_t width = strnlen(other, NEAREST_WORD_BYTES);

    for (size_t x = 0; x <= width; x++) {
        table[0][x] = x;
    }
    for (size_t y = 1; y <= height; y++) {
        const size_t *above = table[(y - 1) % 2];
        size_t *row = table[y % 2];

        row[0] = y;
        for (size_t x = 1; x <= width; x++) {
            size_t change = one[y - 1] == other[x - 1] ? 0 : 1;

            row[x] = least(above[x] + 1, row[x - 1] + 1, above[x - 1] + change);
        }
    }
    return table[height % 2][width];
}

const char *nearest_name(const char *word, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    size_t best = strlen(word) / 2;

    best = best < 1 ? 1 : best;
    best = best > SLIP_MOST ? SLIP_MOST : best;
    for (size_t i = 0; i < count; i++) {
        size_t edits = nearest_edits(word, names[i]);

        if (edits <= best && (nearest == NULL || edits < best)) {
            best = edits;
            nearest = names[i];
        }
    }
    return nearest;
}
