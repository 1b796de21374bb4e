/*
 * stop_signal -- TERM and INT end a run after the running step, a second one at once.
 *
 * A thread waits for the signals, which every other thread blocks: no handler, no global state.
 * The first signal asks the control plane to stop; the second ends the process with the signal's
 * default action.
 */
#ifndef STAGES_STOP_SIGNAL_H
#define STAGES_STOP_SIGNAL_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct control;
struct stop_signal;

/* Blocks TERM and INT for this thread and all that it starts later, so: before any of them. */
void stop_signal_block(void);

/* From now on signals reach `control` (borrowed until close). */
enum status stop_signal_open(struct control *control, struct stop_signal **stop_out);

/* Ends the thread; nulls the caller's pointer; NULL is fine. */
void stop_signal_close(struct stop_signal **stop);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_STOP_SIGNAL_H */
