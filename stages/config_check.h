/*
 * config_check -- what follows from the keys together.
 *
 * Fills what the keys leave open (CONFIG_DERIVE, `auto`) and refuses what contradicts itself,
 * naming the keys, their values and the nearest legal ones.
 */
#ifndef STAGES_CONFIG_CHECK_H
#define STAGES_CONFIG_CHECK_H

#include "base/status.h"
#include "stages/config.h"
#include "stages/config_draft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each field of `config` holds what the draft or the default says; its name is set. */
enum status config_check(const struct config_draft *draft, struct config *config);

/* The three batch keys: two give the third, three have to agree. */
enum status config_check_batch(const struct config_draft *draft, struct config *config);

/* Own rows of tensor-parallel shards; after the batch keys are known. */
enum status config_check_rows(const struct config_draft *draft, const struct config *config);

/* Slices of a sequence, and what has to go with them. */
enum status config_check_slices(const struct config_draft *draft, const struct config *config);

/* The schedules of learning rate and weight decay; after the run's steps are known. */
enum status config_check_optimizer(const struct config_draft *draft, struct config *config);

/* The loss scale. */
enum status config_check_precision(const struct config_draft *draft, struct config *config);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_CHECK_H */
