#include "stages/checkpoint/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define PREFIX_BYTES      8 /* the header's length, little-endian */
#define HEADER_BYTES_MOST ((uint64_t)100000000)
#define METADATA          "__metadata__"

struct safetensors {
    char *path;                        /* owns; for messages */
    struct file_map map;               /* owns */
    json_t *header;                    /* owns */
    struct safetensors_entry *entries; /* owns; by name */
    size_t count;
    const char *data; /* behind the header; lends from `map` */
    size_t data_bytes;
};

struct dtype {
    const char *name;
    size_t bits;
    enum safetensors_dtype kind;
};

static const struct dtype dtypes[] = {
    {"F32", 32, SAFETENSORS_F32},          {"F64", 64, SAFETENSORS_F64},
    {"I32", 32, SAFETENSORS_I32},          {"BOOL", 8, SAFETENSORS_OTHER},
    {"U8", 8, SAFETENSORS_OTHER},          {"I8", 8, SAFETENSORS_OTHER},
    {"I16", 16, SAFETENSORS_OTHER},        {"U16", 16, SAFETENSORS_OTHER},
    {"F16", 16, SAFETENSORS_OTHER},        {"BF16", 16, SAFETENSORS_OTHER},
    {"U32", 32, SAFETENSORS_OTHER},        {"I64", 64, SAFETENSORS_OTHER},
    {"U64", 64, SAFETENSORS_OTHER},        {"C64", 64, SAFETENSORS_OTHER},
    {"F8_E5M2", 8, SAFETENSORS_OTHER},     {"F8_E4M3", 8, SAFETENSORS_OTHER},
    {"F8_E8M0", 8, SAFETENSORS_OTHER},     {"F8_E5M2FNUZ", 8, SAFETENSORS_OTHER},
    {"F8_E4M3FNUZ", 8, SAFETENSORS_OTHER}, {"F6_E2M3", 6, SAFETENSORS_OTHER},
    {"F6_E3M2", 6, SAFETENSORS_OTHER},     {"F4", 4, SAFETENSORS_OTHER}};

static enum status refuse(const struct safetensors *file, const char *name, const char *cause)
{
    return status_fail(STATUS_ERR_REFUSED, "safetensors %s: tensor %.*s: %s", file->path,
                       SAFETENSORS_NAME_BYTES, name, cause);
}

static const struct dtype *find_dtype(const json_t *value)
{
    const char *name = json_string_value(value);

    for (size_t i = 0; name != NULL && i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            return &dtypes[i];
        }
    }
    return NULL;
}

/* A number of the header that counts something; false for anything else. */
static bool read_count(const json_t *value, int64_t *count_out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *count_out = json_integer_value(value);
    return true;
}

/* Dimensions into the entry, and the bytes that they ask for. */
static enum status read_shape(const struct safetensors *file, const json_t *shape,
                              const struct dtype *dtype, struct safetensors_entry *entry)
{
    size_t bits = dtype->bits;

    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_DIMS_MOST) {
        return refuse(file, entry->name, "expected a shape of at most 8 dimensions");
    }
    entry->dims = (int32_t)json_array_size(shape);
    for (int32_t i = 0; i < entry->dims; i++) {
        if (!read_count(json_array_get(shape, (size_t)i), &entry->shape[i])) {
            return refuse(file, entry->name, "expected dimensions that are integers from 0");
        }
        if (__builtin_mul_overflow(bits, (size_t)entry->shape[i], &bits)) {
            return refuse(file, entry->name, "its shape asks for more bytes than there are");
        }
    }
    if (bits % 8 != 0) {
        return refuse(file, entry->name, "its shape does not fill whole bytes");
    }
    entry->bytes = bits / 8;
    return STATUS_OK;
}

