#include "stages/metrics_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* Whether a line is whole and of a step. */
static bool read_step(const char *line, size_t bytes, int64_t *step_out)
{
    static const char begin[] = "{\"step\":";
    char *end = NULL;

    if (bytes < sizeof(begin) || line[bytes - 1] != '\n' || line[bytes - 2] != '}' ||
        strncmp(line, begin, sizeof(begin) - 1) != 0) {
        return false;
    }
    *step_out = strtoll(line + sizeof(begin) - 1, &end, 10);
    return *end == ',' && *step_out > 0;
}

int64_t metrics_file_last(const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t got = 0;
    int64_t last = 0;

    while (file != NULL && (got = getline(&line, &room, file)) > 0) {
        int64_t step = 0;

        if (read_step(line, (size_t)got, &step)) {
            last = step;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(line);
    return last;
}

static enum status copy_lines(FILE *file, int64_t step, struct file_writer *writer)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t got = 0;
    enum status status = STATUS_OK;

    while (file != NULL && status >= 0 && (got = getline(&line, &room, file)) > 0) {
        int64_t of = 0;

        if (read_step(line, (size_t)got, &of) && of <= step) {
            status = file_writer_put(writer, line, (size_t)got);
        }
    }
    free(line);
    return status;
}

enum status metrics_file_cut(const char *path, const char *header, int64_t step)
{
    struct file_writer writer;
    FILE *file = NULL;
    enum status status = STATUS_OK;

    TRY(file_writer_open(path, &writer));
    file = fopen(path, "re");
    if (file == NULL && errno != ENOENT) {
        status = status_fail(STATUS_ERR_IO, "reading %s: %s", path, strerror(errno));
        goto done;
    }
    TRY_OR(done, status, file_writer_put(&writer, header, strlen(header)));
    TRY_OR(done, status, file_writer_put(&writer, "\n", 1));
    TRY_OR(done, status, copy_lines(file, step, &writer));
    status = file_writer_commit(&writer);
done:
    file_writer_discard(&writer);
    if (file != NULL) {
        (void)fclose(file);
    }
    return status;
}
