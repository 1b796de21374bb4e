/*
 * control_link -- the control thread of a process: carries what lies on the desk to the coordinator
 * and what the coordinator says to the desk; in rank 0 it is the coordinator's thread as well.
 *
 * It says HELLO, beats, sends rounds, aborts and stops, hears the welcome, the answers and the end,
 * and tells the death of rank 0: by its connection, which is gone at once, or by its silence.
 */
#ifndef COLLECTIVES_CONTROL_LINK_H
#define COLLECTIVES_CONTROL_LINK_H

#include "base/status.h"
#include "collectives/control.h"
#include "collectives/desk.h"

#ifdef __cplusplus
extern "C" {
#endif

struct control_link;

/* Starts the thread, with all signals blocked. Borrows desk and config, and what config points to,
 * until the join. What fails later is told by the desk as an abort. */
enum status control_link_start(const struct control_config *config, struct desk *desk,
                               struct control_link **link_out);

/* Waits for the thread's end, which desk_leave() asks for: until rank 0 has heard the BYE, in rank
 * 0 until all have left or are lost, after an abort only until it is told. Nulls the caller's
 * pointer; NULL is fine. */
void control_link_join(struct control_link **link);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_CONTROL_LINK_H */
