#include "collectives/message.h"

#include <inttypes.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for MESSAGE_VALUES_MOST objects of 24 bytes, so that unpacking never allocates again. */
#define ZONE_BYTES ((size_t)640 * 1024)

/* ---- check: a walk over raw bytes, with nothing but a cursor ---- */

enum form_kind {
    FORM_BAD,   /* never used: 0xc1 and extension types */
    FORM_PLAIN, /* `body` bytes follow */
    FORM_TEXT,  /* a length of `head` bytes, then so many bytes */
    FORM_BLOB,
    FORM_LIST, /* a count of `head` bytes, then so many values */
    FORM_MAP   /* ... pairs */
};

struct form {
    enum form_kind kind;
    unsigned char head;
    unsigned char body;
};

/* First bytes 0xc0 … 0xdf; the others carry their count in themselves. */
static const struct form forms[32] = {
    [0x00] = {FORM_PLAIN, 0, 0}, [0x02] = {FORM_PLAIN, 0, 0}, [0x03] = {FORM_PLAIN, 0, 0},
    [0x04] = {FORM_BLOB, 1, 0},  [0x05] = {FORM_BLOB, 2, 0},  [0x06] = {FORM_BLOB, 4, 0},
    [0x0a] = {FORM_PLAIN, 0, 4}, [0x0b] = {FORM_PLAIN, 0, 8}, [0x0c] = {FORM_PLAIN, 0, 1},
    [0x0d] = {FORM_PLAIN, 0, 2}, [0x0e] = {FORM_PLAIN, 0, 4}, [0x0f] = {FORM_PLAIN, 0, 8},
    [0x10] = {FORM_PLAIN, 0, 1}, [0x11] = {FORM_PLAIN, 0, 2}, [0x12] = {FORM_PLAIN, 0, 4},
    [0x13] = {FORM_PLAIN, 0, 8}, [0x19] = {FORM_TEXT, 1, 0},  [0x1a] = {FORM_TEXT, 2, 0},
    [0x1b] = {FORM_TEXT, 4, 0},  [0x1c] = {FORM_LIST, 2, 0},  [0x1d] = {FORM_LIST, 4, 0},
    [0x1e] = {FORM_MAP, 2, 0},   [0x1f] = {FORM_MAP, 4, 0},
};

struct scan {
    const unsigned char *bytes;
    size_t size;
    size_t at;          /* <= size */
    size_t values;      /* walked so far */
    const char *reason; /* set where the walk fails */
};

struct key {
    const unsigned char *bytes;
    size_t size;
};

static bool refuse(struct scan *scan, const char *reason)
{
    scan->reason = reason;
    return false;
}

/* Reads what stands before a value's content: its kind and its size in bytes, values or pairs. */
static bool scan_head(struct scan *scan, enum form_kind *kind, uint64_t *amount)
{
    if (scan->at >= scan->size) {
        return refuse(scan, "ends inside a value");
    }
    unsigned char first = scan->bytes[scan->at++];

    if (first < 0x80 || first >= 0xe0) {
        *kind = FORM_PLAIN;
        *amount = 0;
    } else if (first < 0xc0) {
        *kind = first < 0x90 ? FORM_MAP : first < 0xa0 ? FORM_LIST : FORM_TEXT;
        *amount = first < 0xa0 ? first & 0x0fU : first & 0x1fU;
    } else {
        const struct form *form = &forms[first - 0xc0];

        if (form->kind == FORM_BAD) {
            return refuse(scan, "has a type that is not allowed");
        }
        if (scan->size - scan->at < form->head) {
            return refuse(scan, "ends inside a count");
        }
        *kind = form->kind;
        *amount = form->body;
        for (int i = 0; i < form->head; i++) {
            *amount = (*amount << 8) | scan->bytes[scan->at++];
        }
    }
    if (*amount > (scan->size - scan->at) / (*kind == FORM_MAP ? 2 : 1)) {
        return refuse(scan, "has a count larger than the bytes that are left");
    }
    return true;
}

static bool scan_value(struct scan *scan, int depth);

