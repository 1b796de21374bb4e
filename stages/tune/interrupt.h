/*
 * interrupt -- TERM, INT and HUP while a program starts jobs, and what it does between them.
 *
 * The signals are blocked and read from a descriptor, so that nothing ends half way: whoever works
 * asks tune_interrupted() between two pieces of work, whoever waits polls the descriptor. One a
 * process, in its only thread.
 */
#ifndef STAGES_TUNE_INTERRUPT_H
#define STAGES_TUNE_INTERRUPT_H

#include <signal.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tune_interrupt {
    int descriptor;    /* a signalfd; -1: closed */
    int signal;        /* the first that came, 0: none */
    sigset_t old_mask; /* of before */
};

enum status tune_interrupt_open(struct tune_interrupt *interrupt);

/* Takes what has come. STATUS_ERR_CANCELLED, recorded and not logged, once a signal has. */
enum status tune_interrupted(struct tune_interrupt *interrupt);

/* The signals have their old handling again. Safe twice. */
void tune_interrupt_close(struct tune_interrupt *interrupt);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_INTERRUPT_H */
