#include "stages/data/fingerprint.h"

#include "base/file.h"
#include "stages/checkpoint/sum.h"

static enum status sum_blocks(const unsigned char *bytes, size_t count, uint64_t *sum_out)
{
    const size_t last = count - FINGERPRINT_BLOCK_BYTES;
    const size_t stride = last / (FINGERPRINT_BLOCKS - 1);
    struct sum *sum = NULL;

    TRY(sum_open(&sum));
    for (size_t block = 0; block < FINGERPRINT_BLOCKS; block++) {
        size_t at = block + 1 < FINGERPRINT_BLOCKS ? block * stride : last;

        sum_add(sum, bytes + at, FINGERPRINT_BLOCK_BYTES);
    }
    *sum_out = sum_value(sum);
    sum_close(&sum);
    return STATUS_OK;
}

enum status fingerprint_of(const void *bytes, size_t count, struct manifest_sum *print_out)
{
    *print_out = (struct manifest_sum){.bytes = count};
    if (count > FINGERPRINT_WHOLE_BYTES) {
        return sum_blocks(bytes, count, &print_out->xxh3);
    }
    print_out->xxh3 = sum_of(bytes, count);
    return STATUS_OK;
}

enum status fingerprint_file(const char *path, struct manifest_sum *print_out)
{
    struct file_map map = {.data = NULL};
    enum status status = STATUS_OK;

    TRY(file_map_open(path, &map));
    status = fingerprint_of(map.data, map.bytes, print_out);
    file_map_close(&map);
    return status;
}
