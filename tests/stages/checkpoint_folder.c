#include "tests/stages/checkpoint_folder.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"

#define PATHS 4

static char directory[64];

int checkpoint_folder_make(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/weir-checkpoint-XXXXXX");
    return mkdtemp(directory) != NULL ? 0 : -1;
}

int checkpoint_folder_remove(void **state)
{
    (void)state;
    return folder_remove(directory) == STATUS_OK ? 0 : -1;
}

const char *checkpoint_folder(void)
{
    return directory;
}

const char *checkpoint_folder_path(const char *name)
{
    static char paths[PATHS][256];
    static int next;
    char *path = paths[next++ % PATHS];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
    return path;
}

void checkpoint_folder_damage(const char *name, long at)
{
    FILE *file = fopen(checkpoint_folder_path(name), "r+");
    int byte = 0;

    assert_non_null(file);
    assert_int_equal(fseek(file, -at, SEEK_END), 0);
    byte = fgetc(file);
    assert_int_equal(fseek(file, -at, SEEK_END), 0);
    assert_int_not_equal(fputc(byte ^ 1, file), EOF);
    assert_int_equal(fclose(file), 0);
}

void checkpoint_folder_write(const char *name, const char *text)
{
    FILE *file = fopen(checkpoint_folder_path(name), "w");

    assert_non_null(file);
    assert_int_not_equal(fputs(text, file), EOF);
    assert_int_equal(fclose(file), 0);
}
