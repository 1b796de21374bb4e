#include "stages/checkpoint/contents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "stages/checkpoint/shard.h"

/* A part of a tensor as one file has it. */
struct part {
    char name[PARAM_NAME_BYTES];
    struct param_shard place;
    int64_t rows;
    int64_t cols;
    size_t first;
    size_t elems;
    int32_t moments; /* -1: the second and not the first */
};

struct parts {
    struct part *list; /* owns */
    size_t count;
};

static int32_t moments_of(const struct shard_tensor *tensor)
{
    if (tensor->moment1 == NULL) {
        return tensor->moment2 == NULL ? 0 : -1;
    }
    return tensor->moment2 == NULL ? 1 : 2;
}

static enum status add_parts(const struct shard *shard, struct parts *parts)
{
    size_t count = shard_count(shard);
    struct part *list = realloc(parts->list, (parts->count + count + 1) * sizeof(*list));

    if (list == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "checkpoint: no memory for %zu parts",
                           parts->count + count);
    }
    parts->list = list;
    for (size_t i = 0; i < count; i++) {
        const struct shard_tensor *tensor = shard_at(shard, i);
        struct part *part = &parts->list[parts->count++];

        *part = (struct part){
            .place = tensor->place,
            .rows = tensor->rows,
            .cols = tensor->cols,
            .first = tensor->first,
            .elems = tensor->elems,
            .moments = moments_of(tensor),
        };
        (void)snprintf(part->name, sizeof(part->name), "%s", tensor->name);
    }
    return STATUS_OK;
}

static enum status read_file(const char *folder, const struct manifest *manifest, int32_t rank,
                             bool sums, struct parts *parts)
{
    char name[SHARD_NAME_BYTES];
    char path[FILE_PATH_BYTES];
    struct shard *shard = NULL;
    enum status status = STATUS_OK;

    manifest_shard_name(&manifest->layout, rank, name);
    TRY(folder_path(folder, name, path));
    TRY(sums ? shard_open(path, &manifest->files[rank], &shard)
             : shard_open_unsummed(path, &shard));
    status = add_parts(shard, parts);
    shard_close(&shard);
    return status;
}

static int compare_numbers(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

/* By name, then by the place of the shard that a part is of, then by the part's place in it. */
static int compare_parts(const void *left, const void *right)
{
    const struct part *a = left;
    const struct part *b = right;
    int order = strcmp(a->name, b->name);

    order = order != 0 ? order : compare_numbers(a->place.first_row, b->place.first_row);
    order = order != 0 ? order : compare_numbers(a->place.first_col, b->place.first_col);
    order = order != 0 ? order : compare_numbers(a->rows, b->rows);
    order = order != 0 ? order : compare_numbers(a->cols, b->cols);
    order = order != 0 ? order : compare_numbers((int64_t)a->first, (int64_t)b->first);
    return order != 0 ? order : compare_numbers((int64_t)a->elems, (int64_t)b->elems);
}

/* Of the same shard of a tensor. */
static bool same_shard(const struct part *a, const struct part *b)
{
    return strcmp(a->name, b->name) == 0 && memcmp(&a->place, &b->place, sizeof(a->place)) == 0 &&
           a->rows == b->rows && a->cols == b->cols;
}

static enum status refuse(const char *folder, const char *name, const char *cause)
{
    return status_fail(STATUS_ERR_REFUSED, "%s: the checkpoint is damaged: tensor %s: %s", folder,
                       name, cause);
}

/* The parts of one shard, from `parts` on, follow one another without holes; *count_out of them, copies
 * included. */
static enum status join_shard(const char *folder, const struct part *parts, size_t count,
                              size_t *count_out, int32_t *different)
{
    size_t whole = (size_t)(parts->rows * parts->cols);
    size_t next = 0;
    size_t i = 0;

    for (; i < count && same_shard(parts, &parts[i]); i++) {
        bool copy =
            i > 0 && parts[i].first == parts[i - 1].first && parts[i].elems == parts[i - 1].elems;

        if (copy) {
            continue;
        }
        if (parts[i].first != next) {
            return refuse(folder, parts->name, "its parts leave a hole, or overlap");
        }
        next += parts[i].elems;
        (*different)++;
    }
    *count_out = i;
    return next == whole ? STATUS_OK
                         : refuse(folder, parts->name, "the end of one of its shards is missing");
}

/* All shards of one tensor; they lie apart, so that they are whole where their sizes add up to it. */
static enum status join_tensor(const char *folder, const struct part *parts, size_t count,
                               size_t *count_out, struct contents_tensor *tensor)
{
    int64_t elems = 0;
    size_t i = 0;

    *tensor = (struct contents_tensor){
        .rows = parts->place.whole_rows,
        .cols = parts->place.whole_cols,
        .moments = parts->moments,
    };
    (void)snprintf(tensor->name, sizeof(tensor->name), "%s", parts->name);
    while (i < count && strcmp(parts[i].name, parts->name) == 0) {
        size_t of_shard = 0;

        if (parts[i].place.whole_rows != tensor->rows ||
            parts[i].place.whole_cols != tensor->cols || parts[i].moments != tensor->moments ||
            parts[i].moments < 0) {
            return refuse(folder, tensor->name, "its parts have different shapes or moments");
        }
        TRY(join_shard(folder, &parts[i], count - i, &of_shard, &tensor->parts));
        elems += parts[i].rows * parts[i].cols;
        i += of_shard;
    }
    *count_out = i;
    return elems == tensor->rows * tensor->cols
               ? STATUS_OK
               : refuse(folder, tensor->name, "its shards do not make up the whole");
}

static enum status join_all(const char *folder, struct parts *parts, struct contents *contents)
{
    size_t i = 0;

    contents->tensors = calloc(parts->count + 1, sizeof(*contents->tensors));
    if (contents->tensors == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "checkpoint: no memory for %zu tensors",
                           parts->count);
    }
    if (parts->count > 0) {
        qsort(parts->list, parts->count, sizeof(*parts->list), compare_parts);
    }
    while (i < parts->count) {
        struct contents_tensor *tensor = &contents->tensors[contents->count];
        size_t of_tensor = 0;

        TRY(join_tensor(folder, &parts->list[i], parts->count - i, &of_tensor, tensor));
        contents->elems += tensor->rows * tensor->cols;
        contents->count++;
        i += of_tensor;
    }
    return STATUS_OK;
}

enum status contents_read(const char *folder, const struct manifest *manifest, bool sums,
                          struct contents *contents_out)
{
    struct parts parts = {.list = NULL};
    enum status status = STATUS_OK;

    *contents_out = (struct contents){.tensors = NULL};
    for (int32_t rank = 0; rank < manifest_files(manifest) && status >= 0; rank++) {
        status = read_file(folder, manifest, rank, sums, &parts);
    }
    if (status >= 0) {
        status = join_all(folder, &parts, contents_out);
    }
    if (status < 0) {
        contents_release(contents_out);
    }
    free(parts.list);
    return status;
}

void contents_release(struct contents *contents)
{
    free(contents->tensors);
    *contents = (struct contents){.tensors = NULL};
}
