/*
 * rank_list -- ranks as words: "0, 1, 4", and "0, 1, 2 and 60 more" where they are many.
 */
#ifndef COLLECTIVES_RANK_LIST_H
#define COLLECTIVES_RANK_LIST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RANK_LIST_BYTES 96 /* at least eight ranks are named */

/* Writes the list, "" where `count` is 0; returns `text`. */
const char *rank_list_text(const int32_t *ranks, int32_t count, char text[RANK_LIST_BYTES]);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_RANK_LIST_H */
