#include "collectives/coordinator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "collectives/control_message.h"
#include "collectives/message.h"
#include "collectives/process_watch.h"
#include "collectives/roster.h"
#include "collectives/round.h"
#include "collectives/wire.h"

#define LETTERS_MOST        64 /* that wait for one rank, or from one; 64 MiB of a stranger at most */
#define LAST_WORDS_NS       (100 * CLOCK_MS)
#define LATE_COMERS_NS      (2 * CLOCK_SECOND) /* a refused start stays to refuse those still coming */
#define STRANGERS_EVERY_NS  (10 * CLOCK_SECOND)
#define GOODBYE_LINGER_MS   1000
#define LETTERS_AT_ONCE     4096 /* before deaths are judged, whatever floods in */

struct coordinator {
    const struct control_config *config;
    struct wire *wire;
    struct message_pack *pack;
    struct message_view *view;
    struct roster roster;
    struct round *round;
    struct process_watch *watch;
    struct control_place place; /* of this process */
    struct roster_limits limits;
    uint64_t job; /* drawn; never 0 */
    int64_t start_deadline_ns;
    int64_t beat_ns;      /* between beats */
    int64_t next_beat_ns; /* when all are told that rank 0 lives */
    int64_t served_ns;    /* when this last ran; 0: never */
    bool started;         /* all were welcomed */
    bool aborted;
    int64_t aborted_ns;
    struct control_cause cause;
    int32_t stop_signal;
    uint64_t strangers; /* letters dropped since the last warning */
    int64_t next_warning_ns;
};

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

enum status coordinator_open(struct wire_hub *hub, const struct control_config *config,
                             const char *endpoint, struct coordinator **coordinator_out)
{
    const struct wire_config wire = {.kind = WIRE_ROUTER,
                                     .name = "",
                                     .most_bytes = MESSAGE_MOST_BYTES,
                                     .most_letters = LETTERS_MOST};
    struct coordinator *coordinator = calloc(1, sizeof(*coordinator));
    enum status status = STATUS_OK;

    if (coordinator == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "coordinator: %zu bytes", sizeof(*coordinator));
    }
    coordinator->config = config;
    coordinator->start_deadline_ns = clock_deadline(config->start_timeout_s);
    coordinator->beat_ns = to_ns(config->heartbeat_s);
    coordinator->limits = (struct roster_limits){.dead_after_ns = to_ns(config->dead_after_s),
                                                 .stall_after_ns = to_ns(config->stall_after_s),
                                                 .last_words_ns = LAST_WORDS_NS,
                                                 .describe = config->describe,
                                                 .context = config->context};
    control_place_here(&coordinator->place);
    TRY_OR(fail, status, draw_job(&coordinator->job));
    TRY_OR(fail, status, roster_init(&coordinator->roster, config->world));
    TRY_OR(fail, status, round_create(config->world, &coordinator->round));
    TRY_OR(fail, status, process_watch_open(config->world, &coordinator->watch));
    TRY_OR(fail, status, message_pack_create(&coordinator->pack));
    TRY_OR(fail, status, message_view_create(&coordinator->view));
    TRY_OR(fail, status, wire_open(hub, &wire, &coordinator->wire));
    TRY_OR(fail, status, wire_bind(coordinator->wire, endpoint));
    TRY_OR(fail, status, wire_bind(coordinator->wire, COORDINATOR_LOCAL_ENDPOINT));
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

/* Sends the pack to one route. Who cannot be reached is lost where it is a member; a full queue
 * belongs to a member that does not read, which its silence will tell. */
