#include "collectives/control_link.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "collectives/control_link_state.h"

#define LETTERS_MOST      16
#define FAREWELL_NS       (2 * CLOCK_SECOND) /* for BYE, or an own ABORT, to be answered */
#define FAREWELL_MS       500                /* for what was said last to leave this process */
#define SOCKET_NAME       "control"
#define NAME_OF_RANK_ZERO 128

static void abort_for_rank_zero(struct control_link *link, const char *why, double seconds)
{
    struct control_cause cause = {.status = STATUS_ERR_PEER, .rank = 0};
    char name[NAME_OF_RANK_ZERO] = "rank 0";
    char age[32] = "";

    if (link->host.pid != 0) {
        (void)snprintf(name, sizeof(name), "rank 0 (%s, process %" PRId64 ")", link->host.host,
                       link->host.pid);
    }
    if (seconds > 0.0) {
        (void)snprintf(age, sizeof(age), " for %.1f s", seconds);
    }
    (void)snprintf(cause.text, sizeof(cause.text), "%s was lost: %s%s", name, why, age);
    (void)desk_abort(link->desk, &cause, false);
}

static enum status open_wires(struct control_link *link)
{
    char name[WIRE_NAME_BYTES];
    const struct wire_config wire = {.kind = WIRE_DEALER,
                                     .name = name,
                                     .most_bytes = MESSAGE_MOST_BYTES,
                                     .most_letters = LETTERS_MOST,
                                     .watched = link->config->rank != 0};

    control_place_here(&link->here);
    (void)snprintf(name, sizeof(name), "r%d.%" PRId64, (int)link->config->rank, link->here.pid);
    TRY(message_pack_create(&link->pack));
    TRY(message_view_create(&link->view));
    TRY(wire_hub_open(&link->hub));
    if (link->config->rank == 0) {
        TRY(coordinator_open(link->hub, link->config, link->endpoint, &link->coordinator));
    }
    TRY(wire_open(link->hub, &wire, &link->wire));
    return wire_connect(link->wire,
                        link->config->rank == 0 ? COORDINATOR_LOCAL_ENDPOINT : link->endpoint);
}

static void close_wires(struct control_link *link)
{
    wire_close(&link->wire, FAREWELL_MS);
    coordinator_close(&link->coordinator);
    wire_hub_close(&link->hub);
    message_view_destroy(&link->view);
    message_pack_destroy(&link->pack);
}

enum status control_link_send(struct control_link *link)
{
    const void *bytes = NULL;
    size_t size = 0;

    TRY(message_pack_end(link->pack, &bytes, &size));
    return wire_send(link->wire, NULL, bytes, size);
}

void control_link_begin(struct control_link *link, enum control_kind kind)
{
    control_head_put(link->pack, kind, link->job, link->config->rank);
}

/* A failure of this process's control plane ends the job. */
static void abort_own(struct control_link *link, enum status status)
{
    struct control_cause cause = {.status = status, .rank = link->config->rank};

    (void)snprintf(cause.text, sizeof(cause.text), "rank %d: %.480s", (int)link->config->rank,
                   status_last()->message);
    (void)desk_abort(link->desk, &cause, true);
    if (link->wire != NULL && link->job != 0) {
        control_link_begin(link, CONTROL_KIND_ABORT);
        control_cause_put(link->pack, &cause);
        (void)control_link_send(link);
    }
}

static enum status say_hello(struct control_link *link)
{
    struct control_hello hello = {.world = link->config->world,
                                  .config_hash = link->config->config_hash,
                                  .place = link->here};

    (void)snprintf(hello.variant, sizeof(hello.variant), "%s", link->config->variant);
    (void)snprintf(hello.device, sizeof(hello.device), "%s", link->config->device);
    control_link_begin(link, CONTROL_KIND_HELLO);
    control_hello_put(link->pack, &hello);
    return control_link_send(link);
}

static enum status hear_welcome(struct control_link *link)
{
    const void *bytes = NULL;
    size_t size = 0;

    TRY(control_place_get(link->view, &link->host));
    TRY(message_get_bytes(link->view, "welcome", &bytes, &size));
    if (size > CONTROL_WELCOME_MOST_BYTES) {
        return status_note(STATUS_ERR_FORMAT, "a welcome of %zu bytes", size);
    }
    return desk_lay_welcome(link->desk, link->job, link->config->rank == 0 ? NULL : bytes, size);
}

static enum status hear_abort(struct control_link *link)
{
    struct control_cause cause;

    TRY(control_cause_get(link->view, &cause));
    link->farewell_heard = true;
    (void)desk_abort(link->desk, &cause, false);
    return STATUS_OK;
}

static enum status hear_letter(struct control_link *link, const struct wire_letter *letter)
{
    struct control_head head;
    int64_t come_ns = link->probe.awaited ? control_link_now(link) : 0;

