#include "stages/tune/interrupt.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum status tune_interrupt_open(struct tune_interrupt *interrupt)
{
    struct sigaction hangup;
    sigset_t wanted;

    *interrupt = (struct tune_interrupt){.descriptor = -1};
    (void)sigemptyset(&wanted);
    (void)sigaddset(&wanted, SIGTERM);
    (void)sigaddset(&wanted, SIGINT);
    /* Under nohup it stays ignored. */
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
        (void)sigaddset(&wanted, SIGHUP);
    }
    (void)sigprocmask(SIG_BLOCK, &wanted, &interrupt->old_mask);
    interrupt->descriptor = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (interrupt->descriptor < 0) {
        int cause = errno;

        (void)sigprocmask(SIG_SETMASK, &interrupt->old_mask, NULL);
        return status_fail(STATUS_ERR_IO, "cannot open a descriptor for signals: %s",
                           strerror(cause));
    }
    return STATUS_OK;
}

enum status tune_interrupted(struct tune_interrupt *interrupt)
{
    struct signalfd_siginfo info;

    while (interrupt->descriptor >= 0 &&
           read(interrupt->descriptor, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (interrupt->signal == 0) {
            interrupt->signal = (int)info.ssi_signo;
        }
    }
    return interrupt->signal == 0 ? STATUS_OK
                                  : status_note(STATUS_ERR_CANCELLED, "ended by signal %d (%s)",
                                                interrupt->signal, strsignal(interrupt->signal));
}

void tune_interrupt_close(struct tune_interrupt *interrupt)
{
    if (interrupt->descriptor >= 0) {
        (void)close(interrupt->descriptor);
        (void)sigprocmask(SIG_SETMASK, &interrupt->old_mask, NULL);
    }
    interrupt->descriptor = -1;
}
