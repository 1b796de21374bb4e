#include "stages/tune/candidate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/nearest.h"

#define WORD_BYTES 64

static const char *const key_texts[TUNE_KEYS] = {
#define X(id, text, help) [TUNE_KEY_##id] = (text),
    TUNE_KEY_TABLE(X)
#undef X
};

static const char *const key_helps[TUNE_KEYS] = {
#define X(id, text, help) [TUNE_KEY_##id] = (help),
    TUNE_KEY_TABLE(X)
#undef X
};

static const char *const recompute_texts[] = {
    [RECOMPUTE_NONE] = "none", [RECOMPUTE_SELECTIVE] = "selective", [RECOMPUTE_FULL] = "full"};

const char *tune_key_text(enum tune_key key)
{
    return key_texts[key];
}

const char *tune_key_help(enum tune_key key)
{
    return key_helps[key];
}

static enum status refuse_key(const char *word)
{
    const char *near = nearest_name(word, key_texts, TUNE_KEYS);
    char list[512] = "";
    size_t used = 0;

    for (int key = 0; key < TUNE_KEYS; key++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", key > 0 ? ", " : "",
                                 key_texts[key]);
    }
    return status_fail(
        STATUS_ERR_REFUSED,
        "weir tune: --search: there is no key \"%s\"%s%s%s; expected all, or some of "
        "%s, with commas between",
        word, near != NULL ? "; did you mean " : "", near != NULL ? near : "",
        near != NULL ? "?" : "", list);
}

static enum status take_key(const char *word, unsigned *keys)
{
    if (strcmp(word, "all") == 0) {
        *keys |= TUNE_KEYS_ALL;
        return STATUS_OK;
    }
    for (int key = 0; key < TUNE_KEYS; key++) {
        if (strcmp(word, key_texts[key]) == 0) {
            *keys |= 1U << key;
            return STATUS_OK;
        }
    }
    return refuse_key(word);
}

enum status tune_keys_parse(const char *text, unsigned *keys_out)
{
    unsigned keys = 0;
    const char *at = text;
    bool last = false;

    while (!last) {
        size_t bytes = strcspn(at, ",");
        char word[WORD_BYTES];

        last = at[bytes] == '\0';
        (void)snprintf(word, sizeof(word), "%.*s",
                       (int)(bytes < WORD_BYTES ? bytes : WORD_BYTES - 1), at);
        TRY(take_key(word, &keys));
        at += bytes + 1;
    }
    *keys_out = keys;
    return STATUS_OK;
}

enum status tune_base_load(const char *path, char *const *overrides, int count,
                           const char *memory_limit, struct tune_base *base_out)
{
    *base_out = (struct tune_base){.path = path};
    tune_arguments_add_all(&base_out->overrides, overrides, count);
    if (memory_limit != NULL) {
        tune_arguments_add(&base_out->overrides, "--train.memory_limit=%s", memory_limit);
    }
    TRY(tune_arguments_check(&base_out->overrides));
    return config_load(path, base_out->overrides.words, base_out->overrides.count,
                       &base_out->config);
}

void tune_base_release(struct tune_base *base)
{
    tune_arguments_release(&base->overrides);
    config_destroy(&base->config);
}

static enum status add_layers(const struct tune_candidate *candidate,
                              struct tune_arguments *arguments)
{
    char list[4096] = "auto";
    size_t used = 0;

    for (int64_t s = 0; candidate->layers != NULL && s < candidate->pp * candidate->virtual_stages;
         s++) {
        int wrote = snprintf(list + used, sizeof(list) - used, "%s%d", s > 0 ? "," : "[",
                             candidate->layers[s]);

        if (wrote < 0 || (size_t)wrote + 2 >= sizeof(list) - used) {
            return status_fail(STATUS_ERR_REFUSED,
                               "weir tune: a split over %" PRId64 " virtual stages is too long",
                               candidate->pp * candidate->virtual_stages);
        }
        used += (size_t)wrote;
    }
    if (candidate->layers != NULL) {
        (void)snprintf(list + used, sizeof(list) - used, "]");
    }
    tune_arguments_add(arguments, "--parallel.layers_per_stage=%s", list);
    return tune_arguments_check(arguments);
}

