#include "stages/checkpoint/contents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "stages/checkpoint/cover.h"
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
    int32_t file;    /* by rank */
    int32_t shard;   /* whose file it is */
    int32_t stage;   /* likewise */
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

static enum status add_parts(const struct shard *shard, int32_t file,
                             const struct grid_shape *layout, struct parts *parts)
{
    size_t count = shard_count(shard);
    struct grid grid;
    struct part *list = realloc(parts->list, (parts->count + count + 1) * sizeof(*list));

    if (list == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "checkpoint: no memory for %zu parts",
                           parts->count + count);
    }
    parts->list = list;
    TRY(grid_init(&grid, layout, file, layout->pp * layout->tp * layout->dp));
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
            .file = file,
            .shard = grid.tp,
            .stage = grid.pp,
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
    TRY(sums ? shard_open(path, &manifest->files[rank], NULL, &shard)
             : shard_open_unsummed(path, &shard));
    status = add_parts(shard, rank, &manifest->layout, parts);
    shard_close(&shard);
    return status;
}

static int compare_numbers(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

/* By name, then by the place in the whole, then by the shard whose files have it. */
static int compare_parts(const void *left, const void *right)
{
    const struct part *a = left;
    const struct part *b = right;
    int order = strcmp(a->name, b->name);

    order = order != 0 ? order : compare_numbers(a->place.first_row, b->place.first_row);
    order = order != 0 ? order : compare_numbers(a->place.first_col, b->place.first_col);
    order = order != 0 ? order : compare_numbers(a->rows, b->rows);
    order = order != 0 ? order : compare_numbers(a->cols, b->cols);
    order = order != 0 ? order : compare_numbers(a->place.blocks, b->place.blocks);
    order = order != 0 ? order : compare_numbers(a->shard, b->shard);
    return order != 0 ? order : compare_numbers(a->file, b->file);
}

static bool same_place(const struct part *a, const struct part *b)
{
    return memcmp(&a->place, &b->place, sizeof(a->place)) == 0 && a->rows == b->rows &&
           a->cols == b->cols;
}

static enum status refuse(const char *folder, const char *name, const char *cause)
{
    return status_fail(STATUS_ERR_REFUSED, "%s: the checkpoint is damaged: tensor %s: %s", folder,
                       name, cause);
}

/* What is joined, with memory for it. */
struct joining {
    const char *folder;
    const struct grid_shape *layout;
    struct cover part;  /* owns; of what the files of one shard have at one place */
    struct cover whole; /* owns; of the tensor */
};

/* The part of the whole that the place is, stretch by stretch. */
static enum status cover_place(struct joining *joining, const struct part *part)
{
    const struct param place = {
        .rows = part->rows,
        .cols = part->cols,
        .elems = (size_t)(part->rows * part->cols),
        .shard = part->place,
    };

    for (int64_t r = 0; r < param_runs(&place); r++) {
        struct param_run run = param_run_at(&place, r);

        TRY(cover_add(&joining->whole, run.whole, run.elems, part->file));
    }
    return STATUS_OK;
}

/* What the files of one shard have at one place of a tensor, from `parts` on: as whoever loads that shard
 * needs it. *count_out of them. */
static enum status join_shard(struct joining *joining, const struct part *parts, size_t count,
                              size_t *count_out)
{
    const struct cover_whole of = {
        .folder = joining->folder,
        .layout = joining->layout,
        .name = parts->name,
        .shard = joining->layout->tp > 1 ? parts->shard : -1,
        .elems = (size_t)(parts->rows * parts->cols),
    };
    size_t i = 0;

    cover_clear(&joining->part);
    for (; i < count && strcmp(parts->name, parts[i].name) == 0 && same_place(parts, &parts[i]) &&
           parts->shard == parts[i].shard;
         i++) {
        if (parts[i].stage != parts->stage || parts[i].moments != parts->moments) {
            return refuse(joining->folder, parts->name,
                          parts[i].stage != parts->stage
                              ? "its parts are in the files of several stages"
                              : "its parts have different shapes or moments");
        }
        TRY(cover_add(&joining->part, parts[i].first, parts[i].elems, parts[i].file));
    }
    *count_out = i;
    return cover_check(&joining->part, &of);
}

/* Adds the parts of one shard at one place. What shards have in common is in the files of each, and counts
 * once: `before` is of the last place, NULL where there is none. */
static enum status add_shard(struct joining *joining, const struct part *before,
                             const struct part *part, size_t parts, struct contents_tensor *tensor)
{
    if (part->place.whole_rows != tensor->rows || part->place.whole_cols != tensor->cols ||
        part->moments != tensor->moments || part->moments < 0) {
        return refuse(joining->folder, tensor->name, "its parts have different shapes or moments");
    }
    if (before != NULL && before->stage != part->stage) {
        return refuse(joining->folder, tensor->name,
                      "its parts are in the files of several stages");
    }
    if (before != NULL && same_place(before, part)) {
        return STATUS_OK;
    }
    tensor->parts += (int32_t)parts;
    return cover_place(joining, part);
}

/* All parts of one tensor, from `parts` on; *count_out of them. */
static enum status join_tensor(struct joining *joining, const struct part *parts, size_t count,
                               size_t *count_out, struct contents_tensor *tensor)
{
    const struct part *before = NULL;
    int32_t shards = 0;
    struct cover_whole of = {
        .folder = joining->folder, .layout = joining->layout, .name = parts->name, .shard = -1};
    size_t i = 0;

    *tensor = (struct contents_tensor){
        .rows = parts->place.whole_rows,
        .cols = parts->place.whole_cols,
        .moments = parts->moments,
    };
    (void)snprintf(tensor->name, sizeof(tensor->name), "%s", parts->name);
    cover_clear(&joining->whole);
    while (i < count && strcmp(parts[i].name, parts->name) == 0) {
        size_t of_shard = 0;

        TRY(join_shard(joining, &parts[i], count - i, &of_shard));
        TRY(add_shard(joining, before, &parts[i], of_shard, tensor));
        before = &parts[i];
        i += of_shard;
        shards++;
    }
    *count_out = i;
    if (parts->rows == tensor->rows && parts->cols == tensor->cols &&
        shards != joining->layout->tp) {
        return refuse(joining->folder, tensor->name, "it is not in the files of every shard");
    }
    of.elems = (size_t)(tensor->rows * tensor->cols);
    return cover_check(&joining->whole, &of);
}

static enum status join_all(struct joining *joining, struct parts *parts, struct contents *contents)
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

        TRY(join_tensor(joining, &parts->list[i], parts->count - i, &of_tensor, tensor));
        contents->elems += tensor->rows * tensor->cols;
        contents->count++;
        i += of_tensor;
    }
    return STATUS_OK;
}

enum status contents_read(const char *folder, const struct manifest *manifest, bool sums,
                          struct contents *contents_out)
{
    struct joining joining = {.folder = folder, .layout = &manifest->layout};
    struct parts parts = {.list = NULL};
    enum status status = STATUS_OK;

    *contents_out = (struct contents){.tensors = NULL};
    for (int32_t rank = 0; rank < manifest_files(manifest) && status >= 0; rank++) {
        status = read_file(folder, manifest, rank, sums, &parts);
    }
    if (status >= 0) {
        status = join_all(&joining, &parts, contents_out);
    }
    if (status < 0) {
        contents_release(contents_out);
    }
    cover_release(&joining.part);
    cover_release(&joining.whole);
    free(parts.list);
    return status;
}

void contents_release(struct contents *contents)
{
    free(contents->tensors);
    *contents = (struct contents){.tensors = NULL};
}
