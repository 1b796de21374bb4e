#include "stages/resume.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "stages/config_schema.h"

#define LIST_BYTES 768 /* of differences, in one message */
#define TEXT_BYTES 160 /* of one value */

static bool is_key(const struct config_key *key, const char *section, const char *name)
{
    return strcmp(key->section, section) == 0 && strcmp(key->name, name) == 0;
}

/* What a run is asked to do with its checkpoints, or what is settled elsewhere: nothing to tell. */
static bool is_silent(const struct config_key *key)
{
    return is_key(key, "checkpoint", "resume") || is_key(key, "checkpoint", "allow_change") ||
           is_key(key, "train", "threads");
}

/* A real as short as it reads back. */
static void real_text(double real, char *text)
{
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, TEXT_BYTES, "%.*g", digits, real);
        if (strtod(text, NULL) == real) {
            return;
        }
    }
}

static void item_text(const json_t *value, char *text)
{
    char *dumped = NULL;

    if (json_is_real(value)) {
        real_text(json_real_value(value), text);
        return;
    }
    dumped = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    (void)snprintf(text, TEXT_BYTES, "%s", dumped != NULL ? dumped : "not there");
    free(dumped);
}

/* A value as a user would write it, cut to TEXT_BYTES. */
static void value_text(const json_t *value, char *text)
{
    size_t used = 0;

    if (!json_is_array(value)) {
        item_text(value, text);
        return;
    }
    for (size_t i = 0; i < json_array_size(value) && used < TEXT_BYTES; i++) {
        char item[TEXT_BYTES];

        item_text(json_array_get(value, i), item);
        used += (size_t)snprintf(text + used, TEXT_BYTES - used, "%s%s", i == 0 ? "[" : ", ", item);
    }
    if (used < TEXT_BYTES) {
        (void)snprintf(text + used, TEXT_BYTES - used, "%s", used == 0 ? "[]" : "]");
    }
}

/* A key with two values. */
struct difference {
    const struct config_key *key;
    char old[TEXT_BYTES];
    char now[TEXT_BYTES];
};

/* Both configurations, and the differences as they are found. */
struct comparison {
    json_t *old; /* owns */
    json_t *now; /* owns */
};

static enum status open_comparison(const struct resume *resume, const struct config *config,
                                   struct comparison *comparison)
{
    char *text = NULL;

    TRY(config_write_json(config, &text));
    comparison->old = json_loads(resume->manifest.config, JSON_REJECT_DUPLICATES, NULL);
    comparison->now = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    if (comparison->old == NULL || comparison->now == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY,
                           "comparing the configuration with that of %s: no memory",
                           resume->place.path);
    }
    return STATUS_OK;
}

static void close_comparison(struct comparison *comparison)
{
    json_decref(comparison->old);
    json_decref(comparison->now);
}

static bool differs(const struct comparison *comparison, const struct config_key *key,
                    struct difference *difference)
{
    const json_t *old = json_object_get(json_object_get(comparison->old, key->section), key->name);
    const json_t *now = json_object_get(json_object_get(comparison->now, key->section), key->name);

    if (json_equal(old, now)) {
        return false;
    }
    difference->key = key;
    value_text(old, difference->old);
    value_text(now, difference->now);
    return true;
}

/* The end of a weight decay that is constant: it follows other keys, and nothing follows it. */
static bool is_idle(const struct config *config, const struct config_key *key)
{
    return config->optimizer.weight_decay_schedule == WD_CONSTANT &&
           (is_key(key, "optimizer", "end_weight_decay") ||
            is_key(key, "optimizer", "weight_decay_steps"));
}

/* Why a difference would be refused. */
enum reason {
    REASON_MODEL,
    REASON_OPTIMIZER,
    REASON_LAYOUT,
    REASON_ASKED,
    REASON_NONE
};

static enum reason reason_of(const struct config *config, const struct config_key *key)
{
    if (key->change == CHANGE_LAYOUT) {
        return REASON_LAYOUT;
    }
    if (is_key(key, "optimizer", "name")) {
        return REASON_OPTIMIZER;
    }
    if (key->change == CHANGE_REFUSED) {
        return REASON_MODEL;
    }
    return key->change == CHANGE_ASKED && !is_idle(config, key) &&
                   !config_allows_change(config, key->section, key->name)
               ? REASON_ASKED
               : REASON_NONE;
}

/* "model.hidden_size 32 → 64, …" of all differences with that reason; how many there are. */
static int list_differences(const struct comparison *comparison, const struct config *config,
                            enum reason reason, char *list)
{
    size_t used = 0;
    int count = 0;

    list[0] = '\0';
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);
        struct difference difference;

        if (is_silent(key) || reason_of(config, key) != reason ||
            !differs(comparison, key, &difference)) {
            continue;
        }
        if (used < LIST_BYTES) {
            used += (size_t)snprintf(list + used, LIST_BYTES - used, "%s%s.%s %s → %s",
                                     count == 0 ? "" : ", ", key->section, key->name,
                                     difference.old, difference.now);
        }
        count++;
    }
    return count;
}

static enum status refuse_differences(const struct comparison *comparison,
                                      const struct resume *resume, const struct config *config)
{
    static const char *const rules[] = {
        [REASON_MODEL] = "a run goes on with the model that it began with",
        [REASON_OPTIMIZER] =
            "the moments of one optimizer say nothing to another; keep it, or start again with "
            "--overwrite",
        [REASON_LAYOUT] = "going on under another layout is not possible yet; keep the old one, or "
                          "start again with --overwrite",
        [REASON_ASKED] = "name each in checkpoint.allow_change where it is meant",
    };

    for (int reason = REASON_MODEL; reason < REASON_NONE; reason++) {
        char list[LIST_BYTES];

        if (list_differences(comparison, config, (enum reason)reason, list) > 0) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s cannot be resumed with this configuration (old → new): %s; %s",
                               resume->place.path, list, rules[reason]);
        }
    }
    return STATUS_OK;
}

