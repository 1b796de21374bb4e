/* The arithmetic of the global batch: micro_batch_size x num_microbatches x dp, and the rows of it that
 * shards have. */
#include <inttypes.h>

#include "stages/config_check.h"

static const char *place_of_batch(const struct config_draft *draft)
{
    static const char *const names[] = {"global_batch_size", "num_microbatches",
                                        "micro_batch_size"};

    for (int i = 0; i < 3; i++) {
        if (config_draft_given(draft, "train", names[i])) {
            return config_draft_place(draft, "train", names[i]);
        }
    }
    return draft->path;
}

/* global_batch_size is not `unit` times a whole number; names the legal ones below and above. */
static enum status refuse_division(const struct config_draft *draft, const struct config *config,
                                   const char *key, int64_t value, int64_t unit)
{
    int64_t global = config->train.global_batch_size;
    int64_t below = global / unit * unit;

    if (below == 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: train.global_batch_size: %" PRId64 " is less than train.%s %" PRId64
                           " x parallel.dp %" PRId64 " = %" PRId64
                           "; nearest legal: global_batch_size %" PRId64,
                           config_draft_place(draft, "train", "global_batch_size"), global, key,
                           value, config->parallel.dp, unit, unit);
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "%s: train.global_batch_size: %" PRId64
                       " is no multiple of train.%s %" PRId64 " x parallel.dp %" PRId64
                       " = %" PRId64 "; nearest legal: global_batch_size %" PRId64 " or %" PRId64,
                       config_draft_place(draft, "train", "global_batch_size"), global, key, value,
                       config->parallel.dp, unit, below, below + unit);
}

static enum status refuse_conflict(const struct config_draft *draft, const struct config *config,
                                   int64_t product)
{
    return status_fail(
        STATUS_ERR_REFUSED,
        "%s: train.micro_batch_size %" PRId64 " x train.num_microbatches %" PRId64
        " x parallel.dp %" PRId64 " is %" PRId64 ", train.global_batch_size is %" PRId64
        "; nearest legal: global_batch_size %" PRId64
        ", or set one of the three to auto and it follows",
        place_of_batch(draft), config->train.micro_batch_size, config->train.num_microbatches,
        config->parallel.dp, product, config->train.global_batch_size, product);
}

/* What follows from the other two has the same range as what is written. */
static enum status check_derived(const struct config_draft *draft, const char *name, int64_t value)
{
    int64_t most = config_schema_find("train", name)->most;

    if (value > most) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: train.%s: follows from the other batch keys as %" PRId64
                           "; at most %" PRId64 " is possible",
                           place_of_batch(draft), name, value, most);
    }
    return STATUS_OK;
}

enum status config_check_batch(const struct config_draft *draft, struct config *config)
{
    struct config_train *train = &config->train;
    int64_t dp = config->parallel.dp;
    int64_t product = 0;
    int given = (train->micro_batch_size > 0 ? 1 : 0) + (train->num_microbatches > 0 ? 1 : 0) +
                (train->global_batch_size > 0 ? 1 : 0);

    if (given < 2) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: train: expected two of micro_batch_size, num_microbatches and "
                           "global_batch_size, found %s; the third follows from two",
                           place_of_batch(draft), given == 1 ? "one" : "none");
    }
    if (train->num_microbatches <= 0) {
        int64_t unit = train->micro_batch_size * dp;

        if (train->global_batch_size % unit != 0) {
            return refuse_division(draft, config, "micro_batch_size", train->micro_batch_size,
                                   unit);
        }
        train->num_microbatches = train->global_batch_size / unit;
    }
    if (train->micro_batch_size <= 0) {
        int64_t unit = train->num_microbatches * dp;

        if (train->global_batch_size % unit != 0) {
            return refuse_division(draft, config, "num_microbatches", train->num_microbatches,
                                   unit);
        }
        train->micro_batch_size = train->global_batch_size / unit;
    }
    TRY(check_derived(draft, "micro_batch_size", train->micro_batch_size));
    TRY(check_derived(draft, "num_microbatches", train->num_microbatches));
    /* Each factor is at most 2^20 and dp at most 2^10, so the product fits. */
    product = train->micro_batch_size * train->num_microbatches * dp;
    if (train->global_batch_size > 0 && train->global_batch_size != product) {
        return refuse_conflict(draft, config, product);
    }
    train->global_batch_size = product;
    return check_derived(draft, "global_batch_size", product);
}

/* What shards exchange is cut into whole cache lines of floats. */
#define ROWS_GRAIN 16

static bool is_legal_size(const struct config *config, int64_t size)
{
    int64_t rows = size * config->model.seq_len;
    int64_t tp = config->parallel.tp;

    return rows % tp == 0 && rows / tp * config->model.hidden_size % ROWS_GRAIN == 0;
}

/* The next larger micro-batch size whose rows shards can share; a multiple of 16 x tp is one. */
static int64_t next_legal_size(const struct config *config)
{
    int64_t size = config->train.micro_batch_size + 1;

    while (!is_legal_size(config, size)) {
        size++;
    }
    return size;
}

enum status config_check_rows(const struct config_draft *draft, const struct config *config)
{
    int64_t size = config->train.micro_batch_size;
    int64_t rows = size * config->model.seq_len;
    int64_t tp = config->parallel.tp;
    const char *place = config_draft_place(draft, "parallel", "sequence_parallel");

    if (!config_splits_rows(config)) {
        return STATUS_OK;
    }
    if (rows % tp != 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: parallel.sequence_parallel: train.micro_batch_size %" PRId64
                           " x model.seq_len %" PRId64 " is %" PRId64
                           " rows, expected a multiple of parallel.tp %" PRId64
                           "; nearest legal: micro_batch_size %" PRId64,
                           place, size, config->model.seq_len, rows, tp, next_legal_size(config));
    }
    if (rows / tp * config->model.hidden_size % ROWS_GRAIN != 0) {
        return status_fail(
            STATUS_ERR_REFUSED,
            "%s: parallel.sequence_parallel: a shard has %" PRId64
            " rows (train.micro_batch_size %" PRId64 " x model.seq_len %" PRId64
            " / parallel.tp %" PRId64 ") of model.hidden_size %" PRId64 ", which is %" PRId64
            " elements, expected a multiple of %d; nearest legal: "
            "micro_batch_size %" PRId64 ", or a hidden_size that is a multiple of "
            "%d",
            place, rows / tp, size, config->model.seq_len, tp, config->model.hidden_size,
            rows / tp * config->model.hidden_size, ROWS_GRAIN, next_legal_size(config), ROWS_GRAIN);
    }
    return STATUS_OK;
}