static bool scan_key(struct scan *scan, struct key *keys, uint64_t known)
{
    enum form_kind kind = FORM_BAD;
    uint64_t size = 0;

    if (!scan_head(scan, &kind, &size)) {
        return false;
    }
    if (kind != FORM_TEXT) {
        return refuse(scan, "has a key that is no text");
    }
    keys[known] = (struct key){.bytes = scan->bytes + scan->at, .size = (size_t)size};
    for (uint64_t i = 0; i < known; i++) {
        if (keys[i].size == size && memcmp(keys[i].bytes, keys[known].bytes, (size_t)size) == 0) {
            return refuse(scan, "has a key twice");
        }
    }
    scan->at += (size_t)size;
    return true;
}

static bool scan_map(struct scan *scan, uint64_t pairs, int depth)
{
    struct key keys[MESSAGE_FIELDS_MOST];

    if (pairs > MESSAGE_FIELDS_MOST) {
        return refuse(scan, "has too many fields");
    }
    for (uint64_t i = 0; i < pairs; i++) {
        if (!scan_key(scan, keys, i) || !scan_value(scan, depth + 1)) {
            return false;
        }
    }
    return true;
}

static bool scan_value(struct scan *scan, int depth)
{
    enum form_kind kind = FORM_BAD;
    uint64_t amount = 0;

    if (++scan->values > MESSAGE_VALUES_MOST) {
        return refuse(scan, "has too many values");
    }
    if (!scan_head(scan, &kind, &amount)) {
        return false;
    }
    if (kind != FORM_LIST && kind != FORM_MAP) {
        scan->at += (size_t)amount;
        return true;
    }
    if (depth >= MESSAGE_DEPTH_MOST) {
        return refuse(scan, "is nested too deep");
    }
    if (kind == FORM_MAP) {
        return scan_map(scan, amount, depth);
    }
    for (uint64_t i = 0; i < amount; i++) {
        if (!scan_value(scan, depth + 1)) {
            return false;
        }
    }
    return true;
}

enum status message_check(const void *bytes, size_t size, const char *peer)
{
    struct scan scan = {.bytes = bytes, .size = size, .reason = ""};
    bool is_map = false;
    bool good = false;

    if (size > MESSAGE_MOST_BYTES) {
        (void)refuse(&scan, "is too long");
    } else if (size == 0) {
        (void)refuse(&scan, "is empty");
    } else {
        is_map = (scan.bytes[0] & 0xf0U) == 0x80U || scan.bytes[0] >= 0xde;
        is_map = is_map && scan.bytes[0] < 0xe0;
        good = is_map ? scan_value(&scan, 0) : refuse(&scan, "is no map");
    }
    if (good && scan.at != size) {
        good = refuse(&scan, "has bytes after its end");
    }
    if (!good) {
        return status_note(STATUS_ERR_FORMAT, "message of %s: %zu bytes, %s (at byte %zu)", peer,
                           size, scan.reason, scan.at);
    }
    return STATUS_OK;
}

/* ---- view ---- */

struct message_view {
    msgpack_zone zone;   /* owns what unpacking needs */
    msgpack_object root; /* a map, after an open that succeeded */
    bool open;
    char peer[MESSAGE_NAME_BYTES];
};

enum status message_view_create(struct message_view **view_out)
{
    struct message_view *view = calloc(1, sizeof(*view));

    if (view == NULL || !msgpack_zone_init(&view->zone, ZONE_BYTES)) {
        free(view);
        return status_note(STATUS_ERR_NO_MEMORY, "message view: %zu bytes", ZONE_BYTES);
    }
    *view_out = view;
    return STATUS_OK;
}

void message_view_destroy(struct message_view **view)
{
    if (*view != NULL) {
        msgpack_zone_destroy(&(*view)->zone);
        free(*view);
        *view = NULL;
    }
}

