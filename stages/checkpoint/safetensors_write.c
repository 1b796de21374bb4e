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

/* Wide elements first, so that each tensor is aligned to its element; then by name. */
static int compare_entries(const void *left, const void *right)
{
    const struct safetensors_entry *a = left;
    const struct safetensors_entry *b = right;

    if (element_bytes(a->dtype) != element_bytes(b->dtype)) {
        return element_bytes(a->dtype) > element_bytes(b->dtype) ? -1 : 1;
    }
    return strcmp(a->name, b->name);
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
    if (!legal || bytes != entry->bytes || (entry->data == NULL && bytes > 0)) {
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
static enum status put_header(const char *path, const json_t *header, struct file_writer *writer)
{
    enum status status = STATUS_OK;
    unsigned char prefix[PREFIX_BYTES];
    char *text = json_dumps(header, JSON_COMPACT);
    size_t text_bytes = text != NULL ? strlen(text) : 0;
    size_t blanks = (ALIGNMENT - text_bytes % ALIGNMENT) % ALIGNMENT;

    if (text == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "writing safetensors %s: no memory for its header",
                           path);
    }
    for (int i = 0; i < PREFIX_BYTES; i++) {
        prefix[i] = (unsigned char)((text_bytes + blanks) >> (8 * i));
    }
    TRY_OR(done, status, file_writer_put(writer, prefix, sizeof(prefix)));
    TRY_OR(done, status, file_writer_put(writer, text, text_bytes));
    TRY_OR(done, status, file_writer_put(writer, "        ", blanks));
done:
    free(text);
    return status;
}

static enum status put_file(const char *path, const struct safetensors_entry *sorted, size_t count,
                            const json_t *header)
{
    struct file_writer writer;
    enum status status = STATUS_OK;

    TRY(file_writer_open(path, &writer));
    TRY_OR(fail, status, put_header(path, header, &writer));
    for (size_t i = 0; i < count; i++) {
        TRY_OR(fail, status, file_writer_put(&writer, sorted[i].data, sorted[i].bytes));
    }
    return file_writer_commit(&writer);
fail:
    file_writer_discard(&writer);
    return status;
}

enum status safetensors_write(const char *path, const struct safetensors_entry *entries,
                              size_t count, const struct safetensors_note *notes, size_t note_count)
{
    enum status status = STATUS_OK;
    struct safetensors_entry *sorted = calloc(count + 1, sizeof(*sorted));
    json_t *header = json_object();
    size_t begin = 0;

    if (sorted == NULL || header == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "writing safetensors %s: no memory", path);
        goto done;
    }
    for (size_t i = 0; i < count; i++) {
        TRY_OR(done, status, check_entry(path, &entries[i]));
        sorted[i] = entries[i];
    }
    qsort(sorted, count, sizeof(*sorted), compare_entries);
    TRY_OR(done, status, add_notes(path, notes, note_count, header));
    for (size_t i = 0; i < count; i++) {
        TRY_OR(done, status, add_entry(path, &sorted[i], begin, header));
        begin += sorted[i].bytes;
    }
    status = put_file(path, sorted, count, header);
done:
    json_decref(header);
    free(sorted);
    return status;
}
