/*
 * options -- what `weir agent` (and so ./launch) is asked for on its command line.
 *
 * Options have torchrun's names, with dashes or underscores, `--name=value` or `--name value`, and
 * stand before the command. What later versions will do (several hosts) is known by name and
 * refused by name.
 */
#ifndef STAGES_AGENT_OPTIONS_H
#define STAGES_AGENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Texts point into argv. */
struct agent_options {
    int32_t processes;       /* --nproc-per-node; 0: as many as the configuration says */
    const char *master_addr; /* 127.0.0.1 */
    int32_t master_port;     /* 29500 */
    const char *log_dir;     /* NULL: <run directory>/logs */
    int32_t max_restarts;    /* --max-restarts; 0: a failure ends the job */
    bool help;               /* --help: nothing else is read */
    int command;             /* index in argv of `train`; argc where there is none and help */
};

/* argv[0] is the agent's own name. STATUS_ERR_REFUSED names the option, its value and what would
 * be legal. */
enum status agent_options_parse(int argc, char **argv, struct agent_options *options_out);

/* The help text. */
void agent_options_print_help(FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_AGENT_OPTIONS_H */
