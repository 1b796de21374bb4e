#include "stages/engine_data.h"

#include <unistd.h>

#include "base/log.h"
#include "stages/data_parts.h"
#include "stages/engine_start.h"

bool engine_is_crowded(const struct engine_options *options)
{
    return options->local_ranks > sysconf(_SC_NPROCESSORS_ONLN);
}

static enum status open_loader(const struct engine *engine, const struct dataset *dataset,
                               bool shuffle, int64_t consumed, int64_t limit,
                               struct loader **loader_out)
{
    const struct config *config = engine->config;
    struct loader_config loader = {
        .dataset = dataset,
        .sampler =
            {
                .samples = dataset_samples(dataset),
                .seed = config->train.seed,
                .shuffle = shuffle,
                .micro_batch_size = config->train.micro_batch_size,
                .replicas = engine->grid.shape.dp,
                .replica = engine->grid.dp,
            },
        .microbatches = config->train.num_microbatches,
        .positions = config->model.seq_len,
        .wants_tokens = engine_has_embedding(engine),
        .wants_types = engine_has_embedding(engine) && config->model.num_tokentypes > 0,
        .wants_targets = engine_has_head(engine),
        .consumed = consumed,
        .limit = limit,
    };

    if (!loader.wants_tokens && !loader.wants_targets) {
        *loader_out = NULL;
        return STATUS_OK;
    }
    return loader_open(&loader, loader_out);
}

static enum status open_set(struct engine *engine, const struct data_part *part,
                            struct engine_set *set)
{
    const struct config *config = engine->config;
    int64_t batch = config->train.global_batch_size;

    TRY(data_part_open(config, part, &set->dataset));
    set->samples = dataset_samples(set->dataset);
    set->batches = (set->samples + batch - 1) / batch;
    if (config->train.eval_steps > 0 && config->train.eval_steps < set->batches) {
        set->batches = config->train.eval_steps;
    }
    return open_loader(engine, set->dataset, false, 0, set->samples, &set->loader);
}

/* What becomes of sequences that do not fill a step, told once for the job. */
static void tell_passes(const struct engine *engine)
{
    long long samples = dataset_samples(engine->dataset);
    long long batch = engine->config->train.global_batch_size;

    if (engine->grid.rank != 0) {
        return;
    }
    if (samples % batch == 0) {
        log_info("data.train: %lld sequences, %lld a step: each pass over the data is %lld steps",
                 samples, batch, samples / batch);
    } else {
        log_info("data.train: %lld sequences, %lld a step: each pass over the data ends within a "
                 "step, which goes on with the next pass; no sequence is dropped, none is padding",
                 samples, batch);
    }
}

/* The position in the data is a number of sequences: in a set of another size it is another place. */
static enum status check_sequences(const struct engine *engine, const struct resume *resume)
{
    long long found = dataset_samples(engine->dataset);
    long long expected = resume != NULL ? resume->manifest.sequences : found;

    if (found == expected || config_allows_change(engine->config, "data", "train") ||
        config_allows_change(engine->config, "data", "split")) {
        return STATUS_OK;
    }
    return status_fail(
        STATUS_ERR_REFUSED,
        "data.train: %s has %lld sequences now, and had %lld when %s was written; name "
        "data.train in checkpoint.allow_change where that is meant",
        engine->config->data.train, found, expected, resume->place.path);
}

enum status engine_start_data(struct engine *engine, const struct resume *resume)
{
    const struct config *config = engine->config;
    struct data_part parts[DATA_ROLES];

    TRY(data_parts_of(config, parts));
    TRY(data_part_open(config, &parts[DATA_TRAIN], &engine->dataset));
    TRY(check_sequences(engine, resume));
    tell_passes(engine);
    if (parts[DATA_VALID].path != NULL) {
        TRY(open_set(engine, &parts[DATA_VALID], &engine->sets[SPLIT_VALID]));
    }
    if (parts[DATA_TEST].path != NULL) {
        TRY(open_set(engine, &parts[DATA_TEST], &engine->sets[SPLIT_TEST]));
    }
    return open_loader(engine, engine->dataset, config->data.shuffle, engine->consumed, INT64_MAX,
                       &engine->loader);
}

void engine_close_data(struct engine *engine)
{
    loader_close(&engine->loader);
    dataset_close(&engine->dataset);
    for (int split = 0; split < SPLITS; split++) {
        loader_close(&engine->sets[split].loader);
        dataset_close(&engine->sets[split].dataset);
    }
}
