/*
 * data_parts -- which data sets a run uses, and which part of which file each is.
 *
 * The training set always; held-out sets where train.eval_every asks for them: files of their own
 * (data.valid, data.test), or cut from the training text by data.split. A samples file is used
 * whole.
 */
#ifndef STAGES_DATA_PARTS_H
#define STAGES_DATA_PARTS_H

#include "base/status.h"
#include "stages/config.h"
#include "stages/data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

enum data_role {
    DATA_TRAIN,
    DATA_VALID,
    DATA_TEST,
    DATA_ROLES
};

struct data_part {
    const char *key;  /* "data.train", for messages; a static string */
    const char *path; /* lends from the configuration; NULL: the run has no such set */
    double begin;     /* shares of a text's bytes */
    double end;
};

/* Fills all DATA_ROLES parts. */
void data_parts_list(const struct config *config, struct data_part *parts_out);

/* The same for a run: STATUS_ERR_REFUSED where an evaluation is asked for and there is nothing to evaluate
 * on. */
enum status data_parts_of(const struct config *config, struct data_part *parts_out);

/* Opens a part that has a path. A file that cannot be read is refused with its key. */
enum status data_part_open(const struct config *config, const struct data_part *part,
                           struct dataset **dataset_out);

/* Opens and closes all: what a launcher can know before it starts anything. */
enum status data_parts_check(const struct config *config);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_DATA_PARTS_H */
