/*
 * host_memory -- how much memory this process may still take without harm.
 *
 * Shared memory that a host cannot back does not fail: the kernel kills a process. So whoever
 * reserves a lot asks here before, and refuses with numbers.
 */
#ifndef COLLECTIVES_HOST_MEMORY_H
#define COLLECTIVES_HOST_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes available to this process: the least of what the host has (MemAvailable) and of the room
 * in its memory control groups (both versions), where file cache counts as room. SIZE_MAX where
 * the system says nothing. Reads a few small files; does not fail. `root` stands before every
 * path: "" but in tests. */
size_t host_memory_room(const char *root);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_HOST_MEMORY_H */
