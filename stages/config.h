/*
 * config -- what a job is: the YAML file, overridden by --section.key=value, resolved and checked.
 *
 * Everything that can be known to be wrong is refused here, before any process starts: unknown
 * keys (with the nearest legal one), wrong types, values out of range, contradictions between
 * keys, always with file and line (or the override) and what would be legal. After config_load()
 * every field is set: `auto` and derived values are resolved where they depend on the
 * configuration alone. Fields that depend on the machine (threads, device) stay 0 or AUTO and are
 * resolved at start.
 *
 * Keys, defaults and meanings stand once, in the table of config_schema.c; `weir config
 * --explain KEY` prints it.
 */
#ifndef STAGES_CONFIG_H
#define STAGES_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "collectives/grid.h"
#include "mixedprec/lr_schedule.h"
#include "mixedprec/optimizer.h"
#include "mixedprec/wd_schedule.h"
#include "scheduler/plan.h"
#include "stages/model/recompute.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONFIG_TEXT_BYTES  512
#define CONFIG_STAGES_MOST 1024               /* pp · virtual_stages */
#define CONFIG_RANKS_MOST  1024               /* pp · tp · dp */
#define CONFIG_STEPS_MOST  ((int64_t)1 << 40) /* and samples of a run */
#define CONFIG_GROUP_MOST  64                 /* tp, dp: what a group of the data plane can hold */
#define CONFIG_NAME_BYTES  48                 /* "section.key" with its end */
#define CONFIG_NAMES_MOST  32

enum config_auto {
    CONFIG_FALSE,
    CONFIG_TRUE,
    CONFIG_AUTO
};
enum config_format {
    FORMAT_AUTO,
    FORMAT_TEXT,
    FORMAT_SAMPLES
};
/* Who carries the tied embedding's gradient and weights; the bits are the same. */
enum config_embedding_sync {
    EMBEDDING_SYNC_AUTO, /* zmq up to 64 MiB a pair, way and step, else the data plane */
    EMBEDDING_SYNC_ZMQ,
    EMBEDDING_SYNC_DATA_PLANE
};
enum config_device {
    CONFIG_DEVICE_AUTO,
    CONFIG_DEVICE_CPU,
    CONFIG_DEVICE_CUDA
};
enum config_resume {
    RESUME_AUTO,  /* goes on where there is a checkpoint */
    RESUME_NEVER, /* starts with step 1 */
    RESUME_MUST   /* goes on, or is refused */
};

struct config_model {
    int64_t num_layers;
    int64_t hidden_size;
    int64_t num_heads;
    int64_t ffn_hidden_size; /* 4·hidden_size unless given */
    int64_t seq_len;
    int64_t max_positions;  /* seq_len unless given; >= seq_len */
    int64_t vocab_size;     /* 256 for the byte tokenizer */
    int64_t num_tokentypes; /* 0: none */
    bool tied_embeddings;
    double dropout; /* in [0, 1) */
    double init_std;
    double layer_norm_eps;
};

struct config_parallel {
    int64_t pp;
    int64_t tp; /* divides num_heads and ffn_hidden_size; at most vocab_size */
    int64_t dp;
    int64_t virtual_stages;
    enum schedule schedule;
    char schedule_file[CONFIG_TEXT_BYTES]; /* PATH of file:PATH; "" for a schedule by name */
    enum config_auto early_send;
    int64_t sequence_slices;                      /* k of seq1f1b; 1: sequences are whole */
    int64_t extra_in_flight;                      /* 0 but with schedules that can have more */
    int64_t lane_depth;                           /* auto is 2 */
    int64_t layers_per_stage[CONFIG_STAGES_MOST]; /* resolved: pp·virtual_stages counts */
    bool sequence_parallel;                       /* of nothing where tp is 1 */
    int64_t zero_stage;                           /* 0 to 3; of nothing where dp is 1 */
    enum config_auto overlap_grad_reduce; /* auto: where there are cores for a thread more */
    enum config_embedding_sync embedding_sync;
    enum config_device device;
};

struct config_train {
    int64_t steps;
    int64_t micro_batch_size;
    int64_t num_microbatches;
    int64_t global_batch_size; /* = micro_batch_size · num_microbatches · dp */
    uint64_t seed;
    enum recompute recompute[CONFIG_STAGES_MOST]; /* resolved: by virtual stage */
    int64_t threads;      /* of one stage process; 0: auto, resolved at start */
    int64_t memory_limit; /* bytes a rank; 0: none */
    bool deterministic;
    int64_t eval_every; /* 0: never */
    int64_t eval_steps; /* 0: the whole set */
    int64_t log_every;
    bool log_num_zeros;
    bool log_params_norm;
    char run_dir[CONFIG_TEXT_BYTES];
    bool overwrite; /* --overwrite of the command line, no key of the file */
};

