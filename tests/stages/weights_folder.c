#include "tests/stages/weights_folder.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

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

json_t *weights_read_json(const char *name)
{
    json_error_t error;
    json_t *object = json_load_file(weights_inside(name), JSON_REJECT_DUPLICATES, &error);

    if (object == NULL) {
        fail_msg("%s: %s", name, error.text);
    }
    return object;
}