static enum status refuse_steps(const struct resume *resume, const struct config *config)
{
    if (config->train.steps >= resume->manifest.step) {
        return STATUS_OK;
    }
    return status_fail(
        STATUS_ERR_REFUSED,
        "train.steps: %lld, and %s is of step %lld already; ask for at least as many, "
        "or start again with --overwrite",
        (long long)config->train.steps, resume->place.path, (long long)resume->manifest.step);
}

static void tell_taken(const struct comparison *comparison, const struct resume *resume,
                       const struct config *config)
{
    int64_t threads = config->train.threads;

    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);
        struct difference difference;

        if (!is_silent(key) && differs(comparison, key, &difference)) {
            log_info("resumed with another %s.%s: %s → %s", key->section, key->name, difference.old,
                     difference.now);
        }
    }
    if (threads != 0 && threads != resume->manifest.threads) {
        log_info("resumed with another train.threads: %lld → %lld; the bits of what follows are "
                 "those of the new number",
                 (long long)resume->manifest.threads, (long long)threads);
    }
}

/* What a death has left, and what was not found where it should be. */
static void tell_folder(const struct resume *resume, const struct config *config)
{
    char partials[256];

    if (resume->place.warning[0] != '\0') {
        log_warn("%s", resume->place.warning);
    }
    if (store_partials(config->checkpoint.dir, partials, sizeof(partials)) > 0) {
        log_warn("%s in %s: a checkpoint that was not written to its end; it is not used, and the "
                 "next one replaces it",
                 partials, config->checkpoint.dir);
    }
}

enum status resume_judge(const struct resume *resume, const struct config *config, bool tells)
{
    struct comparison comparison = {.old = NULL};
    enum status status = STATUS_OK;

    if (tells && !config->train.overwrite) {
        tell_folder(resume, config);
    }
    if (!resume->place.found) {
        return STATUS_OK;
    }
    status = open_comparison(resume, config, &comparison);
    if (status >= 0) {
        status = refuse_differences(&comparison, resume, config);
    }
    if (status >= 0) {
        status = refuse_steps(resume, config);
    }
    if (status >= 0 && tells) {
        tell_taken(&comparison, resume, config);
    }
    close_comparison(&comparison);
    return status;
}

static void sum_text(const struct manifest_sum *sum, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%llu bytes, XXH3 %016llx", (unsigned long long)sum->bytes,
                   (unsigned long long)sum->xxh3);
}

enum status resume_judge_data(const struct resume *resume, const struct config *config,
                              const struct manifest_sum *data, bool tells)
{
    const struct manifest_sum *before = &resume->manifest.data;
    char old[TEXT_BYTES];
    char now[TEXT_BYTES];

    if (before->bytes == data->bytes && before->xxh3 == data->xxh3) {
        return STATUS_OK;
    }
    sum_text(before, old);
    sum_text(data, now);
    if (!config_allows_change(config, "data", "train")) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s cannot be resumed with another training set (old → new): the "
                           "content of data.train, %s: %s → %s; name data.train in "
                           "checkpoint.allow_change where it is meant",
                           resume->place.path, config->data.train, old, now);
    }
    if (tells) {
        log_info("resumed with another content of data.train, %s: %s → %s", config->data.train, old,
                 now);
    }
    return STATUS_OK;
}

void resume_tell_older(const struct resume *resume, const struct config *config)
{
    const char *directory = config->checkpoint.dir;
    const struct status_record kept = *status_last();
    char path[FILE_PATH_BYTES];

    if (resume->place.found && store_find_older(directory, resume->place.step, path)) {
        log_warn("the checkpoint before it is %s; to go on from that one: echo %s > %s/latest",
                 path, strrchr(path, '/') + 1, directory);
    }
    status_adopt(&kept);
}

static enum status find_none(const struct config *config)
{
    if (config->checkpoint.resume != RESUME_MUST) {
        return STATUS_OK;
    }
    return status_fail(
        STATUS_ERR_REFUSED, "checkpoint.resume is must, and there is no checkpoint in %s%s",
        config->checkpoint.dir, config->train.overwrite ? " to keep with --overwrite" : "");
}

enum status resume_find(const struct config *config, struct resume *resume_out)
{
    enum status status = STATUS_OK;

    *resume_out = (struct resume){.place = {.found = false}};
    if (config->train.overwrite || config->checkpoint.resume == RESUME_NEVER) {
        return find_none(config);
    }
    TRY(store_find(config->checkpoint.dir, &resume_out->place));
    if (!resume_out->place.found) {
        return find_none(config);
    }
    status = manifest_read(resume_out->place.path, &resume_out->manifest);
    if (status >= 0) {
        status = manifest_check_sizes(resume_out->place.path, &resume_out->manifest);
    }
    if (status < 0) {
        resume_tell_older(resume_out, config);
    }
    return status;
}

void resume_settle(const struct resume *resume, struct config *config)
{
    if (resume->place.found && config->train.threads == 0) {
        config->train.threads = resume->manifest.threads;
    }
}

void resume_release(struct resume *resume)
{
    manifest_release(&resume->manifest);
    *resume = (struct resume){.place = {.found = false}};
}
