/*
 * command -- the commands of the weir binary, one file each.
 *
 * A command gets its own arguments (argv[0] is its name), prints results on stdout and talk on
 * stderr, and returns a status: STATUS_OK is exit code 0, STATUS_ERR_REFUSED (configuration or
 * input refused) 1, every other failure 2. Only main.c turns a status into an exit code. Every
 * command answers --help.
 */
#ifndef STAGES_COMMANDS_COMMAND_H
#define STAGES_COMMANDS_COMMAND_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status command_agent(int argc, char **argv);
enum status command_checkpoint(int argc, char **argv);
enum status command_config(int argc, char **argv);
enum status command_plan(int argc, char **argv);
enum status command_trace(int argc, char **argv);
enum status command_train(int argc, char **argv);
enum status command_tune(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_COMMANDS_COMMAND_H */
