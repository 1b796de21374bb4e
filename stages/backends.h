/*
 * backends -- what a stage computes on: parallel.device, and what this build and this host have.
 *
 * A build with WEIR_CUDA has GPUs, others the CPU alone. Asking the driver opens no GPU and takes no memory.
 */
#ifndef STAGES_BACKENDS_H
#define STAGES_BACKENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct config;
struct device_backend;

/*
 * cpu and cuda are what they say, auto is the GPU where this build has it and the driver sees one that is new enough, else
 * the CPU. STATUS_ERR_REFUSED for cuda in a build without, and on a host without, with the driver's words. *backend_out is static.
 */
enum status backend_choose(const struct config *config, const struct device_backend **backend_out);

/* The one whose memory a plan tells: as backend_choose(), and the CPU's where this build has no other. */
const struct device_backend *backend_planned(const struct config *config);

/* GPUs of this host that stages may compute on; 0 in a build without. */
int32_t backend_gpus(void);

/* The GPU of a process: its number on the host, modulo the host's GPUs. 0 where there is none. */
int32_t backend_ordinal(int32_t local_rank);

struct comm;
struct comm_nccl_config;
typedef enum status (*backend_nccl_fn)(const struct comm_nccl_config *config,
                                       struct comm **comm_out);

/* comm_nccl_open() of a build that has NCCL, else NULL. Called before the process has a second thread: NCCL reads
 * the environment that is made here. */
backend_nccl_fn backend_nccl(void);

/* Whether this build has NCCL and this host a GPU for each of its `local_ranks` that compute on `backend`: then their data
 * plane is its. */
bool backend_plans_nccl(const struct device_backend *backend, int32_t local_ranks);

/* What `auto` came to, and why: a sentence of at most `bytes`. "" where there was nothing to choose. */
void backend_explain(const struct config *config, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_BACKENDS_H */