    TRY(message_view_open(link->view, letter->body, letter->size, "rank 0"));
    TRY(control_head_get(link->view, &head));
    if (link->job == 0) {
        link->job = head.job;
    }
    if (head.job != link->job ||
        (head.version != CONTROL_VERSION && head.kind != CONTROL_KIND_ABORT)) {
        return status_note(STATUS_ERR_FORMAT, "rank 0 speaks for another job");
    }
    switch (head.kind) {
    case CONTROL_KIND_HEARTBEAT:
        return control_place_get(link->view, &link->host);
    case CONTROL_KIND_WELCOME:
        return hear_welcome(link);
    case CONTROL_KIND_ANSWER:
        return desk_lay_answer(link->desk, link->view);
    case CONTROL_KIND_CLOCK:
        return control_link_hear_clock(link, come_ns);
    case CONTROL_KIND_ABORT:
        return hear_abort(link);
    case CONTROL_KIND_BYE:
        link->farewell_heard = true;
        return STATUS_OK;
    default:
        return status_note(STATUS_ERR_FORMAT, "rank 0 sends what only a rank may send");
    }
}

static enum status hear_all(struct control_link *link, int64_t now_ns)
{
    for (;;) {
        struct wire_letter letter;
        enum status status = wire_receive(link->wire, &letter);

        if (status != STATUS_OK) {
            return status < 0 ? status : STATUS_OK;
        }
        if (!letter.whole) {
            return status_note(STATUS_ERR_FORMAT, "rank 0 sends a letter of several parts");
        }
        link->heard_ns = now_ns;
        TRY(hear_letter(link, &letter));
    }
}

/* Whether rank 0 is gone, or never came. */
static void judge_rank_zero(struct control_link *link, bool lost, int64_t now_ns)
{
    int64_t away_ns = now_ns - link->turned_ns;
    double dead_after_ns = link->config->dead_after_s * (double)CLOCK_SECOND;

    link->turned_ns = now_ns;
    if ((double)away_ns > dead_after_ns / 2) {
        link->heard_ns = now_ns; /* this process was away: nobody could be heard */
    }
    if (link->config->rank == 0 || link->farewell_heard || desk_is_aborted(link->desk)) {
        return;
    }
    if (lost) {
        abort_for_rank_zero(link, "its connection is gone", 0.0);
    } else if (link->job != 0 && (double)(now_ns - link->heard_ns) > dead_after_ns) {
        abort_for_rank_zero(link, "no sign of life",
                            (double)(now_ns - link->heard_ns) / (double)CLOCK_SECOND);
    } else if (link->job == 0 && (double)(now_ns - link->opened_ns) >
                                     link->config->start_timeout_s * (double)CLOCK_SECOND) {
        struct control_cause cause = {.status = STATUS_ERR_TIMEOUT, .rank = 0};

        (void)snprintf(cause.text, sizeof(cause.text),
                       "rank %d: rank 0 did not answer at '%s' within %.1f s",
                       (int)link->config->rank, link->path, link->config->start_timeout_s);
        (void)desk_abort(link->desk, &cause, false);
    }
}

/* A main thread that waits for its device does not stand still while that goes on. */
static void look_at_device(struct control_link *link, struct control_beat *beat, int64_t now_ns)
{
    const struct control_config *config = link->config;
    struct control_progress *progress = &beat->progress;

    progress->device = CONTROL_NO_DEVICE;
    if (config->look == NULL) {
        return;
    }
    config->look(config->context, progress);
    if (progress->device != link->device || progress->inside != link->inside) {
        link->device = progress->device;
        link->inside = progress->inside;
        link->device_ns = now_ns;
    }
    if (now_ns - link->device_ns < beat->still_ns) {
        beat->still_ns = now_ns - link->device_ns;
    }
}

static enum status send_orders(struct control_link *link, const struct desk_orders *orders,
                               int64_t now_ns)
{
    enum status status = STATUS_OK;

    if (link->job == 0) {
        return STATUS_OK; /* nobody there yet who could take them */
    }
    if (orders->stop_signal != 0 && !link->stop_sent) {
        control_link_begin(link, CONTROL_KIND_STOP);
        message_put_int(link->pack, "signal", orders->stop_signal);
        status = control_link_send(link);
        link->stop_sent = status == STATUS_OK;
    }
    if (status >= 0 && orders->part != NULL && !orders->aborted) {
        status = wire_send(link->wire, NULL, orders->part, orders->part_bytes);
        if (status == STATUS_OK) {
            desk_mark_sent(link->desk);
        }
    }
    if (status >= 0 && orders->clock_asked != link->probe_asked) {
        control_link_ask_clock(link, orders->clock_asked);
    }
    if (status >= 0 && !orders->aborted) {
        status = control_link_ping(link);
    }
    if (status >= 0 && now_ns >= link->next_beat_ns) {
        struct control_beat beat = orders->beat;

        look_at_device(link, &beat, now_ns);
        control_link_begin(link, CONTROL_KIND_HEARTBEAT);
        control_beat_put(link->pack, &beat);
        status = control_link_send(link);
        link->next_beat_ns = now_ns + (int64_t)(link->config->heartbeat_s * (double)CLOCK_SECOND);
    }
    if (status >= 0 && link->farewell_ns == 0 && orders->aborted && orders->abort_is_own) {
        control_link_begin(link, CONTROL_KIND_ABORT);
        control_cause_put(link->pack, &orders->cause);
        status = control_link_send(link);
        link->farewell_ns = now_ns;
    } else if (status >= 0 && link->farewell_ns == 0 && orders->closing && !orders->aborted) {
        control_link_begin(link, CONTROL_KIND_BYE);
        status = control_link_send(link);
        link->farewell_ns = now_ns;
    }
    return status;
}

