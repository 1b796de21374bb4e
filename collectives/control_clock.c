#include "collectives/control_clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BOOT_PATH  "/proc/sys/kernel/random/boot_id"
#define SPACE_PATH "/proc/self/ns/time"
#define BOOT_BYTES 64

/* FNV-1a, 64 bits. */
static uint64_t mix(uint64_t name, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < size; i++) {
        name = (name ^ at[i]) * UINT64_C(1099511628211);
    }
    return name;
}

uint64_t control_clock_name(void)
{
    char boot[BOOT_BYTES];
    struct stat space;
    uint64_t name = UINT64_C(14695981039346656037);
    size_t size = 0;
    FILE *file = fopen(BOOT_PATH, "re");

    if (file == NULL) {
        return 0;
    }
    size = fread(boot, 1, sizeof(boot), file);
    (void)fclose(file);
    if (size == 0) {
        return 0;
    }
    name = mix(name, boot, size);
    /* A kernel without time namespaces has one clock. */
    if (stat(SPACE_PATH, &space) == 0) {
        name = mix(name, &space.st_ino, sizeof(space.st_ino));
    }
    return name;
}

bool control_clock_is_shared(const struct control_place *left, const struct control_place *right)
{
    if (left->clock == 0 || right->clock == 0) {
        return strcmp(left->host, right->host) == 0;
    }
    return left->clock == right->clock;
}

void clock_probe_begin(struct clock_probe *probe, int32_t rounds)
{
    *probe = (struct clock_probe){.left = rounds, .number = probe->number, .least_ns = -1};
}

void clock_probe_send(struct clock_probe *probe, int64_t now_ns)
{
    probe->awaited = true;
    probe->number++;
    probe->sent_ns = now_ns;
}

bool clock_probe_take(struct clock_probe *probe, const struct control_pong *pong, int64_t now_ns)
{
    if (!probe->awaited || pong->number != probe->number) {
        return false;
    }
    int64_t round_ns = (now_ns - probe->sent_ns) - (pong->said_ns - pong->heard_ns);

    /* Clocks of different paces may make less than nothing of a very short one. */
    round_ns = round_ns > 0 ? round_ns : 0;
    probe->awaited = false;
    probe->left--;
    if (probe->least_ns < 0 || round_ns < probe->least_ns) {
        probe->least_ns = round_ns;
        probe->best = (struct control_clock){
            .differs = true,
            .at_ns = probe->sent_ns + (now_ns - probe->sent_ns) / 2,
            .offset_ns = ((pong->heard_ns - probe->sent_ns) + (pong->said_ns - now_ns)) / 2,
            .uncertainty_ns = round_ns / 2 + 1, /* what the halves were rounded by, too */
        };
    }
    return probe->left == 0;
}
