#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/message.h"

struct message_pack {
    msgpack_sbuffer buffer; /* owns; keeps its size from message to message */
    msgpack_packer packer;  /* writes to the buffer */
    size_t fields;          /* put since begin */
    int failed;             /* not 0 once the buffer could not grow */
};

enum status message_pack_create(struct message_pack **pack_out)
{
    struct message_pack *pack = calloc(1, sizeof(*pack));

    if (pack == NULL) {
        return status_note(STATUS_ERR_NO_MEMORY, "message pack: %zu bytes", sizeof(*pack));
    }
    msgpack_sbuffer_init(&pack->buffer);
    msgpack_packer_init(&pack->packer, &pack->buffer, msgpack_sbuffer_write);
    *pack_out = pack;
    return STATUS_OK;
}

void message_pack_destroy(struct message_pack **pack)
{
    if (*pack != NULL) {
        msgpack_sbuffer_destroy(&(*pack)->buffer);
        free(*pack);
        *pack = NULL;
    }
}

void message_pack_begin(struct message_pack *pack)
{
    msgpack_sbuffer_clear(&pack->buffer);
    pack->fields = 0;
    /* The number of fields is not known yet. A map of 16 is the smallest with a count of two
     * bytes, which message_pack_end() overwrites. */
    pack->failed = msgpack_pack_map(&pack->packer, 16);
}

static void put_text(struct message_pack *pack, const char *text)
{
    size_t bytes = strlen(text);

    pack->failed |= msgpack_pack_str(&pack->packer, bytes);
    pack->failed |= msgpack_pack_str_body(&pack->packer, text, bytes);
}

static void put_name(struct message_pack *pack, const char *name)
{
    pack->fields++;
    put_text(pack, name);
}

void message_put_int(struct message_pack *pack, const char *name, int64_t value)
{
    put_name(pack, name);
    pack->failed |= msgpack_pack_int64(&pack->packer, value);
}

void message_put_uint(struct message_pack *pack, const char *name, uint64_t value)
{
    put_name(pack, name);
    pack->failed |= msgpack_pack_uint64(&pack->packer, value);
}

void message_put_double(struct message_pack *pack, const char *name, double value)
{
    put_name(pack, name);
    pack->failed |= msgpack_pack_double(&pack->packer, value);
}

void message_put_text(struct message_pack *pack, const char *name, const char *text)
{
    put_name(pack, name);
    put_text(pack, text);
}

void message_put_bytes(struct message_pack *pack, const char *name, const void *bytes, size_t size)
{
    put_name(pack, name);
    pack->failed |= msgpack_pack_bin(&pack->packer, size);
    if (size > 0) {
        pack->failed |= msgpack_pack_bin_body(&pack->packer, bytes, size);
    }
}

void message_put_doubles(struct message_pack *pack, const char *name, const double *values,
                         size_t elems)
{
    put_name(pack, name);
    pack->failed |= msgpack_pack_array(&pack->packer, elems);
    for (size_t i = 0; i < elems; i++) {
        pack->failed |= msgpack_pack_double(&pack->packer, values[i]);
    }
}

void message_put_uints(struct message_pack *pack, const char *name, const uint64_t *values,
                       size_t elems)
{
    put_name(pack, name);
    pack->failed |= msgpack_pack_array(&pack->packer, elems);
    for (size_t i = 0; i < elems; i++) {
        pack->failed |= msgpack_pack_uint64(&pack->packer, values[i]);
    }
}

void message_put_texts(struct message_pack *pack, const char *name, const char *const *texts,
                       size_t elems)
{
    put_name(pack, name);
    pack->failed |= msgpack_pack_array(&pack->packer, elems);
    for (size_t i = 0; i < elems; i++) {
        put_text(pack, texts[i]);
    }
}

enum status message_pack_end(struct message_pack *pack, const void **bytes_out, size_t *size_out)
{
    if (pack->failed != 0) {
        return status_note(STATUS_ERR_NO_MEMORY, "message: cannot grow beyond %zu bytes",
                           pack->buffer.size);
    }
    if (pack->fields > MESSAGE_FIELDS_MOST || pack->buffer.size > MESSAGE_MOST_BYTES) {
        return status_note(
            STATUS_ERR_INVALID, "message: %zu fields and %zu bytes, at most %d and %zu are allowed",
            pack->fields, pack->buffer.size, MESSAGE_FIELDS_MOST, MESSAGE_MOST_BYTES);
    }
    pack->buffer.data[1] = (char)(unsigned char)(pack->fields >> 8);
    pack->buffer.data[2] = (char)(unsigned char)(pack->fields & 0xffU);
    *bytes_out = pack->buffer.data;
    *size_out = pack->buffer.size;
    return STATUS_OK;
}
