/* engine_checkpoint -- how the state of a job goes to disk. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/log.h"
#include "stages/checkpoint/shard.h"
#include "stages/checkpoint/store.h"
#include "stages/engine.h"
#include "stages/engine_start.h"

/* What each rank tells of its file: its size, and its sum in two halves that a double holds. */
enum {
    SUM_BYTES,
    SUM_HIGH,
    SUM_LOW,
    SUM_KEYS
};

_Static_assert(SUM_KEYS *CONFIG_RANKS_MOST <= CONTROL_KEYS_MOST, "a round has room for all files");

static int32_t world_of(const struct engine *engine)
{
    const struct grid_shape *shape = &engine->grid.shape;

    return shape->pp * shape->tp * shape->dp;
}

static enum status write_own(struct engine *engine, const char *folder, struct manifest_sum *sum)
{
    const struct fault_writing fault = {
        .fault = &engine->worker.fault, .rank = engine->grid.rank, .step = engine->attempts};
    const struct piece_watch watch = engine_watch(engine);
    char name[SHARD_NAME_BYTES];
    char path[FILE_PATH_BYTES];
    const struct shard_writing writing = {
        .path = path,
        .params = &engine->params,
        .replica = engine->grid.dp,
        .fault = &fault,
        .watch = &watch,
    };

    manifest_shard_name(&engine->grid.shape, engine->grid.rank, name);
    TRY(folder_path(folder, name, path));
    return shard_write(&writing, sum);
}

/* All ranks have written, this one with `written`: every rank gets the sums of all files. */
static enum status exchange_sums(struct engine *engine, enum status written,
                                 const struct manifest_sum *own, struct control_key *keys,
                                 double *numbers)
{
    int32_t world = world_of(engine);
    int32_t first = SUM_KEYS * engine->grid.rank;
    const struct control_value values[SUM_KEYS] = {
        {.key = first + SUM_BYTES, .number = (double)own->bytes},
        {.key = first + SUM_HIGH, .number = (double)(own->xxh3 >> 32)},
        {.key = first + SUM_LOW, .number = (double)(uint32_t)own->xxh3},
    };
    const struct control_round round = {
        .name = "SAVE-WRITTEN",
        .keys = keys,
        .key_count = SUM_KEYS * world,
        .values = values,
        .value_count = SUM_KEYS,
    };

    for (int32_t i = 0; i < SUM_KEYS * world; i++) {
        keys[i] = (struct control_key){"sum of a file", CONTROL_ONCE};
    }
    return engine_agree(engine, &round, numbers, written);
}

static enum status collect_sums(struct engine *engine, enum status written,
                                const struct manifest_sum *own, struct manifest_sum *files)
{
    int32_t world = world_of(engine);
    size_t count = SUM_KEYS * (size_t)world;
    struct control_key *keys = calloc(count, sizeof(*keys));
    double *numbers = calloc(count, sizeof(*numbers));
    enum status status = STATUS_OK;

    if (keys == NULL || numbers == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "checkpoint: sums of %d files", world);
        goto done;
    }
    TRY_OR(done, status, exchange_sums(engine, written, own, keys, numbers));
    for (int32_t rank = 0; rank < world; rank++) {
        const double *of = &numbers[SUM_KEYS * (size_t)rank];

        files[rank] = (struct manifest_sum){
            .bytes = (uint64_t)of[SUM_BYTES],
            .xxh3 = (uint64_t)of[SUM_HIGH] << 32 | (uint64_t)of[SUM_LOW],
        };
    }
done:
    free(keys);
    free(numbers);
    return status;
}

static enum status write_manifest(const struct engine *engine, const struct engine_save *save,
                                  const char *folder, struct manifest_sum *files)
{
    struct manifest manifest = {
        .step = engine->attempts,
        .updates = engine->update.updates,
        .consumed = engine->consumed,
        .sequences = dataset_samples(engine->dataset),
        .data = engine->fingerprint,
        .skipped = save->skipped,
        .skipped_in_a_row = save->skipped_in_a_row,
        .scale = engine->update.scaler.state,
        .threads = engine->threads,
        .layout = engine->grid.shape,
        .files = files,
    };
    enum status status = STATUS_OK;

    (void)snprintf(manifest.variant, sizeof(manifest.variant), "%s",
                   device_variant(engine->device));
    TRY(config_write_json(engine->config, &manifest.config));
    status = manifest_write(folder, &manifest);
    free(manifest.config);
    return status;
}

static void tell_saved(const struct engine *engine, const struct engine_save *save,
                       const struct manifest_sum *files, int64_t begin_ns)
{
    char name[STORE_NAME_BYTES];
    uint64_t bytes = 0;

    for (int32_t rank = 0; rank < world_of(engine); rank++) {
        bytes += files[rank].bytes;
    }
    store_name(engine->attempts, name);
    log_info("saved %s/%s: %.1f MiB in %.0f ms", save->directory, name, (double)bytes / (1 << 20),
             (double)(clock_now_ns() - begin_ns) * 1e-6);
}

/* Rank 0, when the files of all ranks are there. */
static enum status finish(struct engine *engine, const struct engine_save *save, const char *folder,
                          struct manifest_sum *files, int64_t begin_ns)
{
    const struct piece_watch watch = engine_watch(engine);

    TRY(write_manifest(engine, save, folder, files));
    pieces_tell(&watch);
    TRY(store_publish(save->directory, engine->attempts));
    pieces_tell(&watch);
    tell_saved(engine, save, files, begin_ns);
    /* The new one is whole: that an old one cannot be removed ends no run. */
    (void)store_prune(save->directory, engine->attempts, save->keep);
    return STATUS_OK;
}

static enum status write_all(struct engine *engine, const struct engine_save *save,
                             struct manifest_sum *files)
{
    bool first = engine->grid.rank == 0;
    int64_t begin_ns = clock_now_ns();
    struct manifest_sum own = {.bytes = 0};
    enum status written = STATUS_OK;
    char folder[FILE_PATH_BYTES];

    TRY(store_partial_path(save->directory, engine->attempts, folder));
    TRY(first ? store_begin(save->directory, engine->attempts) : STATUS_OK);
    TRY(engine_meet(engine, "SAVE-BEGUN"));
    written = write_own(engine, folder, &own);
    TRY(collect_sums(engine, written, &own, files));
    TRY(first ? finish(engine, save, folder, files, begin_ns) : STATUS_OK);
    return engine_meet(engine, "SAVE");
}

enum status engine_save(struct engine *engine, const struct engine_save *save)
{
    struct manifest_sum *files = calloc((size_t)world_of(engine), sizeof(*files));
    enum status status = STATUS_OK;

    if (files == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "checkpoint: sums of %d files", world_of(engine));
    }
    engine_enter(engine, UPDATE_PHASE_SAVE);
    status = write_all(engine, save, files);
    if (status < 0) {
        status = engine_tell_cause(engine, status);
        /* Each rank: the one that has failed may be rank 0, and be gone. */
        store_discard(save->directory, engine->attempts);
    }
    free(files);
    return status;
}
