/*
 * message -- the one door to msgpack: small maps of named values, checked before they are unpacked.
 *
 * A message is one msgpack map with text keys. Whoever sends builds it with a message_pack; whoever
 * receives opens it with a message_view, which walks the raw bytes first and refuses what does not
 * hold together: a count larger than the bytes that are left, nesting deeper than
 * MESSAGE_DEPTH_MOST, a key that is no text or comes twice, bytes after the end, extension types,
 * too many bytes, fields or values. Nothing is allocated by a number that the message claims.
 * Fields that the reader does not ask for are ignored, so that a later version may add some.
 *
 * Knows nothing of what messages mean (control_message.h) and of sockets (wire.h).
 *
 * Failures are noted and not logged (status_note): a message may come from a stranger, and the
 * caller knows whether it matters. Threads: one owner thread for each pack and view.
 */
#ifndef COLLECTIVES_MESSAGE_H
#define COLLECTIVES_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MESSAGE_MOST_BYTES  ((size_t)(1 << 20) + (1 << 17)) /* 1 MiB of content and its frame */
#define MESSAGE_DEPTH_MOST  8                               /* maps and arrays inside each other */
#define MESSAGE_FIELDS_MOST 64                              /* of one map */
#define MESSAGE_VALUES_MOST 24576 /* in all: bounds what unpacking takes to 600 kB */
#define MESSAGE_NAME_BYTES  96    /* of a peer's name in error texts */

/* Walks `size` bytes and answers STATUS_OK where they are one well-formed message, else
 * STATUS_ERR_FORMAT with `peer`, the reason and the byte in the message. Allocates nothing. */
enum status message_check(const void *bytes, size_t size, const char *peer);

/* Builds messages, one after the other, in a buffer that grows to the largest and stays. */
struct message_pack;

enum status message_pack_create(struct message_pack **pack_out);

/* Starts a new message; what was in the pack is gone. */
void message_pack_begin(struct message_pack *pack);

/* Each adds a field. `name` is text without a NUL inside, and must not come twice. A failure
 * (memory, too many fields) is kept and answered by message_pack_end(). Arrays and bytes are
 * copied. */
void message_put_int(struct message_pack *pack, const char *name, int64_t value);
void message_put_uint(struct message_pack *pack, const char *name, uint64_t value);
void message_put_double(struct message_pack *pack, const char *name, double value);
void message_put_text(struct message_pack *pack, const char *name, const char *text);
void message_put_bytes(struct message_pack *pack, const char *name, const void *bytes, size_t size);
void message_put_doubles(struct message_pack *pack, const char *name, const double *values,
                         size_t elems);
void message_put_uints(struct message_pack *pack, const char *name, const uint64_t *values,
                       size_t elems);
void message_put_texts(struct message_pack *pack, const char *name, const char *const *texts,
                       size_t elems);

/* Lends the finished message, until the next begin. STATUS_ERR_NO_MEMORY, or STATUS_ERR_INVALID
 * where it has more than MESSAGE_MOST_BYTES or MESSAGE_FIELDS_MOST fields. */
enum status message_pack_end(struct message_pack *pack, const void **bytes_out, size_t *size_out);

/* Nulls the caller's pointer; NULL is fine. */
void message_pack_destroy(struct message_pack **pack);

/* Reads messages, one after the other, in memory that is taken once. */
struct message_view;

enum status message_view_create(struct message_view **view_out);

/* Checks and unpacks. Borrows `bytes` until the next open or the end of the view; copies `peer`,
 * which names the sender in every later error text. On a failure the view holds nothing. */
enum status message_view_open(struct message_view *view, const void *bytes, size_t size,
                              const char *peer);

bool message_has(const struct message_view *view, const char *name);

/* Each reads a field into its out parameter. STATUS_ERR_FORMAT where the field is not there, has
 * another type or breaks the bound, with peer, field, what was expected and what was found; then
 * nothing is written. */
enum status message_get_int(const struct message_view *view, const char *name, int64_t least,
                            int64_t most, int64_t *value_out);
enum status message_get_uint(const struct message_view *view, const char *name,
                             uint64_t *value_out);
enum status message_get_double(const struct message_view *view, const char *name,
                               double *value_out);

/* Copies the text with its end; text with a NUL inside or of `text_bytes` and more is refused. */
enum status message_get_text(const struct message_view *view, const char *name, char *text,
                             size_t text_bytes);

/* Lends bytes inside the message, until the next open. */
enum status message_get_bytes(const struct message_view *view, const char *name,
                              const void **bytes_out, size_t *size_out);

/* How many elements the array has; at most `most`. */
enum status message_get_array(const struct message_view *view, const char *name, size_t most,
                              size_t *elems_out);

/* Copies an array of exactly `elems` elements. */
enum status message_get_doubles(const struct message_view *view, const char *name, double *values,
                                size_t elems);
enum status message_get_uints(const struct message_view *view, const char *name, uint64_t *values,
                              size_t elems);

/* Copies element `index` of an array of texts, as message_get_text(). */
enum status message_get_text_at(const struct message_view *view, const char *name, size_t index,
                                char *text, size_t text_bytes);

/* Nulls the caller's pointer; NULL is fine. */
void message_view_destroy(struct message_view **view);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_MESSAGE_H */
