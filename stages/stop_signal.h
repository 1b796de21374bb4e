/*
 * stop_signal -- TERM and INT end a run after the running step, a second one at once.
 *
 * A thread waits for the signals, which every other thread blocks: no handler, no global state.
 * The first signal asks the control plane to stop; while there is none yet, it gives the start up
 * by cancelling its waits. The second ends the process with the signal's default action.
 */
#ifndef STAGES_STOP_SIGNAL_H
#define STAGES_STOP_SIGNAL_H

#include "base/cancel.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct control;
struct stop_signal;

/* Blocks TERM and INT for this thread and all that it starts later, so: before any of them. From
 * now on a first signal cancels `cancel` (borrowed until close). STATUS_ERR_NO_MEMORY where the
 * thread cannot be started. */
enum status stop_signal_open(struct cancel *cancel, struct stop_signal **stop_out);

/* From now on a first signal goes to `control` (borrowed until close). */
void stop_signal_attach(struct stop_signal *stop, struct control *control);

/* The signal that gave the start up; 0 where none did. */
int stop_signal_start_ended_by(const struct stop_signal *stop);

/* Ends the thread; the signals stay blocked. Nulls the caller's pointer; NULL is fine. */
void stop_signal_close(struct stop_signal **stop);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_STOP_SIGNAL_H */
