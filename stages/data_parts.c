#include "stages/data_parts.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static enum dataset_format format_of(const struct config *config, const char *path)
{
    const char *ending = strrchr(path, '.');

    if (config->data.format != FORMAT_AUTO) {
        return config->data.format == FORMAT_SAMPLES ? DATASET_SAMPLES : DATASET_TEXT;
    }
    return ending != NULL && strcmp(ending, ".safetensors") == 0 ? DATASET_SAMPLES : DATASET_TEXT;
}

static const char *path_or_null(const char *path)
{
    return path[0] != '\0' ? path : NULL;
}

void data_parts_list(const struct config *config, struct data_part *parts_out)
{
    const struct config_data *data = &config->data;
    bool cut = format_of(config, data->train) == DATASET_TEXT && data->valid[0] == '\0';
    double train = cut ? data->split[0] : 1.0;
    double valid = cut ? train + data->split[1] : 1.0;

    parts_out[DATA_TRAIN] = (struct data_part){"data.train", data->train, 0.0, train};
    parts_out[DATA_VALID] = (struct data_part){"data.valid", path_or_null(data->valid), 0.0, 1.0};
    parts_out[DATA_TEST] = (struct data_part){"data.test", path_or_null(data->test), 0.0, 1.0};
    if (config->train.eval_every <= 0) {
        parts_out[DATA_VALID].path = NULL;
        parts_out[DATA_TEST].path = NULL;
        return;
    }
    if (cut && valid > train) {
        parts_out[DATA_VALID] = (struct data_part){"data.train", data->train, train, valid};
    }
    if (cut && valid < 1.0 && data->split[2] > 0.0 && data->test[0] == '\0') {
        parts_out[DATA_TEST] = (struct data_part){"data.train", data->train, valid, 1.0};
    }
}

enum status data_parts_of(const struct config *config, struct data_part *parts_out)
{
    data_parts_list(config, parts_out);
    if (config->train.eval_every > 0 && parts_out[DATA_VALID].path == NULL) {
        return status_fail(STATUS_ERR_REFUSED,
                           "train.eval_every is %lld but there is nothing to evaluate on: give "
                           "data.valid, or set train.eval_every to 0 (data.split cuts text only)",
                           (long long)config->train.eval_every);
    }
    return STATUS_OK;
}

enum status data_part_open(const struct config *config, const struct data_part *part,
                           struct dataset **dataset_out)
{
    struct dataset_config dataset = {
        .path = part->path,
        .format = format_of(config, part->path),
        .positions = config->model.seq_len,
        .vocab = config->model.vocab_size,
        .types = config->model.num_tokentypes,
        .begin = part->begin,
        .end = part->end,
    };

    if (access(part->path, R_OK) != 0) {
        return status_fail(STATUS_ERR_REFUSED, "%s: cannot read %s: %s", part->key, part->path,
                           strerror(errno));
    }
    return dataset_open(&dataset, dataset_out);
}

/* A part without a path is one that the run has not. */
static enum status check_part(const struct config *config, const struct data_part *part)
{
    struct dataset *dataset = NULL;

    if (part->path == NULL) {
        return STATUS_OK;
    }
    TRY(data_part_open(config, part, &dataset));
    dataset_close(&dataset);
    return STATUS_OK;
}

enum status data_parts_check(const struct config *config)
{
    struct data_part parts[DATA_ROLES];

    TRY(data_parts_of(config, parts));
    for (int role = 0; role < DATA_ROLES; role++) {
        TRY(check_part(config, &parts[role]));
    }
    return STATUS_OK;
}
