#include "stages/exit_code.h"

#include "base/check.h"

/* Written once a process, by the command that runs; 0 is "nothing kept". */
static int kept_code;

void exit_code_keep(int code)
{
    ENSURE(code > 0 && code < 256, "exit code %d", code);
    if (kept_code == 0) {
        kept_code = code;
    }
}

void exit_code_keep_signal(int signal)
{
    exit_code_keep(EXIT_CODE_SIGNAL + signal);
}

int exit_code_of(enum status status)
{
    if (kept_code != 0) {
        return kept_code;
    }
    if (status >= 0) {
        return EXIT_CODE_DONE;
    }
    return status == STATUS_ERR_REFUSED ? EXIT_CODE_REFUSED : EXIT_CODE_FAILED;
}
