/* agent -- `weir agent [options] train CONFIG …`: starts the stage processes of a job here. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "collectives/job_directory.h"
#include "stages/agent/crew.h"
#include "stages/agent/options.h"
#include "stages/checkpoint/store.h"
#include "stages/commands/command.h"
#include "stages/config.h"
#include "stages/exit_code.h"
#include "stages/run_directory.h"
#include "stages/train.h"

/* From TERM to KILL: a step may still be running; after a failure a rank that does not end by itself
 * is frozen, and the whole job has control.dead_after_s + 5 s. */
#define GRACE_NS         (10 * CLOCK_SECOND)
#define FAILURE_GRACE_NS (3 * CLOCK_SECOND)

#define JOB_BYTES 32

/* The running program itself, whatever happens to its file meanwhile. */
static const char this_program[] = "/proc/self/exe";

/* Its own name per job, so that two jobs on a host never meet. */
static enum status name_job(char *job, size_t job_bytes)
{
    uint64_t random = 0;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return status_fail(STATUS_ERR_IO, "cannot draw a name for the job: %s", strerror(errno));
    }
    (void)snprintf(job, job_bytes, "%016" PRIx64, random);
    return STATUS_OK;
}

static enum status count_processes(const struct config *config, const struct agent_options *options,
                                   int32_t *processes_out)
{
    int64_t world = config->parallel.pp * config->parallel.tp * config->parallel.dp;

    if (options->processes != 0 && options->processes != world) {
        return status_fail(STATUS_ERR_REFUSED,
                           "--nproc-per-node %d, but the configuration has %" PRId64
                           " ranks (pp %" PRId64 " · tp %" PRId64 " · dp %" PRId64
                           "): make them equal, or leave the option out",
                           options->processes, world, config->parallel.pp, config->parallel.tp,
                           config->parallel.dp);
    }
    _Static_assert(CONFIG_RANKS_MOST <= CREW_PROCESSES_MOST, "a host takes every legal job");
    *processes_out = (int32_t)world;
    return STATUS_OK;
}

static enum status report_failure(const struct config *config, const struct crew *crew,
                                  const struct crew_outcome *outcome)
{
    const struct log_tail *tail = crew_tail(crew, outcome->rank);
    size_t lines = log_tail_count(tail);
    struct grid_shape shape = config_grid_shape(config);
    char place[GRID_PLACE_BYTES];
    char how[64];
    enum status status = STATUS_OK;

    process_end_describe(&outcome->end, how, sizeof(how));
    status = status_fail(STATUS_ERR_PEER, "rank %d (%s) failed: %s%s", outcome->rank,
                         grid_place_text(&shape, outcome->rank, place, sizeof(place)), how,
                         lines > 0 ? "; the last of what it said:" : "");
    for (size_t i = 0; i < lines; i++) {
        (void)fprintf(stderr, "    %s\n", log_tail_line(tail, i));
    }
    return status;
}

/* One attempt, from the start of its processes to the end of the last one. */
static enum status run_crew(const struct config *config, const struct crew_config *crew_config,
                            struct crew_outcome *outcome)
{
    struct crew *crew = NULL;
    enum status status = STATUS_OK;

    *outcome = (struct crew_outcome){.rank = -1};
    TRY_OR(done, status, crew_create(crew_config, &crew));
    TRY_OR(done, status, crew_run(crew, outcome));
    if (outcome->rank >= 0) {
        status = report_failure(config, crew, outcome);
    }

done:
    crew_destroy(&crew);
    /* Ranks that were killed had no time to tidy up. */
    job_directory_sweep();
    return status;
}

static enum status choose_log_dir(const struct config *config, const struct agent_options *options,
                                  char *log_dir)
{
    if (options->log_dir == NULL) {
        return folder_path(config->train.run_dir, "logs", log_dir);
    }
    if (strlen(options->log_dir) >= FILE_PATH_BYTES) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir agent: --log-dir: the path has %zu bytes, at most %d are possible",
                           strlen(options->log_dir), FILE_PATH_BYTES - 1);
    }
    (void)snprintf(log_dir, FILE_PATH_BYTES, "%s", options->log_dir);
    return STATUS_OK;
}

/* Whether the same, started again, may do better: what was refused would be refused again, and a
 * signal meant it. */
static bool may_restart(const struct crew_outcome *outcome)
{
    return outcome->rank >= 0 && outcome->signal == 0 &&
           crew_outcome_code(outcome) != EXIT_CODE_REFUSED;
}

/* The attempts of one job. */
struct attempts {
    struct config config;              /* of the next one */
    char **arguments;                  /* owns the array; of its processes */
    int32_t most;                      /* restarts */
    struct run_directory_stamp before; /* the first one */
};

/* What `arguments` say, with --overwrite only where the configuration says so now, and its
 * checkpoint.resume. */
