#include "collectives/desk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

enum status desk_init(struct desk *desk, struct cancel *cancel)
{
    pthread_condattr_t attributes;

    memset(desk, 0, sizeof(*desk));
    desk->cancel = cancel;
    desk->changed_ns = clock_now_ns();
    desk->place = (int64_t)UINT32_MAX; /* phase 0, action -1 */
    desk->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (desk->wake_fd < 0) {
        memset(desk, 0, sizeof(*desk));
        return status_fail(STATUS_ERR_IO, "control: cannot make an eventfd: %s", strerror(errno));
    }
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&desk->mutex, NULL);
    (void)pthread_cond_init(&desk->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return STATUS_OK;
}

void desk_release(struct desk *desk)
{
    if (desk->wake_fd > 0) {
        (void)close(desk->wake_fd);
        (void)pthread_cond_destroy(&desk->changed);
        (void)pthread_mutex_destroy(&desk->mutex);
    }
    free(desk->welcome);
    free(desk->numbers);
    memset(desk, 0, sizeof(*desk));
}

static void lock(struct desk *desk)
{
    (void)pthread_mutex_lock(&desk->mutex);
}

/* Tells the other thread, too. */
static void unlock(struct desk *desk)
{
    (void)pthread_cond_broadcast(&desk->changed);
    (void)pthread_mutex_unlock(&desk->mutex);
}

void desk_wake(struct desk *desk)
{
    const uint64_t one = 1;
    int saved = errno;
    /* Only a counter that is full can refuse, and that wakes as well. */
    ssize_t written = write(desk->wake_fd, &one, sizeof(one));

    (void)written;
    errno = saved;
}

bool desk_abort(struct desk *desk, const struct control_cause *cause, bool own)
{
    lock(desk);
    bool first = !desk->aborted;

    if (first) {
        desk->aborted = true;
        desk->abort_is_own = own;
        desk->cause = *cause;
    }
    unlock(desk);
    /* After the cause is there, so that whoever is freed by it finds out why. */
    cancel_request(desk->cancel);
    desk_wake(desk);
    return first;
}

bool desk_is_aborted(struct desk *desk)
{
    lock(desk);
    bool aborted = desk->aborted;

    (void)pthread_mutex_unlock(&desk->mutex);
    return aborted;
}

/* Waits for a change, with the mutex held, until `deadline_ns` at most. STATUS_OK means: look
 * again. */
static enum status wait_change(struct desk *desk, int64_t deadline_ns)
{
    int64_t until_ns = clock_now_ns() + CANCEL_POLL_NS;

    until_ns = deadline_ns < until_ns ? deadline_ns : until_ns;
    struct timespec until = {.tv_sec = (time_t)(until_ns / CLOCK_SECOND),
                             .tv_nsec = (long)(until_ns % CLOCK_SECOND)};

    (void)pthread_cond_timedwait(&desk->changed, &desk->mutex, &until);
    return cancel_check(desk->cancel, deadline_ns);
}

enum status desk_await_welcome(struct desk *desk)
{
    enum status status = STATUS_OK;

    lock(desk);
    while (status == STATUS_OK && !desk->welcomed && !desk->aborted) {
        status = wait_change(desk, CLOCK_NEVER);
    }
    bool aborted = desk->aborted;
    bool welcomed = desk->welcomed;

    (void)pthread_mutex_unlock(&desk->mutex);
    if (aborted) {
        return status_fail(desk->cause.status, "%s", desk->cause.text);
    }
    return welcomed ? STATUS_OK : status_note(status, "control: cancelled during the start");
}

bool desk_is_free(struct desk *desk)
{
    lock(desk);
    bool is_free = desk->round == DESK_NO_ROUND;

    (void)pthread_mutex_unlock(&desk->mutex);
    return is_free;
}

