#include "stages/checkpoint/cover.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "stages/checkpoint/manifest.h"

#define ROOM_FIRST 8

enum status cover_add(struct cover *cover, size_t first, size_t elems, int32_t file)
{
    ENSURE(elems <= SIZE_MAX - first, "elements %zu and %zu more", first, elems);
    if (cover->count == cover->room) {
        size_t room = cover->room > 0 ? 2 * cover->room : ROOM_FIRST;
        struct cover_range *ranges = realloc(cover->ranges, room * sizeof(*ranges));

        if (ranges == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "checkpoint: no memory for %zu ranges", room);
        }
        cover->ranges = ranges;
        cover->room = room;
    }
    cover->ranges[cover->count++] =
        (struct cover_range){.first = first, .elems = elems, .file = file};
    return STATUS_OK;
}

static int compare_numbers(size_t a, size_t b)
{
    return a < b ? -1 : a > b;
}

/* In a fixed order, so that of the same files the same is said. */
static int compare_ranges(const void *left, const void *right)
{
    const struct cover_range *a = left;
    const struct cover_range *b = right;
    int order = compare_numbers(a->first, b->first);

    order = order != 0 ? order : compare_numbers(a->elems, b->elems);
    return order != 0 ? order : compare_numbers((size_t)a->file, (size_t)b->file);
}

/* Elements `begin` … end - 1 of it are `what`. */
static enum status refuse(const struct cover_whole *whole, size_t begin, size_t end,
                          const char *what)
{
    char shard[32] = "";

    if (whole->shard >= 0) {
        (void)snprintf(shard, sizeof(shard), ", shard %d", whole->shard);
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "%s: the checkpoint is damaged: tensor %s%s: of its elements 0 to %zu, %zu "
                       "to %zu are %s",
                       whole->folder, whole->name, shard, whole->elems - 1, begin, end - 1, what);
}

/* `before`: the range that ends where the hole begins; NULL where it begins with element 0. */
static enum status refuse_hole(const struct cover_whole *whole, const struct cover_range *before,
                               size_t begin, size_t end)
{
    char name[SHARD_NAME_BYTES];
    char what[2 * SHARD_NAME_BYTES] = "in no file";

    if (before != NULL) {
        manifest_shard_name(whole->layout, before->file, name);
        (void)snprintf(what, sizeof(what), "in no file; %s has those before them", name);
    }
    return refuse(whole, begin, end, what);
}

static enum status refuse_overlap(const struct cover_whole *whole, const struct cover_range *before,
                                  const struct cover_range *range)
{
    size_t before_end = before->first + before->elems;
    size_t range_end = range->first + range->elems;
    char first[SHARD_NAME_BYTES];
    char second[SHARD_NAME_BYTES];
    char what[3 * SHARD_NAME_BYTES];

    manifest_shard_name(whole->layout, before->file, first);
    manifest_shard_name(whole->layout, range->file, second);
    (void)snprintf(what, sizeof(what), "in %s and again in %s", first, second);
    return refuse(whole, range->first, before_end < range_end ? before_end : range_end, what);
}

static enum status refuse_end(const struct cover_whole *whole, const struct cover_range *range)
{
    char name[SHARD_NAME_BYTES];

    manifest_shard_name(whole->layout, range->file, name);
    return status_fail(STATUS_ERR_REFUSED,
                       "%s: the checkpoint is damaged: tensor %s has %zu elements, and %s has %zu "
                       "to %zu",
                       whole->folder, whole->name, whole->elems, name, range->first,
                       range->first + range->elems - 1);
}

enum status cover_check(struct cover *cover, const struct cover_whole *whole)
{
    const struct cover_range *before = NULL;
    size_t next = 0;

    if (cover->count > 0) {
        qsort(cover->ranges, cover->count, sizeof(*cover->ranges), compare_ranges);
    }
    for (size_t i = 0; i < cover->count; i++) {
        const struct cover_range *range = &cover->ranges[i];

        if (range->elems == 0) {
            continue;
        }
        if (range->first > next && next < whole->elems) {
            return refuse_hole(whole, before, next,
                               range->first < whole->elems ? range->first : whole->elems);
        }
        if (range->first < next) {
            return refuse_overlap(whole, before, range);
        }
        next = range->first + range->elems;
        if (next > whole->elems) {
            return refuse_end(whole, range);
        }
        before = range;
    }
    return next == whole->elems ? STATUS_OK : refuse_hole(whole, before, next, whole->elems);
}

void cover_clear(struct cover *cover)
{
    cover->count = 0;
}

void cover_release(struct cover *cover)
{
    free(cover->ranges);
    *cover = (struct cover){.ranges = NULL};
}
