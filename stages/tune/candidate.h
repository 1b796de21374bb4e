/*
 * candidate -- one way to run the configuration that is tuned, and the list of those that are legal.
 *
 * A candidate is a handful of keys that stand over the configuration's own, as overrides do on a
 * command line: the same words load it (tune_candidate_load()), start a job with it and, once it has
 * won, become a file. What may vary is chosen by key. The number of ranks and the global batch are
 * the configuration's, always.
 *
 * What is legal the configuration's own checks decide: the list is made from simple arithmetic
 * (divisors of the batch, of heads, of the world; at least one layer a virtual stage), and each
 * entry is then loaded, and dropped where that refuses it.
 */
#ifndef STAGES_TUNE_CANDIDATE_H
#define STAGES_TUNE_CANDIDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "stages/config.h"
#include "stages/tune/arguments.h"

#ifdef __cplusplus
extern "C" {
#endif

/* id, text, what varies. The words of --search. */
#define TUNE_KEY_TABLE(X)                                                           \
    X(MICRO_BATCH, "micro_batch_size", "micro-batch size, and with it their count") \
    X(SCHEDULE, "schedule", "order of forwards and backwards")                      \
    X(VIRTUAL_STAGES, "virtual_stages", "chunks of layers a rank")                  \
    X(LAYERS, "layers_per_stage", "which layers each virtual stage has")            \
    X(GRID, "grid", "pp, tp and dp of the same number of ranks")                    \
    X(RECOMPUTE, "recompute", "as little recompute as fits")

enum tune_key {
#define X(id, text, help) TUNE_KEY_##id,
    TUNE_KEY_TABLE(X)
#undef X
    TUNE_KEYS
};

#define TUNE_KEYS_ALL ((1U << TUNE_KEYS) - 1U)

/* "schedule,grid" → a bit a key. STATUS_ERR_REFUSED names the word and the legal ones. */
enum status tune_keys_parse(const char *text, unsigned *keys_out);

/* Static strings. */
const char *tune_key_text(enum tune_key key);
const char *tune_key_help(enum tune_key key);

/* What is tuned. */
struct tune_base {
    const char *path;                /* borrows; CONFIG */
    struct tune_arguments overrides; /* owns; those of the command line */
    struct config *config;           /* owns; what the two resolve to */
};

/* `memory_limit` NULL: the configuration's own. The caller releases, after a failure too. */
enum status tune_base_load(const char *path, char *const *overrides, int count,
                           const char *memory_limit, struct tune_base *base_out);
void tune_base_release(struct tune_base *base);

struct tune_candidate {
    int64_t pp;
    int64_t tp;
    int64_t dp;
    int64_t virtual_stages;
    enum schedule schedule;
    int64_t micro_batch_size;
    int64_t num_microbatches;
    enum recompute recompute; /* of all virtual stages, where `sets_recompute` */
    bool sets_recompute;      /* else it is the configuration's */
    bool configured;          /* the configuration itself: overrides nothing */
    int32_t *layers;          /* owns; pp · virtual_stages counts; NULL: auto */
    char *plan_path;          /* owns; of a plan that has no name; NULL: `schedule` by name */
};

/* Zero is an empty list. */
struct tune_candidates {
    struct tune_candidate *all; /* owns */
    size_t count;
    size_t capacity; /* private to candidate.c */
};

/* Legal ones, the configuration itself first, no two alike. Of recompute the least is taken where it may vary
 * (tune_candidate_recompute_more()). The caller releases, after a failure too. */
enum status tune_candidates_make(const struct tune_base *base, unsigned keys,
                                 struct tune_candidates *candidates_out);

/* Appends a deep copy. */
enum status tune_candidates_add(struct tune_candidates *candidates,
                                const struct tune_candidate *candidate);

/* Forgets all but the first `count`. */
void tune_candidates_cut(struct tune_candidates *candidates, size_t count);

/* Safe on an empty list, and twice. */
void tune_candidates_release(struct tune_candidates *candidates);

/* Appends the overrides that make it of the configuration: none for the configuration itself. */
enum status tune_candidate_words(const struct tune_candidate *candidate,
                                 struct tune_arguments *arguments);

/* Its configuration, resolved. The caller owns *config_out. STATUS_ERR_REFUSED as config_load(). */
enum status tune_candidate_load(const struct tune_base *base,
                                const struct tune_candidate *candidate, struct config **config_out);

/* Makes it the one that keeps less, and computes it again: none → selective → full. False where that
 * is not its to choose, or nothing is left. */
bool tune_candidate_recompute_more(struct tune_candidate *candidate);

#define TUNE_CANDIDATE_TEXT_BYTES 256

/* "pp 2, tp 1, dp 1, 1f1b, 8 x 8" and what else is not plain, cut to the bytes of `text`. */
void tune_candidate_print(const struct tune_candidate *candidate, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_CANDIDATE_H */
