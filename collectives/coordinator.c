#include "collectives/coordinator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "collectives/coordinator_state.h"

#define LETTERS_MOST      16 /* that wait for one rank, or from one: bounds what a stranger may fill */
#define LAST_WORDS_NS     (100 * CLOCK_MS)
#define LATE_COMERS_NS    (2 * CLOCK_SECOND) /* a refused start stays to refuse those still coming */
#define GOODBYE_LINGER_MS 1000
#define LETTERS_AT_ONCE   4096 /* before deaths are judged, whatever floods in */

static int64_t to_ns(double seconds)
{
    return seconds < 0.0 ? CLOCK_NEVER : (int64_t)(seconds * (double)CLOCK_SECOND);
}

static enum status draw_job(uint64_t *job_out)
{
    uint64_t job = 0;

    if (getrandom(&job, sizeof(job), 0) != (ssize_t)sizeof(job)) {
        return status_fail(STATUS_ERR_IO, "cannot draw the job's number");
    }
    *job_out = job | 1U;
    return STATUS_OK;
}

/* Makes what the coordinator owns; what is made when a part fails is released by the close. */
static enum status make_parts(struct coordinator *coordinator, int32_t world)
{
    TRY(draw_job(&coordinator->job));
    TRY(roster_init(&coordinator->roster, world));
    TRY(round_create(world, &coordinator->round));
    TRY(process_watch_open(world, &coordinator->watch));
    TRY(message_pack_create(&coordinator->pack));
    return message_view_create(&coordinator->view);
}

static enum status open_wire(struct coordinator *coordinator, struct wire_hub *hub,
                             const char *endpoint)
{
    const struct wire_config wire = {.kind = WIRE_ROUTER,
                                     .name = "",
                                     .most_bytes = MESSAGE_MOST_BYTES,
                                     .most_letters = LETTERS_MOST};

    TRY(wire_open(hub, &wire, &coordinator->wire));
    TRY(wire_bind(coordinator->wire, endpoint));
    return wire_bind(coordinator->wire, COORDINATOR_LOCAL_ENDPOINT);
}

enum status coordinator_open(struct wire_hub *hub, const struct control_config *config,
                             const char *endpoint, struct coordinator **coordinator_out)
{
    struct coordinator *coordinator = calloc(1, sizeof(*coordinator));
    enum status status = STATUS_OK;

    if (coordinator == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "coordinator: %zu bytes", sizeof(*coordinator));
    }
    coordinator->config = config;
    coordinator->start_deadline_ns = clock_deadline(config->start_timeout_s);
    coordinator->beat_ns = to_ns(config->heartbeat_s);
    coordinator->limits = (struct roster_limits){.dead_after_ns = to_ns(config->dead_after_s),
                                                 .last_words_ns = LAST_WORDS_NS,
                                                 .describe = config->describe,
                                                 .context = config->context};
    control_place_here(&coordinator->place);
    TRY_OR(fail, status, make_parts(coordinator, config->world));
    TRY_OR(fail, status, open_wire(coordinator, hub, endpoint));
    *coordinator_out = coordinator;
    return STATUS_OK;

fail:
    coordinator_close(&coordinator);
    return status;
}

void coordinator_close(struct coordinator **coordinator)
{
    struct coordinator *gone = *coordinator;

    if (gone == NULL) {
        return;
    }
    wire_close(&gone->wire, GOODBYE_LINGER_MS);
    message_view_destroy(&gone->view);
    message_pack_destroy(&gone->pack);
    process_watch_close(&gone->watch);
    round_destroy(&gone->round);
    roster_release(&gone->roster);
    free(gone);
    *coordinator = NULL;
}

void coordinator_items(const struct coordinator *coordinator, struct wire_item *items)
{
    items[0] = (struct wire_item){.wire = coordinator->wire};
    items[1] = (struct wire_item){.fd = process_watch_fd(coordinator->watch)};
}

int64_t coordinator_due_ns(const struct coordinator *coordinator)
{
    int64_t due_ns = coordinator->next_beat_ns;

    for (int32_t rank = 0; rank < coordinator->roster.world; rank++) {
        const struct member *member = &coordinator->roster.members[rank];

        if (member->state == MEMBER_PRESENT && member->ended_ns != 0 &&
            member->ended_ns + LAST_WORDS_NS < due_ns) {
            due_ns = member->ended_ns + LAST_WORDS_NS;
        }
    }
    return due_ns;
}

bool coordinator_is_done(const struct coordinator *coordinator, int64_t now_ns)
{
    const struct roster *roster = &coordinator->roster;

    if (!coordinator->aborted) {
        return roster_count(roster, MEMBER_ABSENT) + roster_count(roster, MEMBER_PRESENT) == 0;
    }
    return coordinator->started || coordinator->cause.status != STATUS_ERR_REFUSED ||
           roster_count(roster, MEMBER_ABSENT) == 0 ||
           now_ns - coordinator->aborted_ns > LATE_COMERS_NS;
}