static enum status read_offsets(const struct safetensors *file, const json_t *offsets,
                                struct safetensors_entry *entry)
{
    int64_t begin = 0;
    int64_t end = 0;

    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !read_count(json_array_get(offsets, 0), &begin) ||
        !read_count(json_array_get(offsets, 1), &end)) {
        return refuse(file, entry->name, "expected data_offsets [begin, end], integers from 0");
    }
    if (begin > end || (size_t)end > file->data_bytes) {
        return status_fail(STATUS_ERR_REFUSED,
                           "safetensors %s: tensor %s: data_offsets [%" PRId64 ", %" PRId64
                           "] do not lie in order within the %zu bytes of data",
                           file->path, entry->name, begin, end, file->data_bytes);
    }
    if ((size_t)(end - begin) != entry->bytes) {
        return status_fail(STATUS_ERR_REFUSED,
                           "safetensors %s: tensor %s: expected %zu bytes for its shape and dtype, "
                           "found %" PRId64 " in data_offsets",
                           file->path, entry->name, entry->bytes, end - begin);
    }
    entry->data = file->data + begin;
    return STATUS_OK;
}

static enum status read_entry(const struct safetensors *file, const char *name, const json_t *value,
                              struct safetensors_entry *entry)
{
    const struct dtype *dtype = NULL;

    if (strlen(name) >= sizeof(entry->name)) {
        return refuse(file, name, "expected a name of less than 128 bytes");
    }
    memcpy(entry->name, name, strlen(name) + 1);
    if (!json_is_object(value) || json_object_size(value) != 3) {
        return refuse(file, name, "expected exactly dtype, shape and data_offsets");
    }
    dtype = find_dtype(json_object_get(value, "dtype"));
    if (dtype == NULL) {
        const char *found = json_string_value(json_object_get(value, "dtype"));

        return status_fail(STATUS_ERR_REFUSED,
                           "safetensors %s: tensor %s: expected a dtype of the format, found %.32s",
                           file->path, name, found != NULL ? found : "none");
    }
    entry->dtype = dtype->kind;
    TRY(read_shape(file, json_object_get(value, "shape"), dtype, entry));
    return read_offsets(file, json_object_get(value, "data_offsets"), entry);
}

static enum status check_metadata(const struct safetensors *file, json_t *metadata)
{
    const char *key = NULL;
    json_t *value = NULL;

    if (!json_is_object(metadata)) {
        return refuse(file, METADATA, "expected an object of strings");
    }
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value)) {
            return status_fail(STATUS_ERR_REFUSED, "safetensors %s: %s: %.64s: expected a string",
                               file->path, METADATA, key);
        }
    }
    return STATUS_OK;
}

static enum status read_entries(struct safetensors *file)
{
    const char *name = NULL;
    json_t *value = NULL;

    file->entries = calloc(json_object_size(file->header) + 1, sizeof(*file->entries));
    if (file->entries == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "safetensors %s: no memory for %zu entries",
                           file->path, json_object_size(file->header));
    }
    json_object_foreach(file->header, name, value)
    {
        bool is_metadata = strcmp(name, METADATA) == 0;

        TRY(is_metadata ? check_metadata(file, value)
                        : read_entry(file, name, value, &file->entries[file->count]));
        file->count += is_metadata ? 0 : 1;
    }
    return STATUS_OK;
}

static int compare_places(const void *left, const void *right)
{
    const struct safetensors_entry *a = left;
    const struct safetensors_entry *b = right;

    if (a->data != b->data) {
        return (const char *)a->data < (const char *)b->data ? -1 : 1;
    }
    return a->bytes < b->bytes ? -1 : (a->bytes > b->bytes ? 1 : 0);
}

static int compare_names(const void *left, const void *right)
{
    const struct safetensors_entry *a = left;
    const struct safetensors_entry *b = right;

    return strcmp(a->name, b->name);
}

/* Each byte of the data belongs to exactly one tensor. */
static enum status check_cover(struct safetensors *file)
{
    const char *next = file->data;

    qsort(file->entries, file->count, sizeof(*file->entries), compare_places);
    for (size_t i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];

