#include "tests/stages/weights_folder.h"

#include "tests/scheduler/scratch.h"

static struct scratch folder;

int weights_folder_make(void **state)
{
    (void)state;
    scratch_make(&folder);
    return 0;
}

int weights_folder_remove(void **state)
{
    (void)state;
    scratch_remove(&folder);
    return 0;
}

const char *weights_folder(void)
{
    return folder.path;
}

const char *weights_inside(const char *name)
{
    static char path[SCRATCH_PATH_BYTES];

    scratch_path(&folder, name, path);
    return path;
}
