#include "stages/checkpoint/pieces.h"

#include "base/check.h"
#include "tensor/device.h"

void pieces_tell(const struct piece_watch *watch)
{
    if (watch != NULL) {
        watch->moved(watch->context);
    }
}

size_t pieces_next(size_t left)
{
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

enum status piece_read(struct piece_reader *reader, const void *from, size_t bytes,
                       const void **bytes_out)
{
    ENSURE(bytes <= PIECE_BYTES, "a piece of %zu bytes", bytes);
    *bytes_out = from;
    if (reader->device == NULL || device_tensors_are_here(reader->device)) {
        return STATUS_OK;
    }
    if (reader->staging == NULL) {
        TRY(device_take(reader->device, DEVICE_HOST, "staging of files", PIECE_BYTES,
                        &reader->staging));
    }
    *bytes_out = reader->staging;
    return device_copy_now(reader->device, reader->staging, from, bytes);
}

void piece_reader_release(struct piece_reader *reader)
{
    if (reader->staging != NULL) {
        device_give(reader->device, DEVICE_HOST, reader->staging, PIECE_BYTES);
        reader->staging = NULL;
    }
}
