/* train -- `weir train CONFIG [--section.key=value …]`: one stage process. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "stages/commands/command.h"
#include "stages/config.h"
#include "stages/exit_code.h"
#include "stages/train.h"

static void print_help(void)
{
    (void)printf(
        "usage: weir train CONFIG [--section.key=value …] [--overwrite]\n"
        "\n"
        "One stage process of a training run. It reads its rank and world from the environment\n"
        "(RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT as torchrun and ./launch set\n"
        "them; Open MPI's, PMI's and Slurm's too) and is a world of one without them.\n"
        "\n"
        "  --section.key=value  overrides the configuration (weir config CONFIG shows all keys)\n"
        "  --overwrite          starts again where the run directory holds an earlier run\n"
        "\n"
        "Exit codes: 0 done, 1 configuration or input refused, 2 run failed, 128+signal.\n");
}

enum status command_train(int argc, char **argv)
{
    struct config *config = NULL;
    int32_t signal_number = 0;
    enum status status = STATUS_OK;

    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return argc < 2 ? status_fail(STATUS_ERR_REFUSED, "weir train: which CONFIG?") : STATUS_OK;
    }
    TRY(config_load(argv[1], argv + 2, argc - 2, &config));
    status = train_run(config, &signal_number);
    config_destroy(&config);
    if (signal_number != 0) {
        exit_code_keep_signal(signal_number);
    }
    return status;
}
