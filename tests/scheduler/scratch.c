#include "tests/scheduler/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"

void scratch_make(struct scratch *scratch)
{
    (void)snprintf(scratch->path, sizeof(scratch->path), "%s/weir-test-XXXXXX",
                   env_text(ENV_TMPDIR));
    assert_non_null(mkdtemp(scratch->path));
}

void scratch_path(const struct scratch *scratch, const char *name,
                  char path_out[SCRATCH_PATH_BYTES])
{
    int length = snprintf(path_out, SCRATCH_PATH_BYTES, "%s/%s", scratch->path, name);

    assert_in_range(length, 1, SCRATCH_PATH_BYTES - 1);
}

void scratch_folder(const struct scratch *scratch, const char *name)
{
    char path[SCRATCH_PATH_BYTES];

    scratch_path(scratch, name, path);
    assert_int_equal(mkdir(path, 0700), 0);
}

char *scratch_read(const char *path, size_t *bytes_out)
{
    FILE *file = fopen(path, "re");
    struct stat found;
    char *text = NULL;

    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &found), 0);
    text = calloc((size_t)found.st_size + 1, 1);
    assert_non_null(text);
    *bytes_out = fread(text, 1, (size_t)found.st_size, file);
    assert_int_equal(*bytes_out, (size_t)found.st_size);
    (void)fclose(file);
    return text;
}

void scratch_write(const char *path, const char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, text_bytes, file), text_bytes);
    assert_int_equal(fclose(file), 0);
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found;
    (void)kind;
    (void)walk;
    return remove(path);
}

void scratch_remove(struct scratch *scratch)
{
    assert_int_equal(nftw(scratch->path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}