enum status message_view_open(struct message_view *view, const void *bytes, size_t size,
                              const char *peer)
{
    size_t at = 0;

    view->open = false;
    (void)snprintf(view->peer, sizeof(view->peer), "%s", peer);
    TRY(message_check(bytes, size, view->peer));
    msgpack_zone_clear(&view->zone);
    if (msgpack_unpack(bytes, size, &at, &view->zone, &view->root) != MSGPACK_UNPACK_SUCCESS ||
        view->root.type != MSGPACK_OBJECT_MAP) {
        return status_note(STATUS_ERR_FORMAT, "message of %s: %zu bytes cannot be unpacked",
                           view->peer, size);
    }
    view->open = true;
    return STATUS_OK;
}

static const msgpack_object *find(const struct message_view *view, const char *name)
{
    size_t name_bytes = strlen(name);

    for (uint32_t i = 0; view->open && i < view->root.via.map.size; i++) {
        const msgpack_object_kv *field = &view->root.via.map.ptr[i];

        if (field->key.via.str.size == name_bytes &&
            memcmp(field->key.via.str.ptr, name, name_bytes) == 0) {
            return &field->val;
        }
    }
    return NULL;
}

bool message_has(const struct message_view *view, const char *name)
{
    return find(view, name) != NULL;
}

/* What was found, in few words. */
static void describe(const msgpack_object *value, char *text, size_t text_bytes)
{
    if (value == NULL) {
        (void)snprintf(text, text_bytes, "nothing");
        return;
    }
    switch (value->type) {
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        (void)snprintf(text, text_bytes, "%" PRIu64, value->via.u64);
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        (void)snprintf(text, text_bytes, "%" PRId64, value->via.i64);
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        (void)snprintf(text, text_bytes, "the number %g", value->via.f64);
        break;
    case MSGPACK_OBJECT_STR:
        (void)snprintf(text, text_bytes, "a text of %" PRIu32 " bytes", value->via.str.size);
        break;
    case MSGPACK_OBJECT_BIN:
        (void)snprintf(text, text_bytes, "%" PRIu32 " raw bytes", value->via.bin.size);
        break;
    case MSGPACK_OBJECT_ARRAY:
        (void)snprintf(text, text_bytes, "an array of %" PRIu32, value->via.array.size);
        break;
    default:
        (void)snprintf(text, text_bytes, "another type");
        break;
    }
}

static enum status mismatch(const struct message_view *view, const char *name, const char *expected,
                            const msgpack_object *found)
{
    char text[64];

    describe(found, text, sizeof(text));
    return status_note(STATUS_ERR_FORMAT, "message of %s, field '%s': expected %s, found %s",
                       view->peer, name, expected, text);
}

enum status message_get_int(const struct message_view *view, const char *name, int64_t least,
                            int64_t most, int64_t *value_out)
{
    const msgpack_object *found = find(view, name);
    bool positive = found != NULL && found->type == MSGPACK_OBJECT_POSITIVE_INTEGER &&
                    found->via.u64 <= INT64_MAX;
    bool negative = found != NULL && found->type == MSGPACK_OBJECT_NEGATIVE_INTEGER;
    int64_t value = positive ? (int64_t)found->via.u64 : negative ? found->via.i64 : 0;

    if ((!positive && !negative) || value < least || value > most) {
        char expected[80];

        (void)snprintf(expected, sizeof(expected), "an integer in %" PRId64 " … %" PRId64, least,
                       most);
        return mismatch(view, name, expected, found);
    }
    *value_out = value;
    return STATUS_OK;
}

enum status message_get_uint(const struct message_view *view, const char *name, uint64_t *value_out)
{
    const msgpack_object *found = find(view, name);

    if (found == NULL || found->type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
        return mismatch(view, name, "an integer >= 0", found);
    }
    *value_out = found->via.u64;
    return STATUS_OK;
}

static bool is_number(const msgpack_object *value)
{
    return value->type == MSGPACK_OBJECT_FLOAT64 || value->type == MSGPACK_OBJECT_FLOAT32;
}

enum status message_get_double(const struct message_view *view, const char *name, double *value_out)
{
    const msgpack_object *found = find(view, name);

    if (found == NULL || !is_number(found)) {
        return mismatch(view, name, "a floating-point number", found);
    }
    *value_out = found->via.f64;
    return STATUS_OK;
}

