/*
 * launch_env -- who this process is, from the variables of whoever started it.
 *
 * In this order: torchrun's and `launch`'s RANK and WORLD_SIZE, Open MPI's, PMI's (MPICH, Intel
 * MPI), a Slurm step's; alone, a world of one.
 */
#ifndef STAGES_LAUNCH_ENV_H
#define STAGES_LAUNCH_ENV_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct launch_env {
    int32_t rank;
    int32_t world;
    int32_t local_world;  /* processes on this host; world where nobody says */
    int32_t local_rank;   /* which of them this is; rank % local_world where nobody says */
    const char *launcher; /* "torchrun", "Open MPI", ... ; a static string */
};

/* STATUS_ERR_REFUSED where a variable is set and is no number, one of RANK and WORLD_SIZE is set
 * without the other, or rank is not below world. */
enum status launch_env_read(struct launch_env *env_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_LAUNCH_ENV_H */