enum status desk_lay_round(struct desk *desk, const void *part, size_t part_bytes,
                           int32_t key_count)
{
    enum status status = STATUS_OK;

    lock(desk);
    ENSURE(desk->round == DESK_NO_ROUND, "a round is laid upon another");
    if (key_count > desk->number_capacity) {
        double *numbers = realloc(desk->numbers, (size_t)key_count * sizeof(*numbers));

        desk->numbers = numbers != NULL ? numbers : desk->numbers;
        desk->number_capacity = numbers != NULL ? key_count : desk->number_capacity;
        status = numbers != NULL ? STATUS_OK : STATUS_ERR_NO_MEMORY;
    }
    if (status == STATUS_OK) {
        desk->part = part;
        desk->part_bytes = part_bytes;
        desk->key_count = key_count;
        desk->round = DESK_ROUND_LAID;
    }
    unlock(desk);
    if (status != STATUS_OK) {
        return status_fail(status, "control: no memory for a round of %d keys", (int)key_count);
    }
    desk_wake(desk);
    return STATUS_OK;
}

enum status desk_tell_abort(struct desk *desk)
{
    /* What was raised here was logged here. */
    return desk->abort_is_own ? status_note(STATUS_ERR_CANCELLED, "%s", desk->cause.text)
                              : status_fail(STATUS_ERR_PEER, "%s", desk->cause.text);
}

enum status desk_await_answer(struct desk *desk, int64_t deadline_ns,
                              struct control_outcome *outcome, double *numbers)
{
    enum status status = STATUS_OK;

    lock(desk);
    __atomic_store_n(&desk->in_round, 1, __ATOMIC_RELAXED);
    while (status == STATUS_OK && desk->round != DESK_ROUND_ANSWERED && !desk->aborted) {
        status = wait_change(desk, deadline_ns);
    }
    bool aborted = desk->aborted;

    if (desk->round == DESK_ROUND_ANSWERED && !aborted) {
        *outcome = desk->outcome;
        if (outcome->status == STATUS_OK && desk->key_count > 0) {
            memcpy(numbers, desk->numbers, (size_t)desk->key_count * sizeof(*numbers));
        }
        desk->round = DESK_NO_ROUND;
        status = STATUS_OK;
    }
    __atomic_store_n(&desk->changed_ns, clock_now_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&desk->in_round, 0, __ATOMIC_RELEASE);
    (void)pthread_mutex_unlock(&desk->mutex);
    return aborted ? desk_tell_abort(desk) : status;
}

enum status desk_await_clock(struct desk *desk, int64_t deadline_ns, struct control_clock *clock)
{
    enum status status = STATUS_OK;

    lock(desk);
    uint64_t asked = ++desk->clock_asked;

    (void)pthread_mutex_unlock(&desk->mutex);
    desk_wake(desk);
    lock(desk);
    while (status == STATUS_OK && desk->clock_answered != asked && !desk->aborted) {
        status = wait_change(desk, deadline_ns);
    }
    bool aborted = desk->aborted;

    if (desk->clock_answered == asked && !aborted) {
        *clock = desk->clock;
        status = STATUS_OK;
    }
    (void)pthread_mutex_unlock(&desk->mutex);
    return aborted ? desk_tell_abort(desk) : status;
}

void desk_set_progress(struct desk *desk, const struct control_progress *progress)
{
    int64_t place =
        (int64_t)((uint64_t)(uint32_t)progress->phase << 32 | (uint32_t)progress->action);
    int64_t waits = progress->waits ? 1 : 0;

    if (__atomic_load_n(&desk->step, __ATOMIC_RELAXED) == progress->step &&
        __atomic_load_n(&desk->place, __ATOMIC_RELAXED) == place &&
        __atomic_load_n(&desk->waits, __ATOMIC_RELAXED) == waits) {
        return;
    }
    __atomic_store_n(&desk->step, progress->step, __ATOMIC_RELAXED);
    __atomic_store_n(&desk->place, place, __ATOMIC_RELAXED);
    __atomic_store_n(&desk->changed_ns, clock_now_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&desk->waits, waits, __ATOMIC_RELEASE);
}