static enum status copy_text(const struct message_view *view, const char *name,
                             const msgpack_object *found, char *text, size_t text_bytes)
{
    if (found == NULL || found->type != MSGPACK_OBJECT_STR || found->via.str.size >= text_bytes ||
        memchr(found->via.str.ptr, '\0', found->via.str.size) != NULL) {
        char expected[64];

        (void)snprintf(expected, sizeof(expected), "a text of fewer than %zu bytes, none of them 0",
                       text_bytes);
        return mismatch(view, name, expected, found);
    }
    memcpy(text, found->via.str.ptr, found->via.str.size);
    text[found->via.str.size] = '\0';
    return STATUS_OK;
}

enum status message_get_text(const struct message_view *view, const char *name, char *text,
                             size_t text_bytes)
{
    return copy_text(view, name, find(view, name), text, text_bytes);
}

enum status message_get_bytes(const struct message_view *view, const char *name,
                              const void **bytes_out, size_t *size_out)
{
    const msgpack_object *found = find(view, name);

    if (found == NULL || found->type != MSGPACK_OBJECT_BIN) {
        return mismatch(view, name, "raw bytes", found);
    }
    *bytes_out = found->via.bin.ptr;
    *size_out = found->via.bin.size;
    return STATUS_OK;
}

enum status message_get_array(const struct message_view *view, const char *name, size_t most,
                              size_t *elems_out)
{
    const msgpack_object *found = find(view, name);

    if (found == NULL || found->type != MSGPACK_OBJECT_ARRAY || found->via.array.size > most) {
        char expected[64];

        (void)snprintf(expected, sizeof(expected), "an array of at most %zu", most);
        return mismatch(view, name, expected, found);
    }
    *elems_out = found->via.array.size;
    return STATUS_OK;
}

/* Lends an array that has exactly `elems` elements, all of the kind that `fits` accepts; NULL, with
 * a note, where there is none. */
static const msgpack_object_array *find_array(const struct message_view *view, const char *name,
                                              size_t elems, bool (*fits)(const msgpack_object *))
{
    const msgpack_object *found = find(view, name);

    if (found == NULL || found->type != MSGPACK_OBJECT_ARRAY || found->via.array.size != elems) {
        char expected[64];

        (void)snprintf(expected, sizeof(expected), "an array of %zu", elems);
        (void)mismatch(view, name, expected, found);
        return NULL;
    }
    for (size_t i = 0; i < elems; i++) {
        if (!fits(&found->via.array.ptr[i])) {
            (void)mismatch(view, name, "elements of another type", &found->via.array.ptr[i]);
            return NULL;
        }
    }
    return &found->via.array;
}

static bool is_uint(const msgpack_object *value)
{
    return value->type == MSGPACK_OBJECT_POSITIVE_INTEGER;
}

enum status message_get_doubles(const struct message_view *view, const char *name, double *values,
                                size_t elems)
{
    const msgpack_object_array *array = find_array(view, name, elems, is_number);

    if (array == NULL) {
        return STATUS_ERR_FORMAT;
    }
    for (size_t i = 0; i < elems; i++) {
        values[i] = array->ptr[i].via.f64;
    }
    return STATUS_OK;
}

enum status message_get_uints(const struct message_view *view, const char *name, uint64_t *values,
                              size_t elems)
{
    const msgpack_object_array *array = find_array(view, name, elems, is_uint);

    if (array == NULL) {
        return STATUS_ERR_FORMAT;
    }
    for (size_t i = 0; i < elems; i++) {
        values[i] = array->ptr[i].via.u64;
    }
    return STATUS_OK;
}

enum status message_get_text_at(const struct message_view *view, const char *name, size_t index,
                                char *text, size_t text_bytes)
{
    const msgpack_object *found = find(view, name);

    if (found == NULL || found->type != MSGPACK_OBJECT_ARRAY || found->via.array.size <= index) {
        return mismatch(view, name, "a longer array of texts", found);
    }
    return copy_text(view, name, &found->via.array.ptr[index], text, text_bytes);
}
