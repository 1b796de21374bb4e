/* Sequences that go through the pipeline in slices. */
#include <inttypes.h>

#include "stages/config_check.h"

enum status config_check_slices(const struct config_draft *draft, const struct config *config)
{
    int64_t slices = config->parallel.sequence_slices;
    const char *place = config_draft_place(draft, "parallel", "sequence_slices");

    if (slices == 1) {
        return STATUS_OK;
    }
    if (config->parallel.schedule != SCHEDULE_SEQ1F1B &&
        config->parallel.schedule != SCHEDULE_FILE) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel.sequence_slices: %" PRId64
                           " slices go with parallel.schedule seq1f1b, or file:PATH of a plan that "
                           "has them, found %s; legal with it: 1",
                           place, slices, schedule_text(config->parallel.schedule));
    }
    if (slices > config->model.seq_len) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel.sequence_slices: a sequence of model.seq_len %" PRId64
                           " has no %" PRId64 " slices of at least one token; at most %" PRId64,
                           place, config->model.seq_len, slices, config->model.seq_len);
    }
    if (config_splits_rows(config)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel.sequence_slices: %" PRId64
                           " slices do not go with parallel.sequence_parallel, which shares the "
                           "rows of whole sequences; legal: 1 slice, or sequence_parallel false",
                           place, slices);
    }
    return STATUS_OK;
}