        if ((const char *)entry->data != next) {
            return refuse(file, entry->name,
                          (const char *)entry->data < next
                              ? "its bytes overlap those of the tensor before it"
                              : "there is a hole before its bytes");
        }
        next += entry->bytes;
    }
    if (next != file->data + file->data_bytes) {
        return status_fail(STATUS_ERR_REFUSED,
                           "safetensors %s: expected %zu bytes of data for its tensors, found %zu",
                           file->path, (size_t)(next - file->data), file->data_bytes);
    }
    qsort(file->entries, file->count, sizeof(*file->entries), compare_names);
    return STATUS_OK;
}

/* Length and JSON of the header; every number in it is checked against the file before use. */
static enum status read_header(struct safetensors *file)
{
    const unsigned char *bytes = file->map.data;
    const char *text = NULL;
    uint64_t length = 0;
    json_error_t error;

    if (file->map.bytes < PREFIX_BYTES) {
        return status_fail(STATUS_ERR_REFUSED,
                           "safetensors %s: expected at least 8 bytes, found %zu", file->path,
                           file->map.bytes);
    }
    for (int i = 0; i < PREFIX_BYTES; i++) {
        length |= (uint64_t)bytes[i] << (8 * i);
    }
    if (length > HEADER_BYTES_MOST || length > file->map.bytes - PREFIX_BYTES) {
        return status_fail(STATUS_ERR_REFUSED,
                           "safetensors %s: expected a header of at most %" PRIu64
                           " bytes within the file's %zu, found a length of %" PRIu64
                           "; it may be another kind of file",
                           file->path, HEADER_BYTES_MOST, file->map.bytes, length);
    }
    text = (const char *)bytes + PREFIX_BYTES;
    if (length == 0 || text[0] != '{') {
        return status_fail(STATUS_ERR_REFUSED,
                           "safetensors %s: expected a header that starts with {; it may be "
                           "another kind of file",
                           file->path);
    }
    file->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (file->header == NULL) {
        return status_fail(STATUS_ERR_REFUSED, "safetensors %s: header, byte %d: %s", file->path,
                           error.position, error.text);
    }
    file->data = text + length;
    file->data_bytes = file->map.bytes - PREFIX_BYTES - (size_t)length;
    return STATUS_OK;
}

enum status safetensors_open(const char *path, struct safetensors **file_out)
{
    return safetensors_open_judged(path, NULL, NULL, file_out);
}

enum status safetensors_open_judged(const char *path, safetensors_judge_fn judge,
                                    const void *context, struct safetensors **file_out)
{
    enum status status = STATUS_OK;
    struct safetensors *file = calloc(1, sizeof(*file));

    if (file == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "safetensors %s: no memory", path);
    }
    file->path = strdup(path);
    if (file->path == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "safetensors %s: no memory", path);
        goto fail;
    }
    TRY_OR(fail, status, file_map_open(path, &file->map));
    TRY_OR(fail, status,
           judge != NULL ? judge(context, path, file->map.data, file->map.bytes) : STATUS_OK);
    TRY_OR(fail, status, read_header(file));
    TRY_OR(fail, status, read_entries(file));
    TRY_OR(fail, status, check_cover(file));
    *file_out = file;
    return STATUS_OK;
fail:
    safetensors_close(&file);
    return status;
}

static int compare_name(const void *name, const void *entry)
{
    return strcmp(name, ((const struct safetensors_entry *)entry)->name);
}

const struct safetensors_entry *safetensors_find(const struct safetensors *file, const char *name)
{
    return bsearch(name, file->entries, file->count, sizeof(*file->entries), compare_name);
}

size_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct safetensors_entry *safetensors_at(const struct safetensors *file, size_t index)
{
    return index < file->count ? &file->entries[index] : NULL;
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, METADATA), key));
}

void safetensors_close(struct safetensors **file)
{
    struct safetensors *closing = *file;

    if (closing == NULL) {
        return;
    }
    json_decref(closing->header);
    free(closing->entries);
    file_map_close(&closing->map);
    free(closing->path);
    free(closing);
    *file = NULL;
}
