#include "collectives/segment_socket.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

_Static_assert(SEGMENT_SOCKET_PATH_BYTES == sizeof(((struct sockaddr_un *)0)->sun_path),
               "the path fits the system's address");

/* A record with one descriptor; the union aligns the control part. */
struct record {
    struct msghdr header;
    struct iovec body;
    union {
        uint64_t align; /* as strictly as a cmsghdr, which cannot stand here itself */
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
};

enum status segment_socket_path(const char *directory, int32_t rank,
                                char path[SEGMENT_SOCKET_PATH_BYTES])
{
    int length = snprintf(path, SEGMENT_SOCKET_PATH_BYTES, "%s/shm-%" PRId32, directory, rank);

    if (length < 0 || length >= SEGMENT_SOCKET_PATH_BYTES) {
        return status_fail(STATUS_ERR_REFUSED,
                           "job directory %s: the path of a socket in it has %d bytes, at most %d "
                           "are possible; set TMPDIR to a shorter path",
                           directory, length, SEGMENT_SOCKET_PATH_BYTES - 1);
    }
    return STATUS_OK;
}

static enum status make(const char *path, struct sockaddr_un *address_out, int *fd_out)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return status_fail(STATUS_ERR_IO, "making a socket for %s: %s", path, strerror(errno));
    }
    *address_out = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(address_out->sun_path, sizeof(address_out->sun_path), "%s", path);
    *fd_out = fd;
    return STATUS_OK;
}

static enum status check_user(int fd, pid_t *pid_out)
{
    struct ucred peer = {0};
    socklen_t bytes = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
        return status_fail(STATUS_ERR_IO, "asking who is at a socket's other end: %s",
                           strerror(errno));
    }
    *pid_out = peer.pid;
    if (peer.uid != geteuid()) {
        return status_note(STATUS_ERR_REFUSED,
                           "process %jd of user %ju is at the other end of a socket of user %ju",
                           (intmax_t)peer.pid, (uintmax_t)peer.uid, (uintmax_t)geteuid());
    }
    return STATUS_OK;
}

static bool is_absent(int error)
{
    return error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == EINTR;
}

/* After bind() has found the name taken: removes the file where nobody serves it. */
static enum status remove_stale(const char *path)
{
    struct sockaddr_un address;
    int fd = -1;
    int error;

    TRY(make(path, &address, &fd));
    error = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
    (void)close(fd);
    if (error == ECONNREFUSED) {
        log_debug("%s was left by a process that is gone; taking it over", path);
        (void)unlink(path);
        return STATUS_OK;
    }
    if (error == ENOENT) {
        return STATUS_OK;
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "%s is served by another process: two processes have the same rank, or two "
                       "jobs the same name",
                       path);
}

enum status segment_socket_listen(const char *path, int32_t backlog, int *fd_out)
{
    struct sockaddr_un address;
    enum status status;
    int fd = -1;
    int bound;

    TRY(make(path, &address, &fd));
    bound = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    if (bound != 0 && errno == EADDRINUSE) {
        TRY_OR(fail, status, remove_stale(path));
        bound = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    }
    if (bound != 0) {
        status = status_fail(STATUS_ERR_IO, "making the socket %s: %s", path, strerror(errno));
        goto fail;
    }
    if (listen(fd, backlog) != 0) {
        status = status_fail(STATUS_ERR_IO, "listening at %s: %s", path, strerror(errno));
        (void)unlink(path);
        goto fail;
    }
    *fd_out = fd;
    return STATUS_OK;

fail:
    (void)close(fd);
    return status;
}

enum status segment_socket_connect(const char *path, int *fd_out)
{
    struct sockaddr_un address;
    enum status status;
    pid_t pid = 0;
    int fd = -1;

    TRY(make(path, &address, &fd));
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        status = is_absent(errno)
                     ? STATUS_IN_PROGRESS
                     : status_fail(STATUS_ERR_IO, "connecting to %s: %s", path, strerror(errno));
        (void)close(fd);
        return status;
    }
    status = check_user(fd, &pid);
    if (status < 0) {
        char why[STATUS_MESSAGE_BYTES];

        (void)snprintf(why, sizeof(why), "%s", status_last()->message);
        (void)close(fd);
        return status_fail(status, "connecting to %s: %s", path, why);
    }
    *fd_out = fd;
    return STATUS_OK;
}

enum status segment_socket_accept(int listener, int *fd_out)
{
    pid_t pid = 0;
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        if (is_absent(errno) || errno == ECONNABORTED) {
            return STATUS_IN_PROGRESS;
        }
        return status_fail(STATUS_ERR_IO, "accepting a rank's connection: %s", strerror(errno));
    }
    if (check_user(fd, &pid) < 0) {
        log_warn("turned away: %s", status_last()->message);
        (void)close(fd);
        return STATUS_IN_PROGRESS;
    }
    *fd_out = fd;
    return STATUS_OK;
}

static void record_init(struct record *record, void *body, size_t body_bytes)
{
    *record = (struct record){.body = {.iov_base = body, .iov_len = body_bytes}};
    record->header.msg_iov = &record->body;
    record->header.msg_iovlen = 1;
    record->header.msg_control = record->control.bytes;
    /* Not CMSG_SPACE: its padding has room for a second descriptor, which nobody would close. */
    record->header.msg_controllen = CMSG_LEN(sizeof(int));
}

enum status segment_socket_send(int fd, const struct segment_offer *offer, int segment_fd)
{
    struct segment_offer copy = *offer;
    struct record record;
    struct cmsghdr *control;
    ssize_t sent;

    record_init(&record, &copy, sizeof(copy));
    control = CMSG_FIRSTHDR(&record.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &segment_fd, sizeof(segment_fd));
    do {
        sent = sendmsg(fd, &record.header, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent != (ssize_t)sizeof(copy)) {
        return status_fail(STATUS_ERR_PEER,
                           "telling rank %" PRId32 " the lanes of rank %" PRId32 ": %s", offer->to,
                           offer->from, sent < 0 ? strerror(errno) : "the message was cut");
    }
    return STATUS_OK;
}

/* The one descriptor of a record, or -1. */
static int take_descriptor(struct msghdr *header)
{
    const struct cmsghdr *control = CMSG_FIRSTHDR(header);
    int fd = -1;

    if (control != NULL && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS &&
        control->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(&fd, CMSG_DATA(control), sizeof(fd));
    }
    return fd;
}

enum segment_arrival segment_socket_receive(int fd, struct segment_offer *offer, int *segment_fd)
{
    struct record record;
    ssize_t got;

    record_init(&record, offer, sizeof(*offer));
    got = recvmsg(fd, &record.header, MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return SEGMENT_NOTHING;
    }
    if (got <= 0) {
        return SEGMENT_CLOSED;
    }
    *segment_fd = take_descriptor(&record.header);
    if (got != (ssize_t)sizeof(*offer) || *segment_fd < 0 ||
        (record.header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
        !segment_offer_recognised(offer)) {
        segment_socket_close(segment_fd);
        return SEGMENT_ALIEN;
    }
    return SEGMENT_OFFER;
}

void segment_socket_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}