/* Whether this thread has nothing more to do once the main thread wants to leave. */
static bool may_end(const struct control_link *link, const struct desk_orders *orders,
                    int64_t now_ns)
{
    if (!orders->closing) {
        return false;
    }
    if (link->coordinator != NULL) {
        /* A cancel that is no abort is the user's: do not wait for the others any longer. */
        return coordinator_is_done(link->coordinator, now_ns) ||
               (!orders->aborted && cancel_requested(link->config->cancel));
    }
    if (link->job == 0 || link->farewell_heard || (orders->aborted && !orders->abort_is_own)) {
        return true;
    }
    return link->farewell_ns != 0 && now_ns - link->farewell_ns > FAREWELL_NS;
}

static enum status turn(struct control_link *link, struct desk_orders *orders)
{
    int64_t now_ns = clock_now_ns();

    desk_take_orders(link->desk, orders);
    TRY(send_orders(link, orders, now_ns));
    if (link->coordinator != NULL) {
        TRY(coordinator_serve(link->coordinator, now_ns));
    }
    /* Asked before the letters are taken: what came before the connection went is here already,
     * and counts. */
    bool lost = wire_lost(link->wire);

    TRY(hear_all(link, now_ns));
    judge_rank_zero(link, lost, now_ns);
    return STATUS_OK;
}

static enum status await(struct control_link *link, const struct desk_orders *orders)
{
    struct wire_item items[4] = {{.wire = link->wire}, {.fd = link->desk->wake_fd}};
    int32_t count = 2;
    int64_t now_ns = clock_now_ns();
    int64_t due_ns =
        orders->closing || orders->aborted ? now_ns + CANCEL_POLL_NS : link->next_beat_ns;

    if (link->job == 0 || link->probe.left > 0) {
        due_ns = now_ns + CANCEL_POLL_NS;
    }
    if (link->coordinator != NULL) {
        coordinator_items(link->coordinator, items + count);
        count += 2;
        due_ns = coordinator_due_ns(link->coordinator) < due_ns
                     ? coordinator_due_ns(link->coordinator)
                     : due_ns;
    }
    return wire_poll(items, count, due_ns > now_ns ? due_ns - now_ns : 0);
}

/* Once, when the job is over. */
static void call_on_abort(struct control_link *link)
{
    if (desk_is_aborted(link->desk) && !link->abort_called) {
        link->abort_called = true;
        if (link->config->on_abort != NULL) {
            link->config->on_abort(link->config->context);
        }
    }
}

static void *run(void *argument)
{
    struct control_link *link = argument;
    struct desk_orders orders = {.part = NULL};
    enum status status = open_wires(link);

    link->opened_ns = clock_now_ns();
    link->heard_ns = link->opened_ns;
    link->turned_ns = link->opened_ns;
    if (status == STATUS_OK) {
        status = say_hello(link);
    }
    while (status >= 0) {
        status = turn(link, &orders);
        if (status < 0) {
            break;
        }
        call_on_abort(link);
        if (may_end(link, &orders, clock_now_ns())) {
            break;
        }
        status = await(link, &orders);
    }
    if (status < 0) {
        abort_own(link, status);
        call_on_abort(link);
    }
    close_wires(link);
    return NULL;
}

enum status control_link_start(const struct control_config *config, struct desk *desk,
                               struct control_link **link_out)
{
    struct control_link *link = calloc(1, sizeof(*link));
    sigset_t all;
    sigset_t before;

    if (link == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "control: %zu bytes", sizeof(*link));
    }
    link->config = config;
    link->desk = desk;
    int bytes =
        snprintf(link->path, sizeof(link->path), "%s/%s", config->job_directory, SOCKET_NAME);

    if (bytes < 0 || bytes > WIRE_PATH_MOST) {
        free(link);
        return status_fail(STATUS_ERR_REFUSED,
                           "control: the path '%s/%s' has %d bytes, a socket's may have %d",
                           config->job_directory, SOCKET_NAME, bytes, WIRE_PATH_MOST);
    }
    (void)snprintf(link->endpoint, sizeof(link->endpoint), "ipc://%s", link->path);
    /* Signals are for the main thread; the threads of ZeroMQ inherit this, too. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&link->thread, NULL, run, link);

    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        free(link);
        return status_fail(STATUS_ERR_IO, "control: cannot start a thread: %s", strerror(code));
    }
    *link_out = link;
    return STATUS_OK;
}

void control_link_join(struct control_link **link)
{
    if (*link != NULL) {
        (void)pthread_join((*link)->thread, NULL);
        free(*link);
        *link = NULL;
    }
}
