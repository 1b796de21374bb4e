#include "stages/stop_signal.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "collectives/control.h"

struct stop_signal {
    pthread_t thread;
    struct cancel *cancel;   /* borrows */
    struct control *control; /* borrows; atomic; NULL during the start */
    int start_ended_by;      /* atomic */
    int closing;             /* atomic */
};

static void stop_set(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
}

static void end_at_once(int number)
{
    sigset_t set;

    (void)signal(number, SIG_DFL);
    stop_set(&set);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    (void)raise(number);
}

static void take_first(struct stop_signal *stop, int number)
{
    struct control *control = __atomic_load_n(&stop->control, __ATOMIC_ACQUIRE);

    if (control == NULL) {
        log_info("%s: the start is given up; a second one ends the process at once",
                 strsignal(number));
        __atomic_store_n(&stop->start_ended_by, number, __ATOMIC_RELEASE);
        cancel_request(stop->cancel);
        return;
    }
    log_info("%s: the run ends after this step, with a checkpoint; a second one ends it at once",
             strsignal(number));
    control_stop(control, number);
}

static void *wait_for_signals(void *context)
{
    struct stop_signal *stop = context;
    const struct timespec slice = {.tv_nsec = CANCEL_POLL_NS};
    sigset_t set;
    int seen = 0;

    stop_set(&set);
    while (__atomic_load_n(&stop->closing, __ATOMIC_ACQUIRE) == 0) {
        int number = sigtimedwait(&set, NULL, &slice);

        if (number <= 0) {
            continue;
        }
        if (seen++ > 0) {
            end_at_once(number);
        }
        take_first(stop, number);
    }
    return NULL;
}

enum status stop_signal_open(struct cancel *cancel, struct stop_signal **stop_out)
{
    struct stop_signal *stop = calloc(1, sizeof(*stop));
    sigset_t set;

    if (stop == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "signal thread");
    }
    stop->cancel = cancel;
    stop_set(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&stop->thread, NULL, wait_for_signals, stop) != 0) {
        free(stop);
        return status_fail(STATUS_ERR_NO_MEMORY, "cannot start the signal thread");
    }
    *stop_out = stop;
    return STATUS_OK;
}

void stop_signal_attach(struct stop_signal *stop, struct control *control)
{
    __atomic_store_n(&stop->control, control, __ATOMIC_RELEASE);
}

int stop_signal_start_ended_by(const struct stop_signal *stop)
{
    return stop != NULL ? __atomic_load_n(&stop->start_ended_by, __ATOMIC_ACQUIRE) : 0;
}

void stop_signal_close(struct stop_signal **stop)
{
    if (*stop == NULL) {
        return;
    }
    __atomic_store_n(&(*stop)->closing, 1, __ATOMIC_RELEASE);
    (void)pthread_join((*stop)->thread, NULL);
    free(*stop);
    *stop = NULL;
}
