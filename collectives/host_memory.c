#include "collectives/host_memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES  4096
#define LINE_BYTES  4096
#define GROUPS_DEEP 64 /* control groups above one another; the kernel allows fewer in practice */

/* What the files of a memory control group are called in each version. */
struct group_files {
    const char *mount;
    const char *limit;
    const char *usage;
    const char *cache[2]; /* keys in memory.stat of what the kernel can drop */
};

static const struct group_files group_v1 = {
    .mount = "/sys/fs/cgroup/memory",
    .limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .cache = {"total_inactive_file", "total_active_file"},
};

static const struct group_files group_v2 = {
    .mount = "/sys/fs/cgroup",
    .limit = "memory.max",
    .usage = "memory.current",
    .cache = {"inactive_file", "active_file"},
};

static bool parse_bytes(const char *text, uint64_t *bytes_out)
{
    char *end = NULL;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (end == text || errno != 0) {
        return false; /* "max" is no limit */
    }
    *bytes_out = value;
    return true;
}

/* Finds the first line that begins with `key` and a separator; the value follows. An empty key
 * takes the first line. */
static bool read_value(const char *path, const char *key, uint64_t *value_out)
{
    char line[LINE_BYTES];
    size_t key_bytes = strlen(key);
    bool found = false;
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        if (key_bytes == 0) {
            found = parse_bytes(line, value_out);
            break;
        }
        if (strncmp(line, key, key_bytes) == 0 &&
            (line[key_bytes] == ' ' || line[key_bytes] == ':')) {
            found = parse_bytes(line + key_bytes + 1, value_out);
        }
    }
    (void)fclose(file);
    return found;
}

static bool group_value(const char *directory, const char *file, const char *key,
                        uint64_t *value_out)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s/%s", directory, file);

    return length > 0 && (size_t)length < sizeof(path) && read_value(path, key, value_out);
}

static uint64_t group_room(const char *directory, const struct group_files *files)
{
    uint64_t limit = 0;
    uint64_t usage = 0;
    uint64_t cache = 0;

    if (!group_value(directory, files->limit, "", &limit) ||
        !group_value(directory, files->usage, "", &usage)) {
        return UINT64_MAX;
    }
    for (int i = 0; i < 2; i++) {
        uint64_t part = 0;

        if (group_value(directory, "memory.stat", files->cache[i], &part)) {
            cache += part;
        }
    }
    usage -= cache < usage ? cache : usage;
    return limit > usage ? limit - usage : 0;
}

/* The least room of the group `path` and of all groups above it. */
static uint64_t groups_room(const char *root, const struct group_files *files, const char *path)
{
    char directory[PATH_BYTES];
    uint64_t room = UINT64_MAX;
    size_t stem = strlen(root) + strlen(files->mount);
    int length = snprintf(directory, sizeof(directory), "%s%s%s", root, files->mount, path);

    if (length < 0 || (size_t)length >= sizeof(directory)) {
        return room;
    }
    for (int level = 0; level < GROUPS_DEEP; level++) {
        uint64_t here = group_room(directory, files);
        char *slash = strrchr(directory, '/');

        room = here < room ? here : room;
        if (slash == NULL || (size_t)(slash - directory) < stem) {
            break;
        }
        *slash = '\0';
    }
    return room;
}

/* Follows the lines of /proc/self/cgroup, as "4:memory:/path" (version 1) or "0::/path". */
static uint64_t control_group_room(const char *root)
{
    char path[PATH_BYTES];
    char line[LINE_BYTES];
    uint64_t room = UINT64_MAX;
    FILE *file;
    int length = snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);

    file = length > 0 && (size_t)length < sizeof(path) ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return room;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        const struct group_files *files = NULL;
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

        if (group == NULL) {
            continue;
        }
        line[strcspn(line, "\n")] = '\0';
        *group++ = '\0';
        controllers++;
        if (controllers[0] == '\0') {
            files = &group_v2;
        } else if (strcmp(controllers, "memory") == 0) {
            files = &group_v1;
        }
        if (files != NULL) {
            uint64_t here = groups_room(root, files, group);

            room = here < room ? here : room;
        }
    }
    (void)fclose(file);
    return room;
}

size_t host_memory_room(const char *root)
{
    char path[PATH_BYTES];
    uint64_t available_kib = 0;
    uint64_t room = control_group_room(root);
    int length = snprintf(path, sizeof(path), "%s/proc/meminfo", root);

    if (length > 0 && (size_t)length < sizeof(path) &&
        read_value(path, "MemAvailable", &available_kib) && available_kib < UINT64_MAX / 1024) {
        uint64_t available = available_kib * 1024;

        room = available < room ? available : room;
    }
    return room < SIZE_MAX ? (size_t)room : SIZE_MAX;
}
