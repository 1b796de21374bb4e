/*
 * resume -- from which checkpoint a run goes on, and what of its configuration may differ from then.
 *
 * A key of the configuration that has another value than in the checkpoint is, by the table of keys
 * (config_key.change), refused always (the model, the kind of optimizer), refused unless
 * checkpoint.allow_change names it (data, seed, global batch, the optimizer's numbers), or taken and told, old → new. Another layout is refused.
 * Another content of the training set's file, under whatever name, is refused unless data.train is named.
 *
 * Every rank finds and judges by itself, from the same files; the launcher does so before it starts
 * any of them. Only the content is judged by the launcher and by rank 0 alone, whose refusal ends the job.
 */
#ifndef STAGES_RESUME_H
#define STAGES_RESUME_H

#include <stdbool.h>

#include "base/status.h"
#include "stages/checkpoint/manifest.h"
#include "stages/checkpoint/store.h"
#include "stages/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero is "begins with step 1". */
struct resume {
    struct store_place place;
    struct manifest manifest; /* owns; where place.found */
};

/* Finds the checkpoint that `config` goes on from, reads its manifest, and looks whether all of its
 * files are there. None is found where the run starts again (--overwrite, checkpoint.resume never).
 * STATUS_ERR_REFUSED where it is damaged, saying which older one there is, and where there is none
 * and checkpoint.resume is must. The resume can be released in any case. */
enum status resume_find(const struct config *config, struct resume *resume_out);

/* STATUS_ERR_REFUSED where the run may not go on with `config`, with the keys and both values of
 * each. `tells`: says what has changed and is taken, and what is odd about the folder. */
enum status resume_judge(const struct resume *resume, const struct config *config, bool tells);

/* The same of the content of data.train, which is `data` now (stages/data/fingerprint.h). */
enum status resume_judge_data(const struct resume *resume, const struct config *config,
                              const struct manifest_sum *data, bool tells);

/* `config` with what was left to the start, and was found then: the number of threads. */
void resume_settle(const struct resume *resume, struct config *config);

/* After the checkpoint was refused: which one before it could be used, and how. */
void resume_tell_older(const struct resume *resume, const struct config *config);

/* Safe on a zeroed one, and twice. */
void resume_release(struct resume *resume);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_RESUME_H */
