/*
 * manifest -- what a checkpoint is: manifest.json, the file of it that is written last.
 *
 * It says where the run stood (steps, updates, samples, skips, loss scale), what the run was (the
 * resolved configuration, the layout, the threads that decide bits, what the training set's file
 * held), and size and XXH3 sum of each of its files. It has a sum of its own. One object:
 *
 *     format 1 · step · updates · consumed_samples · sequences · data {bytes, xxh3} · skipped ·
 *     skipped_in_a_row · loss_scale {dynamic, scale, good_steps, hysteresis_left} · threads ·
 *     variant · layout {pp, tp, dp} · config {…} · files [{name, bytes, xxh3}, …] · xxh3
 *
 * A reader trusts nothing: what is missing, of another kind, out of range or of another sum, and a
 * layout that is not the configuration's, is refused with the file and the field.
 */
#ifndef STAGES_CHECKPOINT_MANIFEST_H
#define STAGES_CHECKPOINT_MANIFEST_H

#include <stdint.h>

#include "base/status.h"
#include "collectives/grid.h"
#include "mixedprec/grad_scaler.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MANIFEST_NAME          "manifest.json"
#define MANIFEST_VARIANT_BYTES 128
#define SHARD_NAME_BYTES       64

/* Size and sum of a file (stages/checkpoint/sum.h). */
struct manifest_sum {
    uint64_t bytes;
    uint64_t xxh3;
};

struct manifest {
    int64_t step;             /* attempts so far */
    int64_t updates;          /* of them, those that were not skipped */
    int64_t consumed;         /* samples of the whole run so far: those of a global batch a step */
    int64_t sequences;        /* in the training set: a data position is one in this many */
    struct manifest_sum data; /* the training set's file (stages/data/fingerprint.h) */
    int64_t skipped;          /* the other attempts */
    int64_t skipped_in_a_row;
    struct grad_scaler_state scale;
    int64_t threads; /* of a stage process */
    char variant[MANIFEST_VARIANT_BYTES];
    struct grid_shape layout;
    char *config;               /* owns: the resolved configuration as JSON */
    struct manifest_sum *files; /* owns; one a rank, in their order */
    uint64_t xxh3;              /* of the manifest; set by reading it */
};

/* "shard-pp0-tp0-dp0.safetensors": the file of a rank of that layout. */
void manifest_shard_name(const struct grid_shape *layout, int32_t rank, char *name);

/* Ranks of the layout, which are files of the checkpoint. */
int32_t manifest_files(const struct manifest *manifest);

/* Writes <folder>/manifest.json, whole or not at all. */
enum status manifest_write(const char *folder, const struct manifest *manifest);

/* STATUS_ERR_REFUSED where it cannot be used. The manifest can be released in any case. */
enum status manifest_read(const char *folder, struct manifest *manifest_out);

/* Whether the files that `manifest` names are in `folder` with their sizes; refuses by name. */
enum status manifest_check_sizes(const char *folder, const struct manifest *manifest);

/* Safe on a zeroed manifest, and twice. */
void manifest_release(struct manifest *manifest);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_MANIFEST_H */
