/* The writing half of stages/checkpoint/safetensors.h. */
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "stages/checkpoint/safetensors.h"

#define PREFIX_BYTES 8
#define ALIGNMENT    8
#define METADATA     "__metadata__"

static const char *dtype_name(enum safetensors_dtype dtype)
{
    switch (dtype) {
    case SAFETENSORS_F32:
        return "F32";
    case SAFETENSORS_F64:
        return "F64";
    case SAFETENSORS_I32:
        return "I32";
    case SAFETENSORS_OTHER:
        break;
    }
    return NULL;
}

static size_t element_bytes(enum safetensors_dtype dtype)
{
    return dtype == SAFETENSORS_F64 ? sizeof(double) : sizeof(float);
}

/* An entry and its place among those that were given. */
struct placed {
    const struct safetensors_entry *entry;
    size_t given;
};

/* Wide elements first, so that each tensor is aligned to its element; then by name. */
static int compare_placed(const void *left, const void *right)
{
    const struct safetensors_entry *a = ((const struct placed *)left)->entry;
    const struct safetensors_entry *b = ((const struct placed *)right)->entry;

    if (element_bytes(a->dtype) != element_bytes(b->dtype)) {
        return element_bytes(a->dtype) > element_bytes(b->dtype) ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* The entries in the order of the file; the caller frees it. NULL: no memory. */
static struct placed *sort_entries(const struct safetensors_entry *entries, size_t count)
{
    struct placed *sorted = calloc(count + 1, sizeof(*sorted));

    for (size_t i = 0; sorted != NULL && i < count; i++) {
        sorted[i] = (struct placed){.entry = &entries[i], .given = i};
    }
    if (sorted != NULL) {
        qsort(sorted, count, sizeof(*sorted), compare_placed);
    }
    return sorted;
}

static enum status check_entry(const char *path, const struct safetensors_entry *entry)
{
    size_t bytes = element_bytes(entry->dtype);
    bool legal = dtype_name(entry->dtype) != NULL && entry->dims >= 0 &&
                 entry->dims <= SAFETENSORS_DIMS_MOST && strcmp(entry->name, METADATA) != 0;

    for (int32_t i = 0; legal && i < entry->dims; i++) {
        legal =
            entry->shape[i] >= 0 && !__builtin_mul_overflow(bytes, (size_t)entry->shape[i], &bytes);
    }
    if (!legal || bytes != entry->bytes) {
        return status_fail(STATUS_ERR_INVALID,
                           "writing safetensors %s: tensor %s: expected F32, F64 or I32 of at most "
                           "%d dimensions with the bytes of its shape, found %zu bytes in %" PRId32
                           " dimensions",
                           path, entry->name, SAFETENSORS_DIMS_MOST, entry->bytes, entry->dims);
    }
    return STATUS_OK;
}

/* Adds `value` (taken) under a name that must be new and UTF-8. */
static enum status add_new(const char *path, json_t *object, const char *name, json_t *value)
{
    if (json_object_get(object, name) != NULL) {
        json_decref(value);
        return status_fail(STATUS_ERR_INVALID, "writing safetensors %s: %s is given twice", path,
                           name);
    }
    if (json_object_set_new(object, name, value) != 0) {
        return status_fail(STATUS_ERR_INVALID,
                           "writing safetensors %s: %s: expected UTF-8 in name and value, or there "
                           "is no memory",
                           path, name);
    }
    return STATUS_OK;
}

static enum status add_notes(const char *path, const struct safetensors_note *notes,
                             size_t note_count, json_t *header)
{
    json_t *metadata = json_object();

    TRY(add_new(path, header, METADATA, metadata));
    /* Loaders of the Python world ask for it. */
    TRY(add_new(path, metadata, "format", json_string("pt")));
    for (size_t i = 0; i < note_count; i++) {
        TRY(add_new(path, metadata, notes[i].key, json_string(notes[i].value)));
    }
    return STATUS_OK;
}

static enum status add_entry(const char *path, const struct safetensors_entry *entry, size_t begin,
                             json_t *header)
{
    json_t *tensor = NULL;
    json_t *shape = json_array();

    for (int32_t i = 0; i < entry->dims; i++) {
        (void)json_array_append_new(shape, json_integer(entry->shape[i]));
    }
    /* Takes `shape`; NULL where any part of it found no memory, which add_new() reports. */
    tensor =
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_name(entry->dtype), "shape", shape,
                  "data_offsets", (json_int_t)begin, (json_int_t)begin + (json_int_t)entry->bytes);
    if (tensor != NULL &&
        json_array_size(json_object_get(tensor, "shape")) != (size_t)entry->dims) {
        json_decref(tensor);
        tensor = NULL;
    }
    return add_new(path, header, entry->name, tensor);
}

/* Length, JSON and blanks up to a multiple of 8. */
static enum status print_header(const char *path, const json_t *header,
                                struct safetensors_layout *layout)
{
    char *text = json_dumps(header, JSON_COMPACT);
    size_t text_bytes = text != NULL ? strlen(text) : 0;
    size_t blanks = (ALIGNMENT - text_bytes % ALIGNMENT) % ALIGNMENT;

    layout->header_bytes = PREFIX_BYTES + text_bytes + blanks;
    layout->header = text != NULL ? malloc(layout->header_bytes) : NULL;
    if (layout->header == NULL) {
        free(text);
        return status_fail(STATUS_ERR_NO_MEMORY, "writing safetensors %s: no memory for its header",
                           path);
    }
    for (int i = 0; i < PREFIX_BYTES; i++) {
        layout->header[i] = (char)((text_bytes + blanks) >> (8 * i));
    }
    memcpy(layout->header + PREFIX_BYTES, text, text_bytes);
    memset(layout->header + PREFIX_BYTES + text_bytes, ' ', blanks);
    free(text);
    return STATUS_OK;
}

static enum status lay_out(const char *path, const struct placed *sorted, size_t count,
                           json_t *header, struct safetensors_layout *layout)
{
    size_t begin = 0;

    for (size_t i = 0; i < count; i++) {
        TRY(check_entry(path, sorted[i].entry));
        TRY(add_entry(path, sorted[i].entry, begin, header));
        layout->at[sorted[i].given] = begin;
        begin += sorted[i].entry->bytes;
    }
    TRY(print_header(path, header, layout));
    for (size_t i = 0; i < count; i++) {
        layout->at[i] += layout->header_bytes;
    }
    layout->file_bytes = layout->header_bytes + begin;
    return STATUS_OK;
}

enum status safetensors_layout_make(const char *path, const struct safetensors_entry *entries,
                                    size_t count, const struct safetensors_note *notes,
                                    size_t note_count, struct safetensors_layout *layout_out)
{
    enum status status = STATUS_OK;
    struct placed *sorted = sort_entries(entries, count);
    json_t *header = json_object();

    *layout_out = (struct safetensors_layout){.at = calloc(count + 1, sizeof(*layout_out->at))};
    if (sorted == NULL || header == NULL || layout_out->at == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "writing safetensors %s: no memory", path);
        goto done;
    }
    TRY_OR(done, status, add_notes(path, notes, note_count, header));
    status = lay_out(path, sorted, count, header, layout_out);
done:
    if (status < 0) {
        safetensors_layout_release(layout_out);
    }
    json_decref(header);
    free(sorted);
    return status;
}

