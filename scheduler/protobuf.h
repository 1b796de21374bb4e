/*
 * protobuf -- a message in the wire format of protocol buffers, written field by field.
 *
 * A field is a tag and a value: a varint, eight bytes, or a length and bytes; a message inside another
 * is bytes. What needs no schema compiler to be written is all there is here; nothing is read.
 */
#ifndef SCHEDULER_PROTOBUF_H
#define SCHEDULER_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A zeroed one is an empty message. */
struct protobuf {
    unsigned char *bytes; /* owns */
    size_t count;
    size_t capacity;
    bool failed; /* memory ran out: what follows is not written */
};

/* int32, int64, uint32, uint64, bool and enum fields; a negative number as its two's complement. */
void protobuf_put_uint(struct protobuf *message, uint32_t field, uint64_t value);
void protobuf_put_int(struct protobuf *message, uint32_t field, int64_t value);

/* fixed64 fields. */
void protobuf_put_fixed64(struct protobuf *message, uint32_t field, uint64_t value);

/* string and bytes fields. */
void protobuf_put_bytes(struct protobuf *message, uint32_t field, const void *bytes, size_t count);
void protobuf_put_text(struct protobuf *message, uint32_t field, const char *text);

/* A field that is a message of its own. A failure of the inner one is the outer one's too. */
void protobuf_put_message(struct protobuf *message, uint32_t field, const struct protobuf *inner);

/* Empty again; keeps its memory and its failure. */
void protobuf_clear(struct protobuf *message);

/* Safe on a zeroed one, and twice. */
void protobuf_release(struct protobuf *message);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PROTOBUF_H */
