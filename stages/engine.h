/*
 * engine -- one stage process: its shard of the model, its planes, its plan, its data.
 *
 * engine_open() joins the job and makes everything that a step needs; engine_step() runs one
 * step; engine_evaluate() a pass over a held-out set; engine_save() writes a checkpoint, from which
 * engine_open() can go on; engine_export() writes the weights.
 * Nothing here knows of command lines, signals, run directories or consoles (stages/train.h), so
 * that tests run several engines as threads of one process.
 *
 * Threads: one owner thread an engine. Failures: whoever fails tells all others through the
 * control plane (engine_close does it), so that every rank ends with the same cause.
 */
#ifndef STAGES_ENGINE_H
#define STAGES_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/span.h"
#include "base/status.h"
#include "collectives/comm.h"
#include "collectives/control.h"
#include "collectives/embedding_sync.h"
#include "collectives/grid.h"
#include "mixedprec/params.h"
#include "scheduler/executor.h"
#include "scheduler/plan.h"
#include "stages/buckets.h"
#include "stages/config.h"
#include "stages/data/dataset.h"
#include "stages/data/loader.h"
#include "stages/inputs.h"
#include "stages/lanes.h"
#include "stages/memory.h"
#include "stages/model/chunk.h"
#include "stages/model/gathered.h"
#include "stages/replicas.h"
#include "stages/resume.h"
#include "stages/tied_lanes.h"
#include "stages/traffic.h"
#include "stages/update.h"
#include "stages/worker.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What carries messages between ranks whose tensors lie on GPUs. */
enum engine_plane {
    ENGINE_PLANE_AUTO, /* NCCL where the program has it and each local rank a GPU of its own, else through the host */
    ENGINE_PLANE_STAGED,
    ENGINE_PLANE_NCCL
};

struct comm_nccl_config; /* collectives/cuda/comm_nccl.h */

struct engine_options {
    const struct config *config; /* borrows until close */
    int32_t rank;
    int32_t world;
    int32_t local_ranks;       /* processes on this host, for threads: auto */
    const char *job_directory; /* borrows until open returns; "" where world is 1 */
    struct cancel *cancel;     /* borrows until close */
    /* The checkpoint to go on from, judged; borrows until open returns. NULL: from the beginning. */
    const struct resume *resume;
    const struct device_backend *backend; /* what it computes on; NULL: device_cpu() */
    int32_t ordinal;                      /* which of the host's GPUs */
    enum engine_plane plane;              /* of a device's tensors */
    /* comm_nccl_open() in a program that links it, else NULL, so that the engine links no CUDA; GPUs of this host. */
    enum status (*open_nccl)(const struct comm_nccl_config *config, struct comm **comm_out);
    int32_t gpus;
    update_inspect_fn inspect; /* may be NULL; for tests */
    void *inspect_context;
};

/* One held-out set. */
struct engine_set {
    struct dataset *dataset; /* owns; on every rank: all count its batches */
    struct loader *loader;   /* owns; first and last virtual stage only */
    int64_t batches;         /* global batches of one evaluation; 0: there is no such set */
    int64_t samples;
};

enum engine_split {
    SPLIT_VALID,
    SPLIT_TEST,
    SPLITS
};

struct engine {
    const struct config *config;
    struct cancel *cancel;
    struct grid grid;
    struct device *device;
    const struct device_backend *backend; /* static; of `device` */
    int threads;                          /* of this rank */
    struct plan *plan;                    /* owns; the training plan, lowered and proved */
    struct plan *evaluation;              /* owns; forward only */
    struct model_shape shape;
    struct params params;
    struct head_memory head;
    struct arena landing; /* of the embedding group, of DEVICE_HOST: */
    float *head_landing;  /* owner: the gradient that arrives, */
    void *sync_out;       /* on a device what leaves, */
    void *sync_in;        /* and at the head what arrives for its copy */
    struct workspace workspace;
    struct inputs inputs;
    /* What kernels tell the host: losses by micro-batch, then what the norm needs (update.h). */
    struct arena results;
    double *losses;
    int32_t loss_count; /* of them: micro-batches of the longer plan */
    void *norm_results;
    struct gathered gathered;
    struct buckets buckets;
    struct worker_chunk *chunks; /* owns; virtual_stages of them, in model order */
    int32_t chunk_count;
    struct lanes lanes;
    struct replicas replicas;
    struct control *control;
    struct comm *comm; /* NULL where the world is 1 */
    bool nccl;         /* it is that of collectives/cuda */
    struct embedding_sync *sync;
    struct tied_lanes tied; /* the other way that the embedding goes */
    struct dataset *dataset;
    struct manifest_sum fingerprint; /* of the training set's file, on rank 0 */
    struct loader *loader;
    struct engine_set sets[SPLITS];
    struct span_ring spans;
    struct executor executor;
    struct stage_worker worker;
    struct update update;
    struct memory_table memory;
    enum update_phase phase; /* what this rank does, */
    int32_t pieces;          /* and the pieces of files that it has moved so far in it */
    int64_t attempts;        /* steps begun, those before a checkpoint included */
    double longest_action_s; /* so far, of any stage, as a mean over a step */
    uint64_t runs;           /* lines run, evaluations included */
    int64_t consumed;        /* samples of the whole run before the next step */
    int64_t origin_ns;       /* time 0 of the traces, the same on all ranks */
    bool joined;             /* the control plane is up */
    int64_t steps_run;       /* steps that had something to learn */
    struct traffic moved;    /* in them */
    double sync_transfer_s;  /* of the embedding group, both ways, in them */
    double sync_exposed_s;   /* of that, what a main thread waited for */
    char *welcome;           /* owns: the plan as rank 0 tells it */
};