enum status tune_candidate_words(const struct tune_candidate *candidate,
                                 struct tune_arguments *arguments)
{
    const struct tune_candidate *c = candidate;

    if (c->configured) {
        return STATUS_OK;
    }
    tune_arguments_add(arguments, "--parallel.pp=%" PRId64, c->pp);
    tune_arguments_add(arguments, "--parallel.tp=%" PRId64, c->tp);
    tune_arguments_add(arguments, "--parallel.dp=%" PRId64, c->dp);
    tune_arguments_add(arguments, "--parallel.virtual_stages=%" PRId64, c->virtual_stages);
    if (c->plan_path != NULL) {
        tune_arguments_add(arguments, "--parallel.schedule=file:%s", c->plan_path);
    } else {
        tune_arguments_add(arguments, "--parallel.schedule=%s", schedule_text(c->schedule));
    }
    tune_arguments_add(arguments, "--train.micro_batch_size=%" PRId64, c->micro_batch_size);
    tune_arguments_add(arguments, "--train.num_microbatches=%" PRId64, c->num_microbatches);
    tune_arguments_add(arguments, "--train.global_batch_size=%" PRId64,
                       c->micro_batch_size * c->num_microbatches * c->dp);
    if (c->sets_recompute) {
        tune_arguments_add(arguments, "--train.recompute=%s", recompute_texts[c->recompute]);
    }
    return add_layers(c, arguments);
}

enum status tune_candidate_load(const struct tune_base *base,
                                const struct tune_candidate *candidate, struct config **config_out)
{
    struct tune_arguments words = {.words = NULL};
    enum status status = STATUS_OK;

    tune_arguments_add_all(&words, base->overrides.words, base->overrides.count);
    TRY_OR(done, status, tune_candidate_words(candidate, &words));
    status = config_load(base->path, words.words, words.count, config_out);
done:
    tune_arguments_release(&words);
    return status;
}

bool tune_candidate_recompute_more(struct tune_candidate *candidate)
{
    if (!candidate->sets_recompute || candidate->recompute == RECOMPUTE_FULL) {
        return false;
    }
    candidate->recompute =
        candidate->recompute == RECOMPUTE_NONE ? RECOMPUTE_SELECTIVE : RECOMPUTE_FULL;
    return true;
}

/* Appends ", " and what follows, as long as there is room. */
static void append(char *text, size_t text_bytes, const char *what)
{
    size_t used = strlen(text);

    (void)snprintf(text + used, text_bytes - used, "%s", what);
}

void tune_candidate_print(const struct tune_candidate *candidate, char *text, size_t text_bytes)
{
    const struct tune_candidate *c = candidate;
    char part[WORD_BYTES];

    (void)snprintf(text, text_bytes, "pp %" PRId64 ", tp %" PRId64 ", dp %" PRId64 ", %s", c->pp,
                   c->tp, c->dp, c->plan_path != NULL ? "searched" : schedule_text(c->schedule));
    if (c->virtual_stages > 1) {
        (void)snprintf(part, sizeof(part), " v %" PRId64, c->virtual_stages);
        append(text, text_bytes, part);
    }
    (void)snprintf(part, sizeof(part), ", %" PRId64 " x %" PRId64, c->num_microbatches,
                   c->micro_batch_size);
    append(text, text_bytes, part);
    for (int64_t s = 0; c->layers != NULL && s < c->pp * c->virtual_stages; s++) {
        (void)snprintf(part, sizeof(part), "%s%d", s == 0 ? ", layers " : "+", c->layers[s]);
        append(text, text_bytes, part);
    }
    if (c->sets_recompute && c->recompute != RECOMPUTE_NONE) {
        (void)snprintf(part, sizeof(part), ", recompute %s", recompute_texts[c->recompute]);
        append(text, text_bytes, part);
    }
}
