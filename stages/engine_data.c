#include "stages/engine_data.h"

#include <unistd.h>

#include "base/log.h"
#include "stages/data/fingerprint.h"
#include "stages/data_parts.h"
#include "stages/engine_start.h"

bool engine_is_crowded(const struct engine_options *options)
{
    return options->local_ranks > sysconf(_SC_NPROCESSORS_ONLN);
}

/* Of a data set, which is not opened yet: what this rank reads of it, and in which pieces. */
static struct loader_config loader_of(const struct engine *engine)
{
    const struct config *config = engine->config;

    return (struct loader_config){
        .sampler =
            {
                .seed = config->train.seed,
                .micro_batch_size = config->train.micro_batch_size,
                .replicas = engine->grid.shape.dp,
                .replica = engine->grid.dp,
            },
        .microbatches = config->train.num_microbatches,
        .positions = config->model.seq_len,
        .wants_tokens = engine_has_embedding(engine),
        .wants_types = engine_has_embedding(engine) && config->model.num_tokentypes > 0,
        .wants_targets = engine_has_head(engine),
    };
}

/* A rank between the two ends reads nothing. */
static bool reads(const struct loader_config *loader)
{
    return loader->wants_tokens || loader->wants_targets;
}

static enum status open_loader(const struct engine *engine, const struct dataset *dataset,
                               bool shuffle, int64_t consumed, int64_t limit,
                               struct loader **loader_out)
{
    struct loader_config loader = loader_of(engine);

    loader.dataset = dataset;
    loader.device = engine->device;
    loader.sampler.samples = dataset_samples(dataset);
    loader.sampler.shuffle = shuffle;
    loader.consumed = consumed;
    loader.limit = limit;
    if (!reads(&loader)) {
        *loader_out = NULL;
        return STATUS_OK;
    }
    return loader_open(&loader, loader_out);
}

enum status engine_plan_data(const struct engine *engine, size_t *bytes_out)
{
    const struct loader_config loader = loader_of(engine);
    struct data_part parts[DATA_ROLES];
    size_t each = 0;

    data_parts_list(engine->config, parts);
    TRY(reads(&loader) ? loader_plan_bytes(&loader, &each) : STATUS_OK);
    *bytes_out = 0;
    for (int role = 0; role < DATA_ROLES; role++) {
        *bytes_out += parts[role].path != NULL ? each : 0;
    }
    return STATUS_OK;
}

void engine_plan_inputs(struct engine *engine)
{
    const struct loader_config loader = loader_of(engine);

    inputs_measure(&engine->inputs, &loader, &engine->shape.slices,
                   !device_backend_tensors_are_here(engine->backend));
}

size_t engine_data_bytes(const struct engine *engine)
{
    size_t bytes = loader_used_bytes(engine->loader);

    for (int split = 0; split < SPLITS; split++) {
        bytes += loader_used_bytes(engine->sets[split].loader);
    }
    return bytes;
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

/* The position in the data is a number of sequences: in a set of another size it is another place. The file may
 * be the same, and another part of it trained on. */
static enum status check_sequences(const struct engine *engine, const struct resume *resume)
{
    long long found = dataset_samples(engine->dataset);
    long long expected = resume != NULL ? resume->manifest.sequences : found;

    if (found == expected || config_allows_change(engine->config, "data", "train") ||
        config_allows_change(engine->config, "data", "split")) {
        return STATUS_OK;
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "data.train: %s has %lld sequences now, and had %lld when %s was written; "
                       "name data.train or data.split in checkpoint.allow_change where that is "
                       "meant",
                       engine->config->data.train, found, expected, resume->place.path);
}

/* Rank 0 looks at the training set for all: what it refuses ends the job, and what it finds goes into
 * checkpoints. */
static enum status identify(struct engine *engine, const struct resume *resume)
{
    if (engine->grid.rank != 0) {
        return STATUS_OK;
    }
    TRY(fingerprint_file(engine->config->data.train, &engine->fingerprint));
    TRY(resume != NULL ? resume_judge_data(resume, engine->config, &engine->fingerprint, true)
                       : STATUS_OK);
    return check_sequences(engine, resume);
}

enum status engine_start_data(struct engine *engine, const struct resume *resume)
{
    const struct config *config = engine->config;
    struct data_part parts[DATA_ROLES];

    TRY(data_parts_of(config, parts));
    TRY(data_part_open(config, &parts[DATA_TRAIN], &engine->dataset));
    TRY(identify(engine, resume));
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
