/*
 * engine_start -- the later half of engine_open(): memory, planes, data, worker, the barrier.
 *
 * Private to the engine's own files.
 */
#ifndef STAGES_ENGINE_START_H
#define STAGES_ENGINE_START_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/checkpoint/pieces.h"
#include "stages/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* control.stall_after_s auto: outside steps (start, load, export) a rank may stand still for so long;
 * inside, for the larger of a minute and 20 times the longest action so far. */
#define ENGINE_STALL_START_S 600.0
#define ENGINE_STALL_LEAST_S 60.0
#define ENGINE_STALL_ACTIONS 20.0

/* A wait inside a step may be as long as this: the control plane sees a stalled or dead rank much
 * earlier, so it only bounds what nobody else would end. */
#define ENGINE_WAIT_S 3600.0

/* The same of a round behind which others read or write files of any size. */
#define ENGINE_FILES_WAIT_S 86400.0

/* engine.c: from here on this rank does `phase`, which is no step: it may stand still for longer. */
void engine_enter(struct engine *engine, enum update_phase phase);

/* engine.c: tells the control plane of each piece of a file that is moved in the phase, so that a rank may
 * stand still for one piece, and not for a file. */
struct piece_watch engine_watch(struct engine *engine);

/* engine.c: a failure that is this rank's own ends the job now, before this rank cleans up: whoever stumbles over
 * that is then not taken for the cause. Returns `status`; where others had failed before, it is their
 * consequence: STATUS_ERR_PEER. */
enum status engine_tell_cause(struct engine *engine, enum status status);

bool engine_has_embedding(const struct engine *engine); /* virtual stage 0 */
bool engine_has_head(const struct engine *engine);      /* the last one */

/* Actions of this rank's longer line. */
int32_t engine_longest_line(const struct engine *engine);

/* Whether other ranks read this one's weights and gradients: replicas, or the other end of the
 * embedding group. */
bool engine_shares_params(const struct engine *engine);

/* Of the block that peers read. */
#define ENGINE_SHARED_MOST 6
size_t engine_shared_bytes(struct engine *engine);

/* Of a plan with a thousand ranks, what one of them makes. */
enum engine_lines {
    ENGINE_LINES_ALL,    /* all, proved: rank 0, which tells of every rank what it is at */
    ENGINE_LINES_PROVED, /* all are proved, this rank's own stays */
    ENGINE_LINES_OWN /* its own, and the buffers that its neighbours count for it, where the schedule
                            gives lines by themselves: what rank 0 proved, as engine_compare_plans() finds
                            by the hash. Plans that were read or searched are proved by every rank. */
};

/* engine_check.c: the plan, and the forward-only one on the same placement. `local_ranks` share this
 * host, which says how much memory is left for a plan that is searched. */
enum status engine_make_plans(struct engine *engine, enum engine_lines lines, int32_t local_ranks);

/* engine_check.c: the threads of a rank that shares its host with `local_ranks` in all. */
int engine_threads(const struct config *config, int32_t local_ranks);

/* engine_check.c: whether gradients of layers become sums beside the backward: on a thread of their own, between GPUs
 * on a stream, where it is NCCL that sums. engine_choose_plane() comes before. */
bool engine_overlaps_reduce(const struct engine *engine, int32_t local_ranks);

/* engine_check.c: STATUS_ERR_REFUSED for what `backend` is not made for. */
enum status engine_check_backend(const struct config *config, const struct device_backend *backend);

/* engine_check.c: whether the data plane is NCCL's, into engine->nccl. */
enum status engine_choose_plane(struct engine *engine, const struct engine_options *options);

/* engine_check.c: whether the data plane carries the tied embedding between its ends, and whether it does so as
 * messages (stages/tied_lanes.h) and not in blocks that peers read. The same on every rank. */
bool engine_ties_over_plane(const struct engine *engine);
bool engine_ties_by_lanes(const struct engine *engine);

/* engine_welcome.c: the plan as rank 0 tells it, into engine->welcome. */
enum status engine_write_welcome(struct engine *engine);

/* engine_welcome.c: one round of all ranks; every rank refuses where one made another plan than rank
 * 0. Sets engine->joined. */
enum status engine_compare_plans(struct engine *engine);

/* engine_memory.c: what this rank will hold, into engine->memory. Plans, grid, shape, replicas,
 * workspace.tp and threads are set. */
enum status engine_measure_memory(struct engine *engine);

/* engine_memory.c: the same, told, and refused where it is more than allowed. */
enum status engine_plan_memory(struct engine *engine);

/* engine_memory.c: what of it is in use, after engine_start_data(): arenas, segments, the scratch of the
 * device. */
size_t engine_used_bytes(const struct engine *engine);

/* engine_memory.c: gives back what was measured or placed. */
void engine_release_memory(struct engine *engine);

/* The data plane: lanes, groups, and the block that peers read. After engine_plan_memory(). */
enum status engine_start_comm(struct engine *engine, const struct engine_options *options);

/* What a message of the tied embedding that this end sends and receives over lanes has; 0 where there is none. */
void engine_tied_bytes(const struct engine *engine, size_t *out_bytes, size_t *in_bytes);

/* engine_memory.c: all of the planned memory; what peers read lies in the data plane's block. */
enum status engine_allocate(struct engine *engine);

/* The pair that keeps the tied embedding, once its buffers are there. */
enum status engine_start_sync(struct engine *engine, const struct engine_options *options);

/* The data sets and their loaders, on the first and the last virtual stage, from engine->consumed on.
 * Rank 0 looks at the content of the training set: another one than in `resume` (NULL: none) is refused
 * unless it may change. */
enum status engine_start_data(struct engine *engine, const struct resume *resume);

/* engine_load.c: the weights and the optimizer's state of this rank, and where the run stands; memory is
 * placed. All ranks call it. STATUS_ERR_REFUSED names file and tensor, on the rank that has found what is
 * wrong; the others end with its words. */
enum status engine_load(struct engine *engine, const struct resume *resume);

/* engine_load.c: the counts and the loss scale; worker and update are there. */
enum status engine_restore(struct engine *engine, const struct resume *resume);

/* Executor, worker and update. */
enum status engine_start_worker(struct engine *engine, const struct engine_options *options);

/* engine_traffic.c: what this rank has moved so far; of that what its steps have, which is as planned times
 * steps_run when engine_settle() has returned; and adds what a step has. */
void engine_read_traffic(const struct engine *engine, struct traffic *traffic_out);
void engine_read_moved(const struct engine *engine, struct traffic *moved_out);
void engine_count_step(struct engine *engine, const struct traffic *before);

/* BARRIER: the plan's hashes agree, all go on from the same checkpoint, everybody is ready, and the first
 * step's target count. */
enum status engine_start_barrier(struct engine *engine, const struct resume *resume);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_ENGINE_START_H */