struct config_optimizer {
    enum optimizer_kind name;
    double lr;
    double min_lr;
    int64_t warmup_steps;
    int64_t decay_steps;     /* steps unless given */
    int64_t wsd_decay_steps; /* decay_steps / 10 unless given */
    enum lr_kind lr_schedule;
    double weight_decay; /* of the first update */
    enum wd_kind weight_decay_schedule;
    double end_weight_decay;    /* weight_decay unless given */
    int64_t weight_decay_steps; /* updates until end_weight_decay; decay_steps unless given */
    double beta1;
    double beta2;
    double eps;
    double momentum;  /* SGD, in [0, 1) */
    double grad_clip; /* 0: off */
};

struct config_precision {
    enum dtype dtype;        /* of the model: weights, activations, messages */
    bool tf32;               /* in fp32 on a GPU alone: products of TF32 */
    double loss_scale;       /* the constant; -1 where the scale is dynamic */
    bool dynamic_scale;      /* no key: loss_scale auto in fp16; the next six are of it alone */
    double initial_scale;    /* >= min_scale */
    int64_t growth_interval; /* good steps in a row until the scale grows */
    double growth_factor;    /* > 1 */
    double backoff_factor;   /* in (0, 1) */
    int64_t hysteresis;      /* bad steps until the scale shrinks */
    double min_scale;
    int64_t max_skipped_in_a_row; /* then the run ends with its cause */
};

struct config_data {
    char train[CONFIG_TEXT_BYTES];
    char valid[CONFIG_TEXT_BYTES]; /* "": cut from train by `split` */
    char test[CONFIG_TEXT_BYTES];
    double split[3];
    enum config_format format;
    bool shuffle;
};

struct config_checkpoint {
    char dir[CONFIG_TEXT_BYTES]; /* <run_dir>/checkpoints unless given */
    int64_t every;               /* steps; 0: never */
    int64_t keep;
    enum config_resume resume;
    /* "section.key" or "section.*", then "": what a resumed run may change of what it asks for. */
    char allow_change[CONFIG_NAMES_MOST][CONFIG_NAME_BYTES];
    char import[CONFIG_TEXT_BYTES]; /* safetensors with starting weights; "": none */
    char import_prefix[CONFIG_TEXT_BYTES];
};

struct config_trace {
    bool enabled;
    int64_t first_step;
    int64_t last_step; /* INT64_MAX: all */
    int64_t max_mb;
    bool nvtx;
};

struct config_control {
    double heartbeat_s;
    double dead_after_s;
    double stall_after_s; /* < 0: auto */
    double start_timeout_s;
};

struct config {
    char name[CONFIG_TEXT_BYTES]; /* of the configuration: the file's name without its ending */
    struct config_model model;
    struct config_parallel parallel;
    struct config_train train;
    struct config_optimizer optimizer;
    struct config_precision precision;
    struct config_data data;
    struct config_checkpoint checkpoint;
    struct config_trace trace;
    struct config_control control;
};

/* Reads `path` and applies `overrides` ("--section.key=value" or "section.key=value", later ones
 * win; "--overwrite"). STATUS_ERR_REFUSED with one message that names place, value and what would
 * be legal. Does not look at data files or the machine. The caller owns *config_out
 * (config_destroy). */
enum status config_load(const char *path, char *const *overrides, int override_count,
                        struct config **config_out);
void config_destroy(struct config **config);

/* The resolved configuration as YAML that config_load() reads back to the same values. */
enum status config_write_yaml(const struct config *config, FILE *out);

/* The same as one JSON object by sections; the caller frees *text_out. */
enum status config_write_json(const struct config *config, char **text_out);

/* Whether checkpoint.allow_change names `section`.`name`, or its whole section. */
bool config_allows_change(const struct config *config, const char *section, const char *name);

/* Note `index` = 0, 1, ... on a legal configuration, for its user: what is asked for and does
 * nothing, or little good, and why. False where there are no more. */
bool config_note(const struct config *config, int32_t index, char *text, size_t text_bytes);

/* XXH3 over the resolved values: ranks compare it at start. */
uint64_t config_hash(const struct config *config);

/* Whether tensor-parallel shards have rows of their own: parallel.sequence_parallel, and tp > 1. */
bool config_splits_rows(const struct config *config);

/* pp, tp and dp; their product is at most CONFIG_RANKS_MOST. */
struct grid_shape config_grid_shape(const struct config *config);

/* The plan's shape: a tied embedding whose two ends are on different ranks asks for the embedding
 * sync, dp > 1 for the reduction over replicas, and so do rows of their own for that over shards;
 * early_send auto is true, and the placement that of the schedule. */
void config_plan_shape(const struct config *config, struct plan_shape *shape_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_H */