/* What every rank would find out before it joins: the plans are made, and the largest rank fits
 * train.memory_limit. Who `proves`, the launcher and rank 0, looks at every line of them; another rank does
 * so where a plan was read or searched, and takes what a schedule gives from rank 0, by its hash. Needs
 * neither planes nor threads. */
enum status engine_check(const struct config *config, int32_t local_ranks, bool proves);

/* What rank `rank` of the job would hold, where `local_ranks` share its host and `config` has the
 * plans `training`, lowered, and `evaluation`, forward only on its placement. */
enum status engine_measure_rank(const struct config *config, const struct plan *training,
                                const struct plan *evaluation, int32_t local_ranks, int32_t rank,
                                struct memory_table *table_out);

/* The same of all ranks, into `tables`, and which of them holds most: of several the first. */
enum status engine_measure_job(const struct config *config, const struct plan *training,
                               const struct plan *evaluation, int32_t local_ranks,
                               struct memory_table *tables, int32_t *largest_out);

/* Joins the job and prepares everything; blocks until all ranks are ready. *engine_out is set
 * even on failure where there is something to close, so: always engine_close(). */
enum status engine_open(const struct engine_options *options, struct engine **engine_out);

/* Returns when all ranks have done what `name` says; all call it at the same place. */
enum status engine_meet(struct engine *engine, const char *name);

/* The same for what can fail, which on this rank ended with `own`: every rank learns of it only when all have
 * come to their end, so that nobody is disturbed by what the failed one does next. Returns `own` where it
 * is a failure, STATUS_ERR_PEER with the words of the lowest rank that failed on all others. `values` has name,
 * keys and values of the round; `numbers` as in control_answer, NULL where there are no keys. */
enum status engine_agree(struct engine *engine, const struct control_round *values, double *numbers,
                         enum status own);

/* Runs one step; the outcome lies in engine->update.outcome. */
enum status engine_step(struct engine *engine);

/* The mean loss over a held-out set, the same on every rank. */
enum status engine_evaluate(struct engine *engine, enum engine_split split, double *loss_out);

/* Where the weights of a run are written: <directory>/model.safetensors, or a shard a stage with
 * an index beside them, in Hugging Face's GPT-2 names, and config.json. All ranks call it. */
enum status engine_export(struct engine *engine, const char *directory);

/* A checkpoint of what the run is after the last step that was begun. */
struct engine_save {
    const char *directory; /* of all checkpoints of the run; made where it is missing */
    int64_t keep;          /* so many stay, this one counted */
    int64_t skipped;       /* of the run so far; the engine does not count them */
    int64_t skipped_in_a_row;
};

/* Writes it; all ranks call it, each writes its own file. Returns when it is in place and
 * `latest` names it.
 * A failure leaves the checkpoints that were there as they were. */
enum status engine_save(struct engine *engine, const struct engine_save *save);

/* After the last step: waits until the last update of the tied embedding is everywhere, and known to be, so
 * that what has moved can be counted. All ranks call it. */
enum status engine_settle(struct engine *engine);

/* Says what this rank has held and its steps have moved beside what was planned, and on rank 0 what the embedding sync has
 * cost. */
enum status engine_summarize(const struct engine *engine);

/* Leaves the job: after a failure (`status` < 0) all ranks are told its cause first. Returns
 * `status`, or what went wrong while leaving. Nulls the caller's pointer; NULL is fine. */
enum status engine_close(struct engine **engine, enum status status);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_ENGINE_H */
