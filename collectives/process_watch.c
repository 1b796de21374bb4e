#include "collectives/process_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

enum {
    NOT_WATCHED = -1
};

struct process_watch {
    int epoll_fd; /* readable when one of `fds` is */
    int32_t processes;
    int *fds; /* by tag; owns; NOT_WATCHED where none */
};

enum status process_watch_open(int32_t processes, struct process_watch **watch_out)
{
    struct process_watch *watch = calloc(1, sizeof(*watch));

    if (watch == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "process watch: %zu bytes", sizeof(*watch));
    }
    watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    watch->fds = malloc((size_t)processes * sizeof(*watch->fds));
    if (watch->epoll_fd < 0 || watch->fds == NULL) {
        enum status status = status_fail(STATUS_ERR_IO, "process watch for %d processes: %s",
                                         (int)processes, strerror(errno));

        process_watch_close(&watch);
        return status;
    }
    watch->processes = processes;
    for (int32_t i = 0; i < processes; i++) {
        watch->fds[i] = NOT_WATCHED;
    }
    *watch_out = watch;
    return STATUS_OK;
}

void process_watch_add(struct process_watch *watch, int32_t tag, int64_t pid)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)tag};
    int fd = pidfd_open((pid_t)pid, 0);

    ENSURE(tag >= 0 && tag < watch->processes && watch->fds[tag] == NOT_WATCHED, "tag %d",
           (int)tag);
    if (fd < 0 && errno == ESRCH) {
        /* Gone before it could be watched: an event that is there at once says so. */
        fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    if (fd < 0) {
        return;
    }
    if (epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        (void)close(fd);
        return;
    }
    watch->fds[tag] = fd;
}

void process_watch_remove(struct process_watch *watch, int32_t tag)
{
    ENSURE(tag >= 0 && tag < watch->processes, "tag %d", (int)tag);
    if (watch->fds[tag] != NOT_WATCHED) {
        (void)epoll_ctl(watch->epoll_fd, EPOLL_CTL_DEL, watch->fds[tag], NULL);
        (void)close(watch->fds[tag]);
        watch->fds[tag] = NOT_WATCHED;
    }
}

int process_watch_fd(const struct process_watch *watch)
{
    return watch->epoll_fd;
}

bool process_watch_next(struct process_watch *watch, int32_t *tag_out)
{
    struct epoll_event event;

    if (epoll_wait(watch->epoll_fd, &event, 1, 0) != 1) {
        return false;
    }
    *tag_out = (int32_t)event.data.u64;
    process_watch_remove(watch, *tag_out);
    return true;
}

void process_watch_close(struct process_watch **watch)
{
    if (*watch == NULL) {
        return;
    }
    for (int32_t i = 0; i < (*watch)->processes; i++) {
        process_watch_remove(*watch, i);
    }
    if ((*watch)->epoll_fd >= 0) {
        (void)close((*watch)->epoll_fd);
    }
    free((*watch)->fds);
    free(*watch);
    *watch = NULL;
}

uint64_t process_space(void)
{
    struct stat info;

    return stat("/proc/self/ns/pid", &info) == 0 ? (uint64_t)info.st_ino : 0;
}
