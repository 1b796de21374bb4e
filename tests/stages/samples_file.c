#include "tests/stages/samples_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/checkpoint/safetensors.h"

#define TOKENS_MOST 4096

int32_t samples_file_token(const struct samples_file *file, int64_t index)
{
    return (int32_t)((index * 37 + index / (file->positions + 1)) % file->vocab);
}

int samples_file_write(const struct samples_file *file, char *path, size_t path_bytes)
{
    int32_t tokens[TOKENS_MOST];
    const int64_t count = file->samples * (file->positions + 1);
    struct safetensors_entry entries[2] = {
        {.name = "tokens",
         .dtype = SAFETENSORS_I32,
         .dims = 2,
         .shape = {file->samples, file->positions + 1},
         .bytes = (size_t)count * sizeof(tokens[0]),
         .data = tokens},
        {.dtype = strcmp(file->more, "loss_mask") == 0 ? SAFETENSORS_F32 : SAFETENSORS_I32,
         .dims = 2,
         .shape = {file->samples, file->positions},
         .bytes = (size_t)(file->samples * file->positions) * sizeof(float),
         .data = file->values},
    };
    int descriptor = -1;

    (void)snprintf(entries[1].name, sizeof(entries[1].name), "%s", file->more);
    (void)snprintf(path, path_bytes, "/tmp/weir-samples-XXXXXX.safetensors");
    descriptor = mkstemps(path, 12);
    if (count > TOKENS_MOST || descriptor < 0 || close(descriptor) != 0) {
        return -1;
    }
    for (int64_t i = 0; i < count; i++) {
        tokens[i] = samples_file_token(file, i);
    }
    return safetensors_write(path, entries, 2, NULL, 0) < 0 ? -1 : 0;
}
