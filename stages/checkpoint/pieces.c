#include "stages/checkpoint/pieces.h"

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