void desk_set_waits(struct desk *desk, bool waits)
{
    int64_t now = waits ? 1 : 0;

    if (__atomic_load_n(&desk->waits, __ATOMIC_RELAXED) != now) {
        /* Before the flag: who sees that nobody waits any more also sees since when. */
        __atomic_store_n(&desk->changed_ns, clock_now_ns(), __ATOMIC_RELAXED);
        __atomic_store_n(&desk->waits, now, __ATOMIC_RELEASE);
    }
}

void desk_set_stop(struct desk *desk, int32_t signal_number)
{
    int32_t none = 0;

    (void)__atomic_compare_exchange_n(&desk->stop_signal, &none, signal_number, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    desk_wake(desk);
}

void desk_leave(struct desk *desk)
{
    lock(desk);
    desk->closing = true;
    unlock(desk);
    desk_wake(desk);
}

void desk_take_orders(struct desk *desk, struct desk_orders *orders)
{
    uint64_t wakes = 0;
    ssize_t emptied = read(desk->wake_fd, &wakes, sizeof(wakes));
    uint64_t place = (uint64_t)__atomic_load_n(&desk->place, __ATOMIC_RELAXED);
    bool waits = __atomic_load_n(&desk->waits, __ATOMIC_ACQUIRE) != 0;
    bool in_round = __atomic_load_n(&desk->in_round, __ATOMIC_ACQUIRE) != 0;
    int64_t still_ns = clock_now_ns() - __atomic_load_n(&desk->changed_ns, __ATOMIC_RELAXED);

    (void)emptied;
    memset(orders, 0, sizeof(*orders));
    orders->stop_signal = __atomic_load_n(&desk->stop_signal, __ATOMIC_RELAXED);
    orders->beat.progress.step = __atomic_load_n(&desk->step, __ATOMIC_RELAXED);
    orders->beat.progress.phase = (int32_t)(uint32_t)(place >> 32);
    orders->beat.progress.action = (int32_t)(uint32_t)place;
    orders->beat.progress.waits = waits;
    orders->beat.still_ns = still_ns > 0 ? still_ns : 0;
    orders->beat.in_round = in_round;
    lock(desk);
    if (desk->round == DESK_ROUND_LAID) {
        orders->part = desk->part;
        orders->part_bytes = desk->part_bytes;
    }
    orders->clock_asked = desk->clock_asked;
    orders->aborted = desk->aborted;
    orders->abort_is_own = desk->abort_is_own;
    orders->closing = desk->closing;
    if (desk->aborted) {
        orders->cause = desk->cause;
    }
    (void)pthread_mutex_unlock(&desk->mutex);
}

void desk_mark_sent(struct desk *desk)
{
    lock(desk);
    desk->round = DESK_ROUND_SENT;
    (void)pthread_mutex_unlock(&desk->mutex);
}

enum status desk_lay_welcome(struct desk *desk, uint64_t job, const void *bytes, size_t size)
{
    void *copy = NULL;

    if (bytes != NULL) {
        copy = malloc(size > 0 ? size : 1);
        if (copy == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "control: %zu bytes of welcome", size);
        }
        memcpy(copy, bytes, size);
    }
    lock(desk);
    desk->job = job;
    free(desk->welcome);
    desk->welcome = copy;
    desk->welcome_bytes = size;
    desk->welcomed = true;
    unlock(desk);
    return STATUS_OK;
}

void desk_lay_clock(struct desk *desk, uint64_t asked, const struct control_clock *clock)
{
    lock(desk);
    if (asked == desk->clock_asked) {
        desk->clock = *clock;
        desk->clock_answered = asked;
    }
    unlock(desk);
}

enum status desk_lay_answer(struct desk *desk, const struct message_view *view)
{
    enum status status = STATUS_OK;

    lock(desk);
    if (desk->round == DESK_ROUND_SENT) {
        status = control_outcome_get(view, &desk->outcome, desk->numbers, desk->key_count);
        desk->round = status == STATUS_OK ? DESK_ROUND_ANSWERED : DESK_ROUND_SENT;
    } else {
        status = status_note(STATUS_ERR_FORMAT, "rank 0 answers a round that was not asked for");
    }
    unlock(desk);
    return status;
}
