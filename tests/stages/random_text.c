#include "tests/stages/random_text.h"

#include <stdio.h>

int random_text_write(const char *path, uint32_t seed, int bytes)
{
    FILE *file = fopen(path, "we");
    uint32_t word = seed;

    if (file == NULL) {
        return -1;
    }
    for (int i = 0; i < bytes; i++) {
        word = word * 1664525U + 1013904223U;
        (void)fputc('a' + (int)((word >> 24) % 26U), file);
    }
    return fclose(file);
}
