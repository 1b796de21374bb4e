#include "scheduler/protobuf.h"

#include <stdlib.h>
#include <string.h>

enum wire {
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2
};

static void append(struct protobuf *message, const void *bytes, size_t count)
{
    if (message->failed || count == 0) {
        return;
    }
    if (message->capacity - message->count < count) {
        size_t capacity = 2 * message->capacity + count + 64;
        unsigned char *grown = realloc(message->bytes, capacity);

        if (grown == NULL) {
            message->failed = true;
            return;
        }
        message->bytes = grown;
        message->capacity = capacity;
    }
    memcpy(message->bytes + message->count, bytes, count);
    message->count += count;
}

/* Seven bits a byte, the lowest first; the eighth says that more follow. */
static void append_varint(struct protobuf *message, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;

    do {
        bytes[count] = (unsigned char)(value & 0x7F);
        value >>= 7;
        bytes[count] |= value != 0 ? 0x80 : 0;
        count++;
    } while (value != 0);
    append(message, bytes, count);
}

static void append_tag(struct protobuf *message, uint32_t field, enum wire wire)
{
    append_varint(message, (uint64_t)field << 3 | (uint64_t)wire);
}

void protobuf_put_uint(struct protobuf *message, uint32_t field, uint64_t value)
{
    append_tag(message, field, WIRE_VARINT);
    append_varint(message, value);
}

void protobuf_put_int(struct protobuf *message, uint32_t field, int64_t value)
{
    protobuf_put_uint(message, field, (uint64_t)value);
}

void protobuf_put_fixed64(struct protobuf *message, uint32_t field, uint64_t value)
{
    unsigned char bytes[8];

    for (int index = 0; index < 8; index++) {
        bytes[index] = (unsigned char)(value >> 8 * index);
    }
    append_tag(message, field, WIRE_FIXED64);
    append(message, bytes, sizeof(bytes));
}

void protobuf_put_bytes(struct protobuf *message, uint32_t field, const void *bytes, size_t count)
{
    append_tag(message, field, WIRE_BYTES);
    append_varint(message, count);
    append(message, bytes, count);
}

void protobuf_put_text(struct protobuf *message, uint32_t field, const char *text)
{
    protobuf_put_bytes(message, field, text, strlen(text));
}

void protobuf_put_message(struct protobuf *message, uint32_t field, const struct protobuf *inner)
{
    message->failed = message->failed || inner->failed;
    protobuf_put_bytes(message, field, inner->bytes, inner->count);
}

void protobuf_clear(struct protobuf *message)
{
    message->count = 0;
}

void protobuf_release(struct protobuf *message)
{
    free(message->bytes);
    memset(message, 0, sizeof(*message));
}
