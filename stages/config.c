#include "stages/config.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "stages/config_check.h"
#include "stages/config_draft.h"
#include "stages/config_override.h"
#include "stages/config_value.h"
#include "stages/config_yaml.h"

#define MISSING_BYTES 512

/* "examples/quickstart.yaml" names the configuration "quickstart". */
static enum status set_name(const char *path, struct config *config)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    size_t bytes = dot != NULL && dot != base ? (size_t)(dot - base) : strlen(base);

    if (bytes == 0 || bytes >= sizeof(config->name)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "configuration %s: expected the name of a file, at most %zu bytes long",
                           path, sizeof(config->name) - 1);
    }
    memcpy(config->name, base, bytes);
    config->name[bytes] = '\0';
    return STATUS_OK;
}

/* Names all keys that have to be given and are not, at once. */
static enum status check_required(const struct config_draft *draft)
{
    char missing[MISSING_BYTES] = "";
    size_t used = 0;

    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        if (!key->required || config_draft_of(draft, key)->text != NULL) {
            continue;
        }
        int wrote = snprintf(missing + used, sizeof(missing) - used, "%s%s.%s",
                             used == 0 ? "" : ", ", key->section, key->name);
        if (wrote > 0 && (size_t)wrote < sizeof(missing) - used) {
            used += (size_t)wrote;
        }
    }
    if (used == 0) {
        return STATUS_OK;
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "%s: missing, and without a default: %s; `weir config --explain KEY` says "
                       "what a key is",
                       draft->path, missing);
}

static enum status read_values(const struct config_draft *draft, struct config *config)
{
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);
        const struct config_value *value = config_draft_of(draft, key);

        config_value_default(key, config);
        TRY(value->text != NULL ? config_value_parse(key, value, config) : STATUS_OK);
    }
    config->train.overwrite = draft->overwrite;
    return STATUS_OK;
}

static enum status read_draft(struct config_draft *draft, char *const *overrides,
                              int override_count)
{
    TRY(config_yaml_read(draft));
    for (int i = 0; i < override_count; i++) {
        TRY(config_override_apply(draft, overrides[i]));
    }
    return STATUS_OK;
}

enum status config_load(const char *path, char *const *overrides, int override_count,
                        struct config **config_out)
{
    struct config_draft draft = {0};
    struct config *config = calloc(1, sizeof(*config));
    enum status status = STATUS_OK;

    if (config == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "configuration %s: no memory", path);
    }
    TRY_OR(done, status, config_draft_init(path, &draft));
    TRY_OR(done, status, set_name(path, config));
    TRY_OR(done, status, read_draft(&draft, overrides, override_count));
    /* What is there is judged first: a wrong key is nearer to the cause than a missing one. */
    TRY_OR(done, status, read_values(&draft, config));
    TRY_OR(done, status, check_required(&draft));
    TRY_OR(done, status, config_check(&draft, config));
    *config_out = config;
    config = NULL;
done:
    config_draft_release(&draft);
    free(config);
    return status;
}

void config_destroy(struct config **config)
{
    free(*config);
    *config = NULL;
}

/* The bytes of a key's value; texts and lists without what lies behind their end. */
static size_t field_bytes(const struct config_key *key, const struct config *config)
{
    switch (key->type) {
    case CONFIG_INT:
    case CONFIG_BYTES:
        return sizeof(int64_t);
    case CONFIG_REAL:
        return sizeof(double);
    case CONFIG_BOOL:
        return sizeof(bool);
    case CONFIG_CHOICE:
        return sizeof(int);
    case CONFIG_TEXT:
        return strlen((const char *)config + key->offset) + 1;
    case CONFIG_COUNTS:
        return (size_t)(config->parallel.pp * config->parallel.virtual_stages) * sizeof(int64_t);
    case CONFIG_CHOICES:
        return (size_t)(config->parallel.pp * config->parallel.virtual_stages) * sizeof(int);
    case CONFIG_SHARES:
        return sizeof(config->data.split);
    case CONFIG_NAMES:
        return sizeof(config->checkpoint.allow_change);
    }
    return 0;
}

uint64_t config_hash(const struct config *config)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        if (key->offset != CONFIG_NO_FIELD) {
            hash = XXH3_64bits_withSeed((const char *)config + key->offset,
                                        field_bytes(key, config), hash);
        }
        if (key->prefix != NULL) {
            const char *rest = (const char *)config + key->rest_offset;

            hash = XXH3_64bits_withSeed(rest, strlen(rest) + 1, hash);
        }
    }
    return hash;
}