static enum status copy_arguments(struct attempts *attempts, char **arguments)
{
    static char overwrite[] = "--overwrite";
    static char resume[] = "--checkpoint.resume=auto";
    size_t count = 0;
    size_t kept = 0;

    while (arguments[count] != NULL) {
        count++;
    }
    free(attempts->arguments);
    attempts->arguments = calloc(count + 3, sizeof(*attempts->arguments));
    if (attempts->arguments == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "no memory for %zu arguments", count);
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(arguments[i], overwrite) != 0) {
            attempts->arguments[kept++] = arguments[i];
        }
    }
    if (attempts->config.train.overwrite) {
        attempts->arguments[kept++] = overwrite;
    }
    if (attempts->config.checkpoint.resume == RESUME_AUTO) {
        attempts->arguments[kept] = resume;
    }
    return STATUS_OK;
}

/* Where the job has made the run its own, all that is there is its own: the next attempt goes on from
 * the last checkpoint whatever the job was told to do with an earlier run, and begins again where there is
 * none. Where it has not come so far, the next attempt is a first one. */
static enum status prepare_restart(struct attempts *attempts, char **arguments, int32_t processes)
{
    struct config *config = &attempts->config;

    if (run_directory_changed(config, &attempts->before)) {
        config->train.overwrite = false;
        if (config->checkpoint.resume == RESUME_NEVER) {
            config->checkpoint.resume = RESUME_AUTO;
        }
        config->train.overwrite =
            run_directory_state(config) == RUN_INCOMPLETE && !store_has_any(config->checkpoint.dir);
    }
    TRY(copy_arguments(attempts, arguments));
    return train_check(config, processes);
}

static enum status run_attempts(struct attempts *attempts, struct crew_config *crew,
                                char **arguments)
{
    struct crew_outcome outcome = {.rank = -1};
    char job[JOB_BYTES]; /* crew borrows it as long as this runs */
    enum status status = copy_arguments(attempts, arguments);

    while (status >= 0) {
        status = name_job(job, sizeof(job));
        crew->job = job;
        crew->arguments = attempts->arguments;
        status = status < 0 ? status : run_crew(&attempts->config, crew, &outcome);
        if (!may_restart(&outcome) || crew->restarts == attempts->most) {
            break;
        }
        crew->restarts++;
        crew->truncate_logs = false;
        log_warn("the job is started again: restart %d of %d", crew->restarts, attempts->most);
        status = prepare_restart(attempts, arguments, crew->processes);
    }
    crew->job = NULL;
    if (crew_outcome_code(&outcome) != 0) {
        exit_code_keep(crew_outcome_code(&outcome));
    }
    return status;
}

static enum status start_job(const struct config *config, const struct agent_options *options,
                             char **arguments)
{
    char log_dir[FILE_PATH_BYTES];
    struct attempts attempts = {.config = *config, .most = options->max_restarts};
    struct crew_config crew = {
        .program = this_program,
        .log_dir = log_dir,
        .truncate_logs = config->train.overwrite,
        .master_addr = options->master_addr,
        .master_port = options->master_port,
        .grace_ns = GRACE_NS,
        .failure_grace_ns = FAILURE_GRACE_NS,
        .out = STDOUT_FILENO,
        .err = STDERR_FILENO,
        .keeps_stdout = isatty(STDOUT_FILENO) == 1,
    };
    enum status status = STATUS_OK;

    TRY(count_processes(config, options, &crew.processes));
    TRY(run_directory_check_free(config));
    if (run_directory_state(config) == RUN_FINISHED) {
        run_directory_print_finished(config);
        return STATUS_OK;
    }
    TRY(train_check(config, crew.processes));
    run_directory_stamp(config, &attempts.before);
    TRY(choose_log_dir(config, options, log_dir));
    TRY(file_make_directories(log_dir));
    status = run_attempts(&attempts, &crew, arguments);
    free(attempts.arguments);
    return status;
}

enum status command_agent(int argc, char **argv)
{
    struct agent_options options;
    struct config *config = NULL;
    enum status status = STATUS_OK;
    char name[] = "weir";
    int path = 0;

    TRY(agent_options_parse(argc, argv, &options));
    path = options.command + 1;
    if (options.help || (path < argc && strcmp(argv[path], "--help") == 0)) {
        agent_options_print_help(stdout);
        return STATUS_OK;
    }
    if (path >= argc) {
        return status_fail(STATUS_ERR_REFUSED, "weir agent: train which CONFIG?");
    }
    TRY(config_load(argv[path], argv + path + 1, argc - path - 1, &config));
    /* One place before `train` is the name that the stage processes run under. */
    argv[options.command - 1] = name;
    status = start_job(config, &options, argv + options.command - 1);
    config_destroy(&config);
    return status;
}