static enum status send_to(struct coordinator *coordinator, const struct wire_name *route,
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

static enum status send_to_all(struct coordinator *coordinator)
{
    for (int32_t rank = 0; rank < coordinator->roster.world; rank++) {
        struct member *member = &coordinator->roster.members[rank];

        if (member->state == MEMBER_PRESENT) {
            TRY(send_to(coordinator, &member->route, member));
        }
    }
    return STATUS_OK;
}

static void begin(struct coordinator *coordinator, enum control_kind kind)
{
    control_head_put(coordinator->pack, kind, coordinator->job, 0);
}

/* The first cause wins; all that are here are told. */
static enum status abort_job(struct coordinator *coordinator, const struct control_cause *cause)
{
    if (coordinator->aborted) {
        return STATUS_OK;
    }
    coordinator->aborted = true;
    coordinator->aborted_ns = clock_now_ns();
    coordinator->cause = *cause;
    begin(coordinator, CONTROL_KIND_ABORT);
    control_cause_put(coordinator->pack, &coordinator->cause);
    return send_to_all(coordinator);
}

static enum status refuse(struct coordinator *coordinator, const struct wire_name *route,
                          const struct control_cause *cause)
{
    begin(coordinator, CONTROL_KIND_ABORT);
    control_cause_put(coordinator->pack, cause);
    return send_to(coordinator, route, NULL);
}

static void drop_stranger(struct coordinator *coordinator, const char *why, int64_t now_ns)
{
    coordinator->strangers++;
    if (now_ns >= coordinator->next_warning_ns) {
        log_warn("control plane: dropped %" PRIu64 " messages of strangers; the last: %s",
                 coordinator->strangers, why);
        coordinator->strangers = 0;
        coordinator->next_warning_ns = now_ns + STRANGERS_EVERY_NS;
    }
}

/* Whether the newcomer is what rank 0 is; else why not. */
static bool agrees(const struct control_config *own, const struct control_head *head,
                   const struct control_hello *hello, char *why, size_t why_bytes)
{
    why[0] = '\0';
    if (head->rank < 0 || head->rank >= own->world || hello->world != own->world) {
        (void)snprintf(why, why_bytes, "it is rank %d of %d, rank 0 has a world of %d",
                       (int)head->rank, (int)hello->world, (int)own->world);
    } else if (hello->config_hash != own->config_hash) {
        (void)snprintf(why, why_bytes,
                       "its configuration has hash %016" PRIx64 ", rank 0's has %016" PRIx64
                       "; start all ranks with the same configuration",
                       hello->config_hash, own->config_hash);
    } else if (strcmp(hello->variant, own->variant) != 0) {
        (void)snprintf(why, why_bytes, "its kernel variant is '%s', rank 0's is '%s'",
                       hello->variant, own->variant);
    }
    return why[0] == '\0';
}

static enum status welcome_all(struct coordinator *coordinator, int64_t now_ns)
{
    coordinator->started = true;
    for (int32_t rank = 0; rank < coordinator->roster.world; rank++) {
        coordinator->roster.members[rank].changed_ns = now_ns;
    }
    begin(coordinator, CONTROL_KIND_WELCOME);
    control_place_put(coordinator->pack, &coordinator->place);
    message_put_bytes(coordinator->pack, "welcome", coordinator->config->welcome,
                      coordinator->config->welcome_bytes);
    return send_to_all(coordinator);
}

/* The rank is who it should be and the first to say so. */
static enum status accept(struct coordinator *coordinator, const struct wire_name *from,
                          int32_t rank, const struct control_hello *hello, int64_t now_ns)
{
    struct member *member = &coordinator->roster.members[rank];

    member->state = MEMBER_PRESENT;
    member->route = *from;
    member->place = hello->place;
    member->heard_ns = now_ns;
    if (hello->place.space == coordinator->place.space && hello->place.space != 0 &&
        strcmp(hello->place.host, coordinator->place.host) == 0) {
        process_watch_add(coordinator->watch, rank, hello->place.pid);
    }
    begin(coordinator, CONTROL_KIND_HEARTBEAT);
    control_place_put(coordinator->pack, &coordinator->place);
    TRY(send_to(coordinator, from, member));
    if (roster_count(&coordinator->roster, MEMBER_PRESENT) == coordinator->roster.world) {
        return welcome_all(coordinator, now_ns);
    }
    return STATUS_OK;
}

static enum status refuse_newcomer(struct coordinator *coordinator, const struct wire_name *from,
                                   const struct control_head *head,
                                   const struct control_place *place, const char *why)
{
    struct control_cause cause = {.status = STATUS_ERR_REFUSED, .rank = head->rank};

    if (cause.rank < 0) {
        cause.rank = -1;
    }
    (void)snprintf(cause.text, sizeof(cause.text), "rank %d (%s, process %" PRId64 ") is refused: %s",
                   (int)head->rank, place->host, place->pid, why);
    TRY(refuse(coordinator, from, &cause));
    /* Once the job runs, a newcomer is somebody else's, and its refusal is its own affair. */
    if (coordinator->started) {
        return STATUS_OK;
    }
    if (head->rank >= 0 && head->rank < coordinator->roster.world) {
        coordinator->roster.members[head->rank].state = MEMBER_TOLD;
    }
    return abort_job(coordinator, &cause);
}

static enum status on_hello(struct coordinator *coordinator, const struct wire_name *from,
                            const struct control_head *head, int64_t now_ns)
{
    struct control_hello hello;
    char why[CONTROL_TEXT_BYTES / 2];
    bool known = head->rank >= 0 && head->rank < coordinator->roster.world;

    if (control_hello_get(coordinator->view, &hello) < 0) {
        drop_stranger(coordinator, status_last()->message, now_ns);
        return STATUS_OK;
    }
    if (known && coordinator->roster.members[head->rank].state != MEMBER_ABSENT) {
        const struct control_place *holder = &coordinator->roster.members[head->rank].place;
        struct control_cause cause = {.status = STATUS_ERR_REFUSED, .rank = head->rank};

        (void)snprintf(cause.text, sizeof(cause.text),
                       "rank %d (%s, process %" PRId64 ") is refused: process %" PRId64
                       " is rank %d already; is another job of the same name running?",
                       (int)head->rank, hello.place.host, hello.place.pid, holder->pid,
                       (int)head->rank);
        return refuse(coordinator, from, &cause);
    }
    if (coordinator->aborted) {
        if (known) {
            coordinator->roster.members[head->rank].state = MEMBER_TOLD;
        }
        return refuse(coordinator, from, &coordinator->cause);
    }
    if (!agrees(coordinator->config, head, &hello, why, sizeof(why))) {
        return refuse_newcomer(coordinator, from, head, &hello.place, why);
    }
    return accept(coordinator, from, head->rank, &hello, now_ns);
}

/* Another version says HELLO: its other fields may mean anything. */
static enum status refuse_version(struct coordinator *coordinator, const struct wire_name *from,
                                  const struct control_head *head)
{
    const struct control_place nowhere = {.host = "?"};
    char why[CONTROL_TEXT_BYTES / 2];

    (void)snprintf(why, sizeof(why), "it speaks version %" PRId64 ", rank 0 version %d",
                   head->version, CONTROL_VERSION);
    return refuse_newcomer(coordinator, from, head, &nowhere, why);
}

static enum status abort_for(struct coordinator *coordinator, int32_t rank, enum status status,
                             const char *text)
{
    struct control_cause cause = {.status = status, .rank = rank};

    (void)snprintf(cause.text, sizeof(cause.text), "%s", text);
    return abort_job(coordinator, &cause);
}

static enum status answer_round(struct coordinator *coordinator)
{
    const struct round_slot *slot = NULL;
    struct control_outcome outcome;
    struct round_result result;

    memset(&outcome, 0, sizeof(outcome));
    TRY(round_open_slot(coordinator->round, 0, 0, (struct round_slot **)&slot));
    memcpy(outcome.name, slot->name, sizeof(outcome.name));
    outcome.number = slot->number;
    round_reduce(coordinator->round, &result);
    outcome.status = result.status;
    outcome.stop_signal = coordinator->stop_signal;
    outcome.note_rank = result.note_rank;
    memcpy(outcome.text, result.text, sizeof(outcome.text));
    memcpy(outcome.note, result.note, sizeof(outcome.note));
    begin(coordinator, CONTROL_KIND_ANSWER);
    control_outcome_put(coordinator->pack, &outcome, result.numbers, result.key_count);
    return send_to_all(coordinator);
}

/* Where a rank has left, a round that others wait in can never be answered. */
static enum status check_round(struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;
    const struct round_slot *slot = NULL;
    char text[CONTROL_TEXT_BYTES];
    char name[CONTROL_TEXT_BYTES / 4];
    int32_t first = -1;
    int32_t given = round_given(coordinator->round, &first);

    if (given == roster->world) {
        return answer_round(coordinator);
    }
    for (int32_t rank = 0; given > 0 && rank < roster->world; rank++) {
        if (roster->members[rank].state == MEMBER_LEFT) {
            TRY(round_open_slot(coordinator->round, first, 0, (struct round_slot **)&slot));
            roster_name(roster, rank, name, sizeof(name));
            (void)snprintf(text, sizeof(text), "%s left while rank %d waits in %s %" PRIu64, name,
                           (int)first, slot->name, slot->number);
            return abort_for(coordinator, rank, STATUS_ERR_PEER, text);
        }
    }
    return STATUS_OK;
}

static enum status on_bye(struct coordinator *coordinator, int32_t rank)
{
    struct member *member = &coordinator->roster.members[rank];
    char text[CONTROL_TEXT_BYTES];
    char name[CONTROL_TEXT_BYTES / 4];

    process_watch_remove(coordinator->watch, rank);
    begin(coordinator, CONTROL_KIND_BYE);
    TRY(send_to(coordinator, &member->route, NULL));
    member->state = MEMBER_LEFT;
    if (!coordinator->started && !coordinator->aborted) {
        roster_name(&coordinator->roster, rank, name, sizeof(name));
        (void)snprintf(text, sizeof(text), "%s left before all ranks had come", name);
        return abort_for(coordinator, rank, STATUS_ERR_PEER, text);
    }
    return check_round(coordinator);
}

static enum status on_stop(struct coordinator *coordinator)
{
    int64_t signal_number = 0;

    TRY(message_get_int(coordinator->view, "signal", 1, 128, &signal_number));
    if (coordinator->stop_signal == 0) {
        coordinator->stop_signal = (int32_t)signal_number;
    }
    return STATUS_OK;
}

static enum status on_beat(struct coordinator *coordinator, struct member *member, int64_t now_ns)
{
    struct control_beat beat;

    TRY(control_beat_get(coordinator->view, &beat));
    member->progress = beat.progress;
    member->in_round = beat.in_round;
    /* Never older than the welcome: before it nobody had anything to do. */
    if (now_ns - beat.still_ns > member->changed_ns) {
        member->changed_ns = now_ns - beat.still_ns;
    }
    return STATUS_OK;
}

/* A letter of a member. What it fails with is that member's fault. */
static enum status on_member(struct coordinator *coordinator, const struct control_head *head,
                             int64_t now_ns)
{
    struct member *member = &coordinator->roster.members[head->rank];
    struct control_cause cause;

    member->heard_ns = now_ns;
    switch (head->kind) {
    case CONTROL_KIND_HEARTBEAT:
        return on_beat(coordinator, member, now_ns);
    case CONTROL_KIND_ROUND:
        if (coordinator->aborted) {
            return STATUS_OK;
        }
        TRY(control_part_get(coordinator->view, head->rank, coordinator->round));
        return check_round(coordinator);
    case CONTROL_KIND_STOP:
        return on_stop(coordinator);
    case CONTROL_KIND_ABORT:
        TRY(control_cause_get(coordinator->view, &cause));
        return abort_job(coordinator, &cause);
    case CONTROL_KIND_BYE:
        return on_bye(coordinator, head->rank);
    default:
        return status_note(STATUS_ERR_FORMAT, "rank %d sends what only rank 0 may send",
                           (int)head->rank);
    }
}

static bool speaks_for(const struct coordinator *coordinator, const struct wire_name *from,
                       const struct control_head *head)
{
    if (head->rank < 0 || head->rank >= coordinator->roster.world ||
        head->job != coordinator->job || head->version != CONTROL_VERSION) {
        return false;
    }
    return roster_find_route(&coordinator->roster, from) ==
           &coordinator->roster.members[head->rank];
}

static enum status on_letter(struct coordinator *coordinator, const struct wire_letter *letter,
                             int64_t now_ns)
{
    const struct member *sender = roster_find_route(&coordinator->roster, &letter->from);
    struct control_head head;
    enum status status = STATUS_ERR_FORMAT;

    if (!letter->whole) {
        status = status_note(STATUS_ERR_FORMAT, "a letter of a wrong number of parts");
    } else if (message_view_open(coordinator->view, letter->body, letter->size,
                                 sender != NULL ? "a rank" : "a stranger") == STATUS_OK) {
        status = control_head_get(coordinator->view, &head);
    }
    if (status == STATUS_OK && head.kind == CONTROL_KIND_HELLO && sender == NULL) {
        return head.version == CONTROL_VERSION
                   ? on_hello(coordinator, &letter->from, &head, now_ns)
                   : refuse_version(coordinator, &letter->from, &head);
    }
    if (status == STATUS_OK && speaks_for(coordinator, &letter->from, &head)) {
        status = on_member(coordinator, &head, now_ns);
    } else if (status == STATUS_OK) {
        status = status_note(STATUS_ERR_FORMAT, "a message of another job or for another rank");
    }
    if (status == STATUS_OK || status != STATUS_ERR_FORMAT) {
        return status;
    }
    if (sender == NULL) {
        drop_stranger(coordinator, status_last()->message, now_ns);
        return STATUS_OK;
    }
    return abort_for(coordinator, (int32_t)(sender - coordinator->roster.members), status,
                     status_last()->message);
}

static enum status receive_all(struct coordinator *coordinator, int64_t now_ns)
{
    struct wire_letter letter;

    for (int32_t i = 0; i < LETTERS_AT_ONCE; i++) {
        enum status status = wire_receive(coordinator->wire, &letter);

        if (status != STATUS_OK) {
            return status < 0 ? status : STATUS_OK;
        }
        TRY(on_letter(coordinator, &letter, now_ns));
    }
    return STATUS_OK;
}

static enum status judge(struct coordinator *coordinator, int64_t now_ns)
{
    struct control_cause cause;
    struct roster_limits limits = coordinator->limits;
    char absent[CONTROL_TEXT_BYTES / 2];

    if (coordinator->aborted) {
        return STATUS_OK;
    }
    if (!coordinator->started) {
        limits.stall_after_ns = CLOCK_NEVER; /* who waits for others to come does not hang */
    }
    memset(&cause, 0, sizeof(cause));
    if (roster_judge(&coordinator->roster, &limits, now_ns, &cause)) {
        return abort_job(coordinator, &cause);
    }
    if (!coordinator->started && now_ns > coordinator->start_deadline_ns) {
        cause.status = STATUS_ERR_TIMEOUT;
        cause.rank = -1;
        roster_name_absent(&coordinator->roster, absent, sizeof(absent));
        (void)snprintf(cause.text, sizeof(cause.text), "%s of %d did not come within %.1f s", absent,
                       (int)coordinator->roster.world, coordinator->config->start_timeout_s);
        return abort_job(coordinator, &cause);
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
        begin(coordinator, CONTROL_KIND_HEARTBEAT);
        control_place_put(coordinator->pack, &coordinator->place);
        return send_to_all(coordinator);
    }
    return STATUS_OK;
}
