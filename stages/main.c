/* main -- the weir binary: finds the command, turns its status into an exit code. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "stages/commands/command.h"
#include "stages/exit_code.h"
#include "stages/nearest.h"

/* name, what it does */
#define COMMAND_TABLE(X)                                                    \
    X(agent, "start the stage processes of a job on this host (./launch)")  \
    X(train, "one stage process of a training run")                         \
    X(plan, "the plan of each rank, its bubble and memory, before it runs") \
    X(tune, "the fastest way to run a configuration on this machine")       \
    X(trace, "what a run did: timeline, busy and waiting time by stage")    \
    X(checkpoint, "what a checkpoint holds, and whether it is whole")       \
    X(config, "the resolved configuration; what a key means")

struct command {
    const char *name;
    const char *summary;
    enum status (*run)(int argc, char **argv);
};

static const struct command commands[] = {
#define X(word, text) {#word, (text), command_##word},
    COMMAND_TABLE(X)
#undef X
};

static const char *const command_names[] = {
#define X(word, text) #word,
    COMMAND_TABLE(X)
#undef X
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *out)
{
    (void)fprintf(out, "usage: weir COMMAND …\n"
                       "\n"
                       "Trains GPT models over pipeline stages, one process a stage.\n"
                       "\n"
                       "commands (each answers --help):\n");
    for (size_t i = 0; i < COMMANDS; i++) {
        (void)fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    (void)fprintf(out, "\n"
                       "exit codes:\n"
                       "  0        done\n"
                       "  1        the configuration or the input is refused\n"
                       "  2        the run failed\n"
                       "  128 + n  ended by signal n\n"
                       "\n"
                       "environment:\n");
    env_print_help(out);
}

static enum status run_command(int argc, char **argv)
{
    const char *near = NULL;

    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[0], commands[i].name) == 0) {
            return commands[i].run(argc, argv);
        }
    }
    near = nearest_name(argv[0], command_names, COMMANDS);
    return status_fail(STATUS_ERR_REFUSED,
                       "weir: there is no command \"%s\"%s%s%s; weir --help lists them", argv[0],
                       near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                       near != NULL ? "?" : "");
}

int main(int argc, char **argv)
{
    enum status status = STATUS_OK;

    if (argc < 2) {
        print_help(stderr);
        return EXIT_CODE_REFUSED;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
    } else if (strcmp(argv[1], "--version") == 0) {
        (void)printf("weir %s\n", WEIR_VERSION);
    } else {
        status = run_command(argc - 1, argv + 1);
    }
    /* Results that nobody could be given are a failure, not a success with no output. */
    if (fflush(stdout) != 0 && status >= 0) {
        status = status_fail(STATUS_ERR_IO, "weir: cannot write to stdout");
    }
    return exit_code_of(status);
}
