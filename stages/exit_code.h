/*
 * exit_code -- what the weir process ends with.
 *
 * A status says enough for most commands: success 0, refused 1, any other failure 2. Two commands
 * know better: a stage process that ended in order because of a signal ends with 128 + signal, and
 * the agent ends with the code of the rank that failed first. They keep that code here, once,
 * before they return; main() asks for it last.
 */
#ifndef STAGES_EXIT_CODE_H
#define STAGES_EXIT_CODE_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum exit_code {
    EXIT_CODE_DONE = 0,
    EXIT_CODE_REFUSED = 1, /* configuration or input */
    EXIT_CODE_FAILED = 2,
    EXIT_CODE_SIGNAL = 128 /* plus the signal's number */
};

/* Keeps `code`, 1 … 255, for exit_code_of(). The first one stands: whatever follows it is its
 * consequence. From one thread. */
void exit_code_keep(int code);

/* The process ends in order because of `signal`: keeps 128 + signal. */
void exit_code_keep_signal(int signal);

/* The kept code; where none was kept, the one of `status`. */
int exit_code_of(enum status status);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_EXIT_CODE_H */
