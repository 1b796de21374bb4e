#include "collectives/rank_list.h"

#include <inttypes.h>
#include <stdio.h>

/* Room that a further rank and the words behind it may need. */
#define REST_BYTES 34

const char *rank_list_text(const int32_t *ranks, int32_t count, char text[RANK_LIST_BYTES])
{
    size_t at = 0;
    int32_t named = 0;

    text[0] = '\0';
    while (named < count && at + REST_BYTES < RANK_LIST_BYTES) {
        at += (size_t)snprintf(text + at, RANK_LIST_BYTES - at, "%s%" PRId32, named > 0 ? ", " : "",
                               ranks[named]);
        named++;
    }
    if (named < count) {
        (void)snprintf(text + at, RANK_LIST_BYTES - at, " and %" PRId32 " more", count - named);
    }
    return text;
}
