#include "stages/engine_data.h"

#include <string.h>
#include <unistd.h>

#include "stages/engine_start.h"

bool engine_is_crowded(const struct engine_options *options)
{
    return options->local_ranks > sysconf(_SC_NPROCESSORS_ONLN);
}

static enum dataset_format format_of(const struct config *config, const char *path)
{
    const char *ending = strrchr(path, '.');

    if (config->data.format != FORMAT_AUTO) {
        return config->data.format == FORMAT_SAMPLES ? DATASET_SAMPLES : DATASET_TEXT;
    }
    return ending != NULL && strcmp(ending, ".safetensors") == 0 ? DATASET_SAMPLES : DATASET_TEXT;
}

static enum status open_dataset(const struct config *config, const char *path, double begin,
                                double end, struct dataset **dataset_out)
{
    struct dataset_config dataset = {
        .path = path,
        .format = format_of(config, path),
        .positions = config->model.seq_len,
        .vocab = config->model.vocab_size,
        .begin = begin,
        .end = end,
    };

    return dataset_open(&dataset, dataset_out);
}

static enum status open_loader(const struct engine *engine, const struct dataset *dataset,
                               bool shuffle, int64_t limit, struct loader **loader_out)
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
        .wants_tokens = engine->grid.pp == 0,
        .wants_targets = engine->grid.pp == engine->grid.shape.pp - 1,
        .limit = limit,
    };

    if (!loader.wants_tokens && !loader.wants_targets) {
        *loader_out = NULL;
        return STATUS_OK;
    }
    return loader_open(&loader, loader_out);
}

/* A held-out set from a file of its own, or the part [begin, end) of the training text. */
static enum status open_set(struct engine *engine, enum engine_split split, const char *path,
                            double begin, double end)
{
    const struct config *config = engine->config;
    struct engine_set *set = &engine->sets[split];
    int64_t batch = config->train.global_batch_size;
    int64_t whole = 0;

    TRY(open_dataset(config, path, begin, end, &set->dataset));
    set->samples = dataset_samples(set->dataset);
    whole = (set->samples + batch - 1) / batch;
    set->batches = whole;
    if (config->train.eval_steps > 0 && config->train.eval_steps < whole) {
        set->batches = config->train.eval_steps;
    }
    return open_loader(engine, set->dataset, false, set->samples, &set->loader);
}

static enum status open_held_out(struct engine *engine, bool cut)
{
    const struct config_data *data = &engine->config->data;
    double train = data->split[0];
    double valid = train + data->split[1];

    if (engine->config->train.eval_every <= 0) {
        return STATUS_OK;
    }
    if (data->valid[0] != '\0') {
        TRY(open_set(engine, SPLIT_VALID, data->valid, 0.0, 1.0));
    } else if (cut && data->split[1] > 0.0) {
        TRY(open_set(engine, SPLIT_VALID, data->train, train, valid));
    } else {
        return status_fail(STATUS_ERR_REFUSED,
                           "train.eval_every is %lld but there is nothing to evaluate on: give "
                           "data.valid, or set train.eval_every to 0 (data.split cuts text only)",
                           (long long)engine->config->train.eval_every);
    }
    if (data->test[0] != '\0') {
        return open_set(engine, SPLIT_TEST, data->test, 0.0, 1.0);
    }
    if (cut && data->split[2] > 0.0) {
        return open_set(engine, SPLIT_TEST, data->train, valid, 1.0);
    }
    return STATUS_OK;
}

enum status engine_start_data(struct engine *engine)
{
    const struct config *config = engine->config;
    bool text = format_of(config, config->data.train) == DATASET_TEXT;
    bool cut = text && config->data.valid[0] == '\0';

    TRY(open_dataset(config, config->data.train, 0.0, cut ? config->data.split[0] : 1.0,
                     &engine->dataset));
    TRY(open_held_out(engine, cut));
    return open_loader(engine, engine->dataset, config->data.shuffle, INT64_MAX, &engine->loader);
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
