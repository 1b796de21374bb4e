#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "collectives/coordinator_state.h"

#define STRANGERS_EVERY_NS (10 * CLOCK_SECOND)

static enum status refuse(struct coordinator *coordinator, const struct wire_name *route,
                          const struct control_cause *cause)
{
    coordinator_begin(coordinator, CONTROL_KIND_ABORT);
    control_cause_put(coordinator->pack, cause);
    return coordinator_send(coordinator, route, NULL);
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
        coordinator->roster.members[rank].beat_ns = now_ns;
        coordinator->roster.members[rank].changed_ns = now_ns;
    }
    coordinator_begin(coordinator, CONTROL_KIND_WELCOME);
    control_place_put(coordinator->pack, &coordinator->place);
    message_put_bytes(coordinator->pack, "welcome", coordinator->config->welcome,
                      coordinator->config->welcome_bytes);
    return coordinator_send_to_all(coordinator);
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
    coordinator_begin(coordinator, CONTROL_KIND_HEARTBEAT);
    control_place_put(coordinator->pack, &coordinator->place);
    TRY(coordinator_send(coordinator, from, member));
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
    (void)snprintf(cause.text, sizeof(cause.text),
                   "rank %d (%s, process %" PRId64 ") is refused: %s", (int)head->rank, place->host,
                   place->pid, why);
    TRY(refuse(coordinator, from, &cause));
    /* Once the job runs, a newcomer is somebody else's, and its refusal is its own affair. */
    if (coordinator->started) {
        return STATUS_OK;
    }
    if (head->rank >= 0 && head->rank < coordinator->roster.world) {
        coordinator->roster.members[head->rank].state = MEMBER_TOLD;
    }
    return coordinator_abort(coordinator, &cause);
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
    return coordinator_abort(coordinator, &cause);
}

static enum status answer_round(struct coordinator *coordinator)
{
    const struct round_slot *slot = round_slot_of(coordinator->round, 0);
    struct control_outcome outcome;
    struct round_result result;

    memset(&outcome, 0, sizeof(outcome));
    memcpy(outcome.name, slot->name, sizeof(outcome.name));
    outcome.number = slot->number;
    round_reduce(coordinator->round, &result);
    outcome.status = result.status;
    outcome.stop_signal = coordinator->stop_signal;
    outcome.note_rank = result.note_rank;
    memcpy(outcome.text, result.text, sizeof(outcome.text));
    memcpy(outcome.note, result.note, sizeof(outcome.note));
    coordinator_begin(coordinator, CONTROL_KIND_ANSWER);
    control_outcome_put(coordinator->pack, &outcome, result.numbers, result.key_count);
    return coordinator_send_to_all(coordinator);
}

/* Where a rank has left, a round that others wait in can never be answered. */
static enum status check_round(struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;
    char text[CONTROL_TEXT_BYTES];
    char name[CONTROL_TEXT_BYTES / 4];
    int32_t first = -1;
    int32_t given = round_given(coordinator->round, &first);

    if (given == roster->world) {
        return answer_round(coordinator);
    }
    for (int32_t rank = 0; given > 0 && rank < roster->world; rank++) {
        if (roster->members[rank].state == MEMBER_LEFT) {
            const struct round_slot *slot = round_slot_of(coordinator->round, first);

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
    coordinator_begin(coordinator, CONTROL_KIND_BYE);
    TRY(coordinator_send(coordinator, &member->route, NULL));
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
    member->beat_ns = now_ns;
    /* Never older than the welcome: before it nobody had anything to do. */
    if (now_ns - beat.still_ns > member->changed_ns) {
        member->changed_ns = now_ns - beat.still_ns;
    }
    return STATUS_OK;
}

/* Nothing of it is kept: who asked knows when. */
static enum status on_clock(struct coordinator *coordinator, struct member *member)
{
    struct control_pong pong = {.heard_ns = clock_now_ns()};

    TRY(control_ping_get(coordinator->view, &pong.number));
    coordinator_begin(coordinator, CONTROL_KIND_CLOCK);
    pong.said_ns = clock_now_ns();
    control_pong_put(coordinator->pack, &pong);
    return coordinator_send(coordinator, &member->route, member);
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
        member->in_round = true;
        return check_round(coordinator);
    case CONTROL_KIND_CLOCK:
        return on_clock(coordinator, member);
    case CONTROL_KIND_STOP:
        return on_stop(coordinator);
    case CONTROL_KIND_ABORT:
        TRY(control_cause_get(coordinator->view, &cause));
        return coordinator_abort(coordinator, &cause);
    case CONTROL_KIND_BYE:
        return on_bye(coordinator, head->rank);
    default:
        return status_note(STATUS_ERR_FORMAT, "rank %d sends what only rank 0 may send",
                           (int)head->rank);
    }
}

/* Whether the letter comes from the member that it names, and belongs to this job. */
static bool speaks_for(const struct coordinator *coordinator, const struct wire_name *from,
                       const struct control_head *head)
{
    return head->rank >= 0 && head->rank < coordinator->roster.world &&
           head->job == coordinator->job && head->version == CONTROL_VERSION &&
           roster_is_route(&coordinator->roster.members[head->rank], from);
}

/* Reads and does what a letter asks for; STATUS_ERR_FORMAT, noted, where it cannot be. */
static enum status heed(struct coordinator *coordinator, const struct wire_letter *letter,
                        int64_t now_ns)
{
    struct control_head head;

    if (!letter->whole) {
        return status_note(STATUS_ERR_FORMAT, "a letter of a wrong number of parts");
    }
    TRY(message_view_open(coordinator->view, letter->body, letter->size, "a peer"));
    TRY(control_head_get(coordinator->view, &head));
    if (speaks_for(coordinator, &letter->from, &head)) {
        return on_member(coordinator, &head, now_ns);
    }
    if (head.kind != CONTROL_KIND_HELLO ||
        roster_find_route(&coordinator->roster, &letter->from) != NULL) {
        return status_note(STATUS_ERR_FORMAT, "a message of another job or for another rank");
    }
    return head.version == CONTROL_VERSION ? on_hello(coordinator, &letter->from, &head, now_ns)
                                           : refuse_version(coordinator, &letter->from, &head);
}

enum status coordinator_on_letter(struct coordinator *coordinator, const struct wire_letter *letter,
                                  int64_t now_ns)
{
    enum status status = heed(coordinator, letter, now_ns);

    if (status != STATUS_ERR_FORMAT) {
        return status;
    }
    const struct member *sender = roster_find_route(&coordinator->roster, &letter->from);

    if (sender == NULL) {
        drop_stranger(coordinator, status_last()->message, now_ns);
        return STATUS_OK;
    }
    return abort_for(coordinator, (int32_t)(sender - coordinator->roster.members), status,
                     status_last()->message);
}
