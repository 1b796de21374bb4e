/*
 * env -- every environment variable that weir reads, in one table.
 *
 * getenv() is called in env.c and nowhere else (tests/checks holds the tree to it). A user finds
 * weir's own variables in `weir --help`, which prints this table. Variables of launchers (RANK,
 * WORLD_SIZE, ...) are read through the same table, so that nothing the process depends on is
 * hidden.
 */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* id, name, default, help ("" = a launcher's variable, not printed) */
#define ENV_TABLE(X)                                                                              \
    X(LOG, "WEIR_LOG", "info", "how much to say: error, warn, info, debug")                       \
    X(JOB, "WEIR_JOB", "", "name of the job; processes with the same name find each other")       \
    X(BINARY, "WEIR", "", "the weir binary that the scripts start (build/release/weir)")          \
    X(FAULT, "WEIR_FAULT", "", "tests only, where built in: die|stall|poison@rank:step[:action]") \
    X(TMPDIR, "TMPDIR", "/tmp", "")                                                               \
    X(RANK, "RANK", "", "")                                                                       \
    X(LOCAL_RANK, "LOCAL_RANK", "", "")                                                           \
    X(WORLD_SIZE, "WORLD_SIZE", "", "")                                                           \
    X(LOCAL_WORLD_SIZE, "LOCAL_WORLD_SIZE", "", "")                                               \
    X(MASTER_ADDR, "MASTER_ADDR", "", "")                                                         \
    X(MASTER_PORT, "MASTER_PORT", "", "")                                                         \
    X(RESTART_COUNT, "TORCHELASTIC_RESTART_COUNT", "0", "")                                       \
    X(OMPI_RANK, "OMPI_COMM_WORLD_RANK", "", "")                                                  \
    X(OMPI_SIZE, "OMPI_COMM_WORLD_SIZE", "", "")                                                  \
    X(OMPI_LOCAL_RANK, "OMPI_COMM_WORLD_LOCAL_RANK", "", "")                                      \
    X(PMI_RANK, "PMI_RANK", "", "")                                                               \
    X(PMI_SIZE, "PMI_SIZE", "", "")                                                               \
    X(SLURM_STEP_ID, "SLURM_STEP_ID", "", "")                                                     \
    X(SLURM_PROCID, "SLURM_PROCID", "", "")                                                       \
    X(SLURM_NTASKS, "SLURM_NTASKS", "", "")                                                       \
    X(SLURM_LOCALID, "SLURM_LOCALID", "", "")

enum env_id {
#define X(id, name, fallback, help) ENV_##id,
    ENV_TABLE(X)
#undef X
};

/* Lends the value, or the default where the variable is not set or empty; never NULL. Valid until
 * somebody changes the environment, which weir does only before it starts a child. */
const char *env_text(enum env_id id);

/* Whether the variable is set to something that is not empty. */
bool env_is_set(enum env_id id);

/* "WEIR_LOG"; a static string. */
const char *env_name(enum env_id id);

/* Prints weir's own variables with default and help, a line each. */
void env_print_help(FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* BASE_ENV_H */
