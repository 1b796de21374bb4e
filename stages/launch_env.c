#include "stages/launch_env.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/env.h"

struct source {
    const char *launcher;
    enum env_id mark; /* this launcher is at work where it is set */
    enum env_id rank;
    enum env_id world;
    enum env_id local; /* rank on its host */
};

static const struct source sources[] = {
    {"torchrun", ENV_WORLD_SIZE, ENV_RANK, ENV_WORLD_SIZE, ENV_LOCAL_RANK},
    {"Open MPI", ENV_OMPI_SIZE, ENV_OMPI_RANK, ENV_OMPI_SIZE, ENV_OMPI_LOCAL_RANK},
    {"PMI", ENV_PMI_SIZE, ENV_PMI_RANK, ENV_PMI_SIZE, ENV_LOCAL_RANK},
    {"Slurm", ENV_SLURM_STEP_ID, ENV_SLURM_PROCID, ENV_SLURM_NTASKS, ENV_SLURM_LOCALID},
};

static enum status read_number(enum env_id id, int32_t least, int32_t *number_out)
{
    const char *text = env_text(id);
    char *end = NULL;
    long number = 0;

    errno = 0;
    number = strtol(text, &end, 10);
    /* strtol() would take blanks and a sign as well. */
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || number < least ||
        number > INT32_MAX) {
        return status_fail(STATUS_ERR_REFUSED, "environment: %s is \"%s\", expected a number >= %d",
                           env_name(id), text, least);
    }
    *number_out = (int32_t)number;
    return STATUS_OK;
}

/* NULL where nobody but the user started this process. */
static const struct source *find_source(void)
{
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        if (env_is_set(sources[i].mark)) {
            return &sources[i];
        }
    }
    return NULL;
}

/* torchrun and `launch` set both. With one of them alone somebody meant several ranks, and each would
 * train the whole by itself. */
static enum status check_pair(void)
{
    bool has_rank = env_is_set(ENV_RANK);
    bool has_world = env_is_set(ENV_WORLD_SIZE);
    enum env_id given = has_rank ? ENV_RANK : ENV_WORLD_SIZE;
    enum env_id missing = has_rank ? ENV_WORLD_SIZE : ENV_RANK;

    if (has_rank == has_world) {
        return STATUS_OK;
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "environment: %s is \"%s\" but %s is not set; set both to start one of "
                       "several ranks, or neither",
                       env_name(given), env_text(given), env_name(missing));
}

/* How many share the host, and which of them this is. */
static enum status read_local(const struct source *source, struct launch_env *env)
{
    env->local_world = env->world;
    if (env_is_set(ENV_LOCAL_WORLD_SIZE)) {
        TRY(read_number(ENV_LOCAL_WORLD_SIZE, 1, &env->local_world));
    }
    env->local_rank = env->rank % env->local_world;
    if (source != NULL && env_is_set(source->local)) {
        TRY(read_number(source->local, 0, &env->local_rank));
    }
    return STATUS_OK;
}

enum status launch_env_read(struct launch_env *env_out)
{
    struct launch_env env = {.rank = 0, .world = 1, .local_world = 1, .launcher = "none"};

    const struct source *source = NULL;

    TRY(check_pair());
    source = find_source();
    if (source != NULL) {
        TRY(read_number(source->rank, 0, &env.rank));
        TRY(read_number(source->world, 1, &env.world));
        env.launcher = source->launcher;
    }
    if (env.rank >= env.world) {
        return status_fail(STATUS_ERR_REFUSED, "environment of %s: rank %d of a world of %d",
                           env.launcher, env.rank, env.world);
    }
    TRY(read_local(source, &env));
    *env_out = env;
    return STATUS_OK;
}
