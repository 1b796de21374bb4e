/*
 * safetensors -- named tensors in one file: u64 header length, JSON header, bytes.
 *
 * The reader trusts nothing (facts of the format: header at most 100 MB, starts with `{`, no
 * holes, overlaps or trailing bytes, sizes that match shapes, no duplicate names) and maps the
 * file. The writer sorts by width of the element, then name, so that every tensor is aligned; it
 * pads the header to 8 bytes, writes a temporary file beside the target and renames it after
 * fsync, so that the name never stands for half a file.
 */
#ifndef STAGES_CHECKPOINT_SAFETENSORS_H
#define STAGES_CHECKPOINT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SAFETENSORS_NAME_BYTES 128
#define SAFETENSORS_DIMS_MOST  8

enum safetensors_dtype {
    SAFETENSORS_F32,
    SAFETENSORS_F64,
    SAFETENSORS_I32,
    SAFETENSORS_OTHER
};

struct safetensors_entry {
    char name[SAFETENSORS_NAME_BYTES];
    enum safetensors_dtype dtype;
    int32_t dims;
    int64_t shape[SAFETENSORS_DIMS_MOST];
    size_t bytes;
    const void *data; /* lends until safetensors_close(); reading: may be unaligned */
};

struct safetensors;

/* STATUS_ERR_REFUSED with file, tensor and cause. */
enum status safetensors_open(const char *path, struct safetensors **file_out);

/* Judges all bytes of a file before anything of them is believed. */
typedef enum status (*safetensors_judge_fn)(const void *context, const char *path,
                                            const void *bytes, size_t count);

/* The same where `judge` lets it pass; what it fails with is passed on. */
enum status safetensors_open_judged(const char *path, safetensors_judge_fn judge,
                                    const void *context, struct safetensors **file_out);

/* NULL where there is none; lends until close. */
const struct safetensors_entry *safetensors_find(const struct safetensors *file, const char *name);

size_t safetensors_count(const struct safetensors *file);
const struct safetensors_entry *safetensors_at(const struct safetensors *file, size_t index);

/* A string of __metadata__, NULL where there is none; lends until close. */
const char *safetensors_metadata(const struct safetensors *file, const char *key);

void safetensors_close(struct safetensors **file);

/* One key and value of __metadata__ ("format": "pt" is always written). */
struct safetensors_note {
    const char *key;
    const char *value;
};

/* How a file begins, and where each tensor's bytes lie in it: for those who fill a file piece by
 * piece. Equal entries make equal layouts, in whatever order they are given. */
struct safetensors_layout {
    char *header; /* owns: everything before the first tensor */
    size_t header_bytes;
    size_t *at;        /* owns: of each entry, in the order that was given */
    size_t file_bytes; /* of the whole file */
};

/* `path` is for messages; `data` of the entries is not looked at. */
enum status safetensors_layout_make(const char *path, const struct safetensors_entry *entries,
                                    size_t count, const struct safetensors_note *notes,
                                    size_t note_count, struct safetensors_layout *layout_out);

/* Safe on a zeroed layout, and twice. */
void safetensors_layout_release(struct safetensors_layout *layout);

/* Writes `count` entries (name, dtype, shape, data; `bytes` is checked against them). */
enum status safetensors_write(const char *path, const struct safetensors_entry *entries,
                              size_t count, const struct safetensors_note *notes,
                              size_t note_count);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_SAFETENSORS_H */
