#include "tests/emulated/fake_nvtx.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t begun; /* atomic, as `open` */
static size_t open;

static _Thread_local int depth;
static _Thread_local char *written;
static _Thread_local size_t written_bytes;

size_t fake_nvtx_begun(void)
{
    return __atomic_load_n(&begun, __ATOMIC_ACQUIRE);
}

size_t fake_nvtx_open(void)
{
    return __atomic_load_n(&open, __ATOMIC_ACQUIRE);
}

void fake_nvtx_write_to(char *text, size_t text_bytes)
{
    written = text;
    written_bytes = text_bytes;
    if (text != NULL) {
        text[0] = '\0';
    }
}

int nvtxRangePushA(const char *name)
{
    (void)__atomic_add_fetch(&begun, 1, __ATOMIC_ACQ_REL);
    (void)__atomic_add_fetch(&open, 1, __ATOMIC_ACQ_REL);
    if (written != NULL) {
        const size_t used = strlen(written);

        (void)snprintf(written + used, written_bytes - used, "%s,", name);
    }
    return depth++;
}

int nvtxRangePop(void)
{
    if (depth == 0) {
        (void)fprintf(stderr, "fake_nvtx: a range ends that has not begun\n");
        abort();
    }
    (void)__atomic_sub_fetch(&open, 1, __ATOMIC_ACQ_REL);
    return --depth;
}