enum status coordinator_send(struct coordinator *coordinator, const struct wire_name *route,
                             struct member *member)
{
    const void *bytes = NULL;
    size_t size = 0;

    TRY(message_pack_end(coordinator->pack, &bytes, &size));
    enum status status = wire_send(coordinator->wire, route, bytes, size);

    if (status == STATUS_ERR_PEER && member != NULL && member->state == MEMBER_PRESENT) {
        member->cut = true;
    }
    return status == STATUS_ERR_PEER || status > 0 ? STATUS_OK : status;
}

enum status coordinator_send_to_all(struct coordinator *coordinator)
{
    enum status status = STATUS_OK;

    for (int32_t rank = 0; rank < coordinator->roster.world && status >= 0; rank++) {
        struct member *member = &coordinator->roster.members[rank];

        if (member->state == MEMBER_PRESENT) {
            status = coordinator_send(coordinator, &member->route, member);
        }
    }
    return status;
}

void coordinator_begin(struct coordinator *coordinator, enum control_kind kind)
{
    control_head_put(coordinator->pack, kind, coordinator->job, 0);
}

enum status coordinator_abort(struct coordinator *coordinator, const struct control_cause *cause)
{
    if (coordinator->aborted) {
        return STATUS_OK;
    }
    coordinator->aborted = true;
    coordinator->aborted_ns = clock_now_ns();
    coordinator->cause = *cause;
    coordinator_begin(coordinator, CONTROL_KIND_ABORT);
    control_cause_put(coordinator->pack, &coordinator->cause);
    return coordinator_send_to_all(coordinator);
}

static enum status receive_all(struct coordinator *coordinator, int64_t now_ns)
{
    struct wire_letter letter;

    for (int32_t i = 0; i < LETTERS_AT_ONCE; i++) {
        enum status status = wire_receive(coordinator->wire, &letter);

        if (status != STATUS_OK) {
            return status < 0 ? status : STATUS_OK;
        }
        TRY(coordinator_on_letter(coordinator, &letter, now_ns));
    }
    return STATUS_OK;
}

static enum status judge(struct coordinator *coordinator, int64_t now_ns)
{
    struct control_cause cause;
    struct roster_limits limits = coordinator->limits;
    char absent[CONTROL_TEXT_BYTES / 2];
    double stall_after_s = 0.0;

    if (coordinator->aborted) {
        return STATUS_OK;
    }
    /* The main thread may change it at any time. */
    __atomic_load(&coordinator->config->stall_after_s, &stall_after_s, __ATOMIC_RELAXED);
    limits.stall_after_ns = to_ns(stall_after_s);
    if (!coordinator->started) {
        limits.stall_after_ns = CLOCK_NEVER; /* who waits for others to come does not hang */
    }
    memset(&cause, 0, sizeof(cause));
    if (roster_judge(&coordinator->roster, &limits, now_ns, &cause)) {
        return coordinator_abort(coordinator, &cause);
    }
    if (!coordinator->started && now_ns > coordinator->start_deadline_ns) {
        cause.status = STATUS_ERR_TIMEOUT;
        cause.rank = -1;
        roster_name_absent(&coordinator->roster, absent, sizeof(absent));
        (void)snprintf(cause.text, sizeof(cause.text), "%s of %d did not come within %.1f s",
                       absent, (int)coordinator->roster.world,
                       coordinator->config->start_timeout_s);
        return coordinator_abort(coordinator, &cause);
    }
    return STATUS_OK;
}

enum status coordinator_serve(struct coordinator *coordinator, int64_t now_ns)
{
    int32_t rank = -1;
    int64_t away_ns = coordinator->served_ns == 0 ? 0 : now_ns - coordinator->served_ns;

    coordinator->served_ns = now_ns;
    TRY(receive_all(coordinator, now_ns));
    if (away_ns > coordinator->limits.dead_after_ns / 2) {
        roster_forgive(&coordinator->roster, now_ns);
    }
    while (process_watch_next(coordinator->watch, &rank)) {
        coordinator->roster.members[rank].ended_ns = now_ns;
    }
    TRY(judge(coordinator, now_ns));
    if (now_ns >= coordinator->next_beat_ns) {
        coordinator->next_beat_ns = now_ns + coordinator->beat_ns;
        coordinator_begin(coordinator, CONTROL_KIND_HEARTBEAT);
        control_place_put(coordinator->pack, &coordinator->place);
        return coordinator_send_to_all(coordinator);
    }
    return STATUS_OK;
}