void safetensors_layout_release(struct safetensors_layout *layout)
{
    free(layout->header);
    free(layout->at);
    *layout = (struct safetensors_layout){.header = NULL};
}

static enum status put_file(const char *path, const struct safetensors_layout *layout,
                            const struct placed *sorted, size_t count)
{
    struct file_writer writer;
    enum status status = STATUS_OK;

    TRY(file_writer_open(path, &writer));
    TRY_OR(fail, status, file_writer_put(&writer, layout->header, layout->header_bytes));
    for (size_t i = 0; i < count; i++) {
        TRY_OR(fail, status,
               file_writer_put(&writer, sorted[i].entry->data, sorted[i].entry->bytes));
    }
    return file_writer_commit(&writer);
fail:
    file_writer_discard(&writer);
    return status;
}

static enum status check_data(const char *path, const struct safetensors_entry *entries,
                              size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (entries[i].data == NULL && entries[i].bytes > 0) {
            return status_fail(STATUS_ERR_INVALID,
                               "writing safetensors %s: tensor %s: expected %zu bytes, found none",
                               path, entries[i].name, entries[i].bytes);
        }
    }
    return STATUS_OK;
}

enum status safetensors_write(const char *path, const struct safetensors_entry *entries,
                              size_t count, const struct safetensors_note *notes, size_t note_count)
{
    enum status status = STATUS_OK;
    struct safetensors_layout layout = {.header = NULL};
    struct placed *sorted = NULL;

    TRY(safetensors_layout_make(path, entries, count, notes, note_count, &layout));
    sorted = sort_entries(entries, count);
    if (sorted == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "writing safetensors %s: no memory", path);
        goto done;
    }
    TRY_OR(done, status, check_data(path, entries, count));
    status = put_file(path, &layout, sorted, count);
done:
    free(sorted);
    safetensors_layout_release(&layout);
    return status;
}
