/*
 * contents -- what a whole checkpoint holds, tensor by tensor, put together from its files.
 *
 * Opens every file and looks whether their parts make up each tensor: every element of its main
 * params and moments once (parts that several files have alike, as what tensor-parallel shards have
 * in common, count once).
 */
#ifndef STAGES_CHECKPOINT_CONTENTS_H
#define STAGES_CHECKPOINT_CONTENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "mixedprec/params.h"
#include "stages/checkpoint/manifest.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A whole tensor. */
struct contents_tensor {
    char name[PARAM_NAME_BYTES];
    int64_t rows;
    int64_t cols;
    int32_t parts;   /* in how many different parts its elements come */
    int32_t moments; /* 0, 1 or 2 */
};

struct contents {
    struct contents_tensor *tensors; /* owns; in the order of their names */
    int32_t count;
    int64_t elems; /* of all */
};

/* Of the checkpoint in `folder`. `sums`: looks whether each file has the sum that the manifest says, too.
 * STATUS_ERR_REFUSED names the file or tensor that is wrong, with what is expected and found. */
enum status contents_read(const char *folder, const struct manifest *manifest, bool sums,
                          struct contents *contents_out);

/* Whether they are all tensors of the model that the manifest's configuration describes, in their shapes,
 * and no others. */
enum status contents_check_model(const char *folder, const struct manifest *manifest,
                                 const struct contents *contents);

/* Safe on zeroed contents, and twice. */
void contents_release(struct contents *contents);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_CONTENTS_H */