/* What one key asks for in vain; nothing where `text` stays "". */
static void note_replicas(const struct config *config, char *text, size_t text_bytes)
{
    int64_t stage = config->parallel.zero_stage;

    if (stage > 0 && config->parallel.dp == 1) {
        (void)snprintf(text, text_bytes,
                       "parallel.zero_stage %lld does nothing: with parallel.dp 1 there are no "
                       "replicas to share with",
                       (long long)stage);
    } else if (stage >= 2 && config->parallel.sequence_slices > 1) {
        (void)snprintf(text, text_bytes,
                       "parallel.zero_stage %lld shares out %s, and no gradients: with "
                       "parallel.sequence_slices %lld a replica adds up its own slices before "
                       "replicas are summed, for the bits of stage 0",
                       (long long)stage,
                       stage == 2 ? "what stage 1 does" : "the weights of layers too",
                       (long long)config->parallel.sequence_slices);
    } else if (stage >= 2 && config->train.num_microbatches > 1) {
        (void)snprintf(
            text, text_bytes,
            "parallel.zero_stage %lld shares out %s, and no gradients: with "
            "train.num_microbatches %lld a replica adds up its own micro-batches before "
            "replicas are summed, for the bits of stage 0, and keeps its gradients whole "
            "until the step's last W; with 1 it shares them out where that takes less",
            (long long)stage, stage == 2 ? "what stage 1 does" : "the weights of layers too",
            (long long)config->train.num_microbatches);
    }
}

static void note_overlap(const struct config *config, char *text, size_t text_bytes)
{
    bool sliced = config->parallel.dp > 1 && config->parallel.zero_stage > 0;

    if (config->parallel.overlap_grad_reduce == CONFIG_TRUE && !sliced) {
        (void)snprintf(
            text, text_bytes,
            "parallel.overlap_grad_reduce true does nothing: it needs parallel.dp above 1 "
            "and parallel.zero_stage above 0");
    }
}

static void note_rows(const struct config *config, char *text, size_t text_bytes)
{
    if (config->parallel.sequence_parallel && config->parallel.tp == 1) {
        (void)snprintf(text, text_bytes,
                       "parallel.sequence_parallel true does nothing: with parallel.tp 1 there are "
                       "no shards to split rows over");
    }
}

static void note_weight_decay(const struct config *config, char *text, size_t text_bytes)
{
    const struct config_optimizer *optimizer = &config->optimizer;

    if (optimizer->weight_decay_schedule == WD_CONSTANT &&
        optimizer->end_weight_decay != optimizer->weight_decay) {
        (void)snprintf(text, text_bytes,
                       "optimizer.end_weight_decay %g does nothing: weight_decay_schedule constant "
                       "stays at weight_decay %g",
                       optimizer->end_weight_decay, optimizer->weight_decay);
    }
}

static void note_loss_scale(const struct config *config, char *text, size_t text_bytes)
{
    if (config->precision.dtype == DTYPE_FP16 && config->precision.loss_scale == 1.0) {
        (void)snprintf(text, text_bytes,
                       "precision.loss_scale 1 with dtype fp16: small gradients become zero; auto "
                       "finds a scale");
    }
}

static void note_in_flight(const struct config *config, char *text, size_t text_bytes)
{
    const struct config_parallel *parallel = &config->parallel;

    if (parallel->extra_in_flight > parallel->pp - 1) {
        (void)snprintf(text, text_bytes,
                       "parallel.extra_in_flight %lld is no more than %lld: with parallel.pp %lld "
                       "no stage waits for more",
                       (long long)parallel->extra_in_flight, (long long)(parallel->pp - 1),
                       (long long)parallel->pp);
    }
}

bool config_note(const struct config *config, int32_t index, char *text, size_t text_bytes)
{
    static void (*const notes[])(const struct config *, char *, size_t) = {
        note_replicas, note_overlap, note_rows, note_weight_decay, note_loss_scale, note_in_flight};

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
        notes[i](config, text, text_bytes);
        if (text[0] != '\0' && index-- == 0) {
            return true;
        }
        text[0] = '\0';
    }
    return false;
}

bool config_splits_rows(const struct config *config)
{
    return config->parallel.sequence_parallel && config->parallel.tp > 1;
}

struct grid_shape config_grid_shape(const struct config *config)
{
    const struct config_parallel *parallel = &config->parallel;

    return (struct grid_shape){
        .pp = (int32_t)parallel->pp, .tp = (int32_t)parallel->tp, .dp = (int32_t)parallel->dp};
}

void config_plan_shape(const struct config *config, struct plan_shape *shape_out)
{
    const struct config_parallel *parallel = &config->parallel;

    memset(shape_out, 0, sizeof(*shape_out));
    shape_out->schedule = parallel->schedule;
    shape_out->ranks = (int32_t)parallel->pp;
    shape_out->microbatches = (int32_t)(config->train.num_microbatches * parallel->sequence_slices);
    shape_out->sequence_slices = (int32_t)parallel->sequence_slices;
    shape_out->virtual_stages = (int32_t)parallel->virtual_stages;
    shape_out->extra_in_flight = (int32_t)parallel->extra_in_flight;
    shape_out->lane_depth = (int32_t)parallel->lane_depth;
    shape_out->early_send = parallel->early_send != CONFIG_FALSE;
    /* Where both ends are on one rank, as on a V, nothing is synced (plan_syncs()). */
    shape_out->embedding_sync = config->model.tied_embeddings && parallel->pp > 1;
    shape_out->reduce = parallel->dp > 1 || config_splits_rows(config);
    shape_out->gather = parallel->dp > 1 && parallel->zero_stage == 3;
}
