#include "stages/agent/crew_member.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"

#define NUMBER_BYTES 16

void crew_member_init(struct crew_member *member, int32_t rank)
{
    member->rank = rank;
    member->file = -1;
    member->out.in = -1;
    member->err.in = -1;
    member->process = (struct process){.pid = 0, .out = -1, .err = -1};
}

static enum status open_log(struct crew_member *member, const struct crew_config *config)
{
    char path[PATH_MAX + NUMBER_BYTES + 16]; /* one that is too long must fail, not be cut */
    char date[32] = "";
    time_t now = time(NULL);
    struct tm local;

    (void)snprintf(path, sizeof(path), "%s/rank-%d.log", config->log_dir, member->rank);
    member->file = open(
        path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (config->truncate_logs ? O_TRUNC : 0),
        0666);
    if (member->file < 0) {
        return status_fail(STATUS_ERR_IO, "cannot open the log %s: %s", path, strerror(errno));
    }
    if (localtime_r(&now, &local) != NULL) {
        (void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &local);
    }
    (void)dprintf(member->file, "==== %s job %s rank %d of %d\n", date, config->job, member->rank,
                  config->processes);
    return STATUS_OK;
}

static enum status start_process(struct crew_member *member, const struct crew_config *config)
{
    char rank[NUMBER_BYTES];
    char world[NUMBER_BYTES];
    char port[NUMBER_BYTES];
    char restarts[NUMBER_BYTES];
    const struct process_variable variables[] = {
        {env_name(ENV_RANK), rank},
        {env_name(ENV_LOCAL_RANK), rank},
        {env_name(ENV_WORLD_SIZE), world},
        {env_name(ENV_LOCAL_WORLD_SIZE), world},
        {"GROUP_RANK", "0"},
        {env_name(ENV_MASTER_ADDR), config->master_addr},
        {env_name(ENV_MASTER_PORT), port},
        {env_name(ENV_RESTART_COUNT), restarts},
        {"OMP_NUM_THREADS", "1"},
        {env_name(ENV_JOB), config->job},
    };
    const struct process_config process = {
        .program = config->program,
        .arguments = config->arguments,
        .variables = variables,
        .variable_count = sizeof(variables) / sizeof(variables[0]),
        .shares_stdout = config->keeps_stdout && member->rank == 0,
    };

    (void)snprintf(rank, sizeof(rank), "%d", member->rank);
    (void)snprintf(world, sizeof(world), "%d", config->processes);
    (void)snprintf(port, sizeof(port), "%d", config->master_port);
    (void)snprintf(restarts, sizeof(restarts), "%d", config->restarts);
    return process_start(&process, &member->process);
}

/* Stdout of rank 0 is the job's result and stays as it is; every other line says whose it is. */
static void open_streams(struct crew_member *member, const struct crew_config *config,
                         struct sink *out, struct sink *err)
{
    char prefix[LOG_PUMP_PREFIX_BYTES] = "";
    struct log_pump_config stream = {.in = member->process.err,
                                     .file = member->file,
                                     .sink = err,
                                     .prefix = prefix,
                                     .tail = &member->tail};

    if (config->processes > 1) {
        (void)snprintf(prefix, sizeof(prefix), "[rank %d] ", member->rank);
    }
    log_pump_open(&stream, &member->err);
    if (member->process.out < 0) {
        return;
    }
    stream.in = member->process.out;
    stream.tail = NULL;
    if (member->rank == 0) {
        stream.sink = out;
        stream.prefix = "";
    }
    log_pump_open(&stream, &member->out);
}

enum status crew_member_start(struct crew_member *member, const struct crew_config *config,
                              struct sink *out, struct sink *err)
{
    enum status status = STATUS_OK;

    TRY(open_log(member, config));
    status = start_process(member, config);
    if (status < 0) {
        crew_member_release(member);
        return status;
    }
    open_streams(member, config, out, err);
    return STATUS_OK;
}

bool crew_member_reap(struct crew_member *member)
{
    if (!process_reap(&member->process, &member->end)) {
        return false;
    }
    member->ended_ns = clock_now_ns();
    log_pump_finish(&member->out);
    log_pump_finish(&member->err);
    return true;
}

void crew_member_release(struct crew_member *member)
{
    log_pump_close(&member->out);
    log_pump_close(&member->err);
    if (member->file >= 0) {
        (void)close(member->file);
        member->file = -1;
    }
}
