#include "stages/agent/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stages/agent/crew.h"
#include "stages/nearest.h"

#define NAME_BYTES 32
#define PORT_MOST  65535

#define RESTARTS_MOST 1000000

enum option {
    OPTION_NPROC_PER_NODE,
    OPTION_NNODES,
    OPTION_NODE_RANK,
    OPTION_HOSTFILE,
    OPTION_MASTER_ADDR,
    OPTION_MASTER_PORT,
    OPTION_MAX_RESTARTS,
    OPTION_LOG_DIR,
    OPTIONS
};

static const char *const names[OPTIONS] = {
    [OPTION_NPROC_PER_NODE] = "nproc-per-node", [OPTION_NNODES] = "nnodes",
    [OPTION_NODE_RANK] = "node-rank",           [OPTION_HOSTFILE] = "hostfile",
    [OPTION_MASTER_ADDR] = "master-addr",       [OPTION_MASTER_PORT] = "master-port",
    [OPTION_MAX_RESTARTS] = "max-restarts",     [OPTION_LOG_DIR] = "log-dir",
};

void agent_options_print_help(FILE *out)
{
    (void)fprintf(
        out,
        "usage: ./launch [options] train CONFIG [--section.key=value …] [--overwrite]\n"
        "       weir agent [options] train CONFIG …\n"
        "\n"
        "Starts the stage processes of a job on this host, one for each of its pp·tp·dp ranks,\n"
        "watches over them, and ends with the exit code of the first one that fails. Before\n"
        "anything starts, the configuration is checked and its plan is proved.\n"
        "\n"
        "  --nproc-per-node N   processes on this host; must be pp·tp·dp, which is the default\n"
        "  --log-dir DIR        where rank-N.log go [<run directory>/logs]\n"
        "  --master-addr HOST   told to the processes as MASTER_ADDR [127.0.0.1]\n"
        "  --master-port PORT   told to them as MASTER_PORT [29500]\n"
        "  --max-restarts N     after a failure, start again up to N times, from the last "
        "checkpoint\n"
        "                       or, where there is none yet, from the beginning [0]\n"
        "  --nnodes N           1 only: several hosts (--node-rank, --hostfile) come later\n"
        "  --help               this text\n"
        "\n"
        "Names are torchrun's and may be written with underscores. TERM and INT end the job\n"
        "after the step it is in, a second one ends it at once.\n"
        "Exit codes: 0 done, 1 configuration or input refused, 2 run failed, 128+signal.\n");
}

static enum status find_option(const char *argument, enum option *option_out, const char **value)
{
    char name[NAME_BYTES] = "";
    size_t length = strcspn(argument + 2, "=");
    const char *near = NULL;

    if (length < sizeof(name)) {
        memcpy(name, argument + 2, length);
    }
    for (char *at = strchr(name, '_'); at != NULL; at = strchr(at, '_')) {
        *at = '-';
    }
    for (int i = 0; i < OPTIONS; i++) {
        if (strcmp(name, names[i]) == 0) {
            *option_out = (enum option)i;
            *value = argument[2 + length] == '=' ? argument + 2 + length + 1 : NULL;
            return STATUS_OK;
        }
    }
    if (strchr(name, '.') != NULL || strcmp(name, "overwrite") == 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir agent: %s belongs behind the configuration: train CONFIG %s",
                           argument, argument);
    }
    near = nearest_name(name, names, OPTIONS);
    return status_fail(
        STATUS_ERR_REFUSED, "weir agent: there is no option %s%s%s%s (--help lists them)", argument,
        near != NULL ? "; did you mean --" : "", near != NULL ? near : "", near != NULL ? "?" : "");
}

static enum status read_number(enum option option, const char *value, long least, long most,
                               int32_t *number_out)
{
    char *end = NULL;
    long number = 0;

    errno = 0;
    number = strtol(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0' || number < least || number > most) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir agent: --%s: expected a number from %ld to %ld, found \"%s\"",
                           names[option], least, most, value);
    }
    *number_out = (int32_t)number;
    return STATUS_OK;
}

/* Options whose only legal value is the default, until their time comes. */
static enum status read_only_value(enum option option, const char *value, const char *only,
                                   const char *why)
{
    if (strcmp(value, only) != 0) {
        return status_fail(STATUS_ERR_REFUSED, "weir agent: --%s %s: %s; only %s is possible",
                           names[option], value, why, only);
    }
    return STATUS_OK;
}

static enum status read_option(enum option option, const char *value, struct agent_options *options)
{
    static const char hosts[] = "several hosts come later";

    switch (option) {
    case OPTION_NPROC_PER_NODE:
        return read_number(option, value, 1, CREW_PROCESSES_MOST, &options->processes);
    case OPTION_NNODES:
        return read_only_value(option, value, "1", hosts);
    case OPTION_NODE_RANK:
        return read_only_value(option, value, "0", hosts);
    case OPTION_HOSTFILE:
        return status_fail(STATUS_ERR_REFUSED, "weir agent: --hostfile %s: %s; leave it out", value,
                           hosts);
    case OPTION_MASTER_ADDR:
        options->master_addr = value;
        return STATUS_OK;
    case OPTION_MASTER_PORT:
        return read_number(option, value, 1, PORT_MOST, &options->master_port);
    case OPTION_MAX_RESTARTS:
        return read_number(option, value, 0, RESTARTS_MOST, &options->max_restarts);
    case OPTION_LOG_DIR:
        options->log_dir = value;
        return STATUS_OK;
    case OPTIONS:
        break;
    }
    return STATUS_ERR_INVALID;
}

static enum status check_command(int argc, char **argv, int command)
{
    if (command >= argc) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir agent: what shall be started? expected train CONFIG (--help)");
    }
    if (strcmp(argv[command], "train") != 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir agent: cannot start \"%s\"; expected train CONFIG", argv[command]);
    }
    return STATUS_OK;
}

enum status agent_options_parse(int argc, char **argv, struct agent_options *options_out)
{
    int at = 1;

    *options_out = (struct agent_options){
        .master_addr = "127.0.0.1",
        .master_port = 29500,
    };
    while (at < argc && argv[at][0] == '-') {
        enum option option = OPTIONS;
        const char *value = NULL;

        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            options_out->help = true;
            options_out->command = argc;
            return STATUS_OK;
        }
        if (strncmp(argv[at], "--", 2) != 0) {
            return status_fail(STATUS_ERR_REFUSED,
                               "weir agent: there is no option %s (--help lists them)", argv[at]);
        }
        TRY(find_option(argv[at], &option, &value));
        at++;
        if (value == NULL && at < argc) {
            value = argv[at];
            at++;
        }
        if (value == NULL || value[0] == '\0') {
            return status_fail(STATUS_ERR_REFUSED, "weir agent: --%s needs a value", names[option]);
        }
        TRY(read_option(option, value, options_out));
    }
    options_out->command = at;
    return check_command(argc, argv, at);
}
