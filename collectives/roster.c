#include "collectives/roster.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define NAME_BYTES     128
#define DOING_BYTES    200
#define SECONDS(of_ns) ((double)(of_ns) / (double)CLOCK_SECOND)

enum status roster_init(struct roster *roster, int32_t world)
{
    memset(roster, 0, sizeof(*roster));
    roster->members = calloc((size_t)world, sizeof(*roster->members));
    if (roster->members == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "roster of %d ranks: %zu bytes", (int)world,
                           (size_t)world * sizeof(*roster->members));
    }
    roster->world = world;
    for (int32_t rank = 0; rank < world; rank++) {
        roster->members[rank].progress.action = -1;
        roster->members[rank].progress.device = CONTROL_NO_DEVICE;
    }
    return STATUS_OK;
}

void roster_release(struct roster *roster)
{
    free(roster->members);
    memset(roster, 0, sizeof(*roster));
}

int32_t roster_count(const struct roster *roster, enum member_state state)
{
    int32_t count = 0;

    for (int32_t rank = 0; rank < roster->world; rank++) {
        count += roster->members[rank].state == state ? 1 : 0;
    }
    return count;
}

void roster_name(const struct roster *roster, int32_t rank, char *text, size_t text_bytes)
{
    const struct control_place *place = &roster->members[rank].place;

    if (place->pid == 0) {
        (void)snprintf(text, text_bytes, "rank %d", (int)rank);
    } else {
        (void)snprintf(text, text_bytes, "rank %d (%s, process %" PRId64 ")", (int)rank,
                       place->host, place->pid);
    }
}

void roster_name_absent(const struct roster *roster, char *text, size_t text_bytes)
{
    const size_t spare = 24; /* for one more name, or the sign that there are more */
    int32_t absent = roster_count(roster, MEMBER_ABSENT);
    size_t used = (size_t)snprintf(text, text_bytes, absent == 1 ? "rank" : "ranks");
    const char *between = " ";

    for (int32_t rank = 0; rank < roster->world && used < text_bytes; rank++) {
        if (roster->members[rank].state != MEMBER_ABSENT) {
            continue;
        }
        if (used + spare > text_bytes) {
            (void)snprintf(text + used, text_bytes - used, ", …");
            return;
        }
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%d", between, (int)rank);
        between = ", ";
    }
}

bool roster_is_route(const struct member *member, const struct wire_name *from)
{
    return member->state == MEMBER_PRESENT && member->route.size == from->size &&
           memcmp(member->route.bytes, from->bytes, from->size) == 0;
}

const struct member *roster_find_route(const struct roster *roster, const struct wire_name *from)
{
    for (int32_t rank = 0; rank < roster->world; rank++) {
        if (roster_is_route(&roster->members[rank], from)) {
            return &roster->members[rank];
        }
    }
    return NULL;
}

static void name_doing(const struct roster *roster, const struct roster_limits *limits,
                       int32_t rank, char *text, size_t text_bytes)
{
    const struct control_progress *progress = &roster->members[rank].progress;

    if (limits->describe != NULL) {
        text[0] = '\0';
        limits->describe(limits->context, rank, progress, text, text_bytes);
    } else {
        (void)snprintf(text, text_bytes, "step %" PRId64 ", phase %d, action %d", progress->step,
                       (int)progress->phase, (int)progress->action);
    }
}

/* Why a member that is present must be dead, or NULL. */
static const char *find_death(const struct member *member, const struct roster_limits *limits,
                              int64_t now_ns)
{
    if (member->state != MEMBER_PRESENT) {
        return NULL;
    }
    if (member->ended_ns != 0) {
        return now_ns - member->ended_ns >= limits->last_words_ns ? "its process has ended" : NULL;
    }
    if (member->cut) {
        return "its connection is gone";
    }
    return now_ns - member->heard_ns > limits->dead_after_ns ? "no sign of life" : NULL;
}

static void word_death(const struct roster *roster, const struct roster_limits *limits,
                       int32_t rank, const char *why, int64_t now_ns, struct control_cause *cause)
{
    char name[NAME_BYTES];
    char doing[DOING_BYTES];
    char age[32] = "";

    roster_name(roster, rank, name, sizeof(name));
    name_doing(roster, limits, rank, doing, sizeof(doing));
    if (roster->members[rank].ended_ns == 0 && !roster->members[rank].cut) {
        (void)snprintf(age, sizeof(age), " for %.1f s",
                       SECONDS(now_ns - roster->members[rank].heard_ns));
    }
    cause->status = STATUS_ERR_PEER;
    cause->rank = rank;
    (void)snprintf(cause->text, sizeof(cause->text), "%s was lost: %s%s; it was last seen at %s",
                   name, why, age, doing);
}

/* For how long a member had stood still when it was last heard. */
static int64_t still_ns(const struct member *member)
{
    return member->beat_ns - member->changed_ns;
}

/* The rank that hangs, or -1. */
static int32_t find_stall(const struct roster *roster, int64_t stall_after_ns)
{
    int32_t working = 0;  /* neither in a round nor waiting */
    int32_t hanging = -1; /* of those, the stillest beyond the limit */
    int32_t waiting = -1; /* of those that wait, the stillest */
    int64_t least_ns = CLOCK_NEVER;

    for (int32_t rank = 0; rank < roster->world; rank++) {
        const struct member *member = &roster->members[rank];
        int64_t still = still_ns(member);

        if (member->state != MEMBER_PRESENT || member->in_round) {
            continue;
        }
        if (member->progress.waits || member->progress.stands) {
            least_ns = still < least_ns ? still : least_ns;
            if (waiting < 0 || still > still_ns(&roster->members[waiting])) {
                waiting = rank;
            }
            continue;
        }
        working++;
        if (still > stall_after_ns &&
            (hanging < 0 || still > still_ns(&roster->members[hanging]))) {
            hanging = rank;
        }
    }
    return working == 0 && waiting >= 0 && least_ns > stall_after_ns ? waiting : hanging;
}

bool roster_judge(struct roster *roster, const struct roster_limits *limits, int64_t now_ns,
                  struct control_cause *cause)
{
    for (int32_t rank = 0; rank < roster->world; rank++) {
        const char *why = find_death(&roster->members[rank], limits, now_ns);

        if (why != NULL) {
            word_death(roster, limits, rank, why, now_ns, cause);
            roster->members[rank].state = MEMBER_LOST;
            return true;
        }
    }
    if (limits->stall_after_ns == CLOCK_NEVER) {
        return false;
    }
    int32_t hanging = find_stall(roster, limits->stall_after_ns);

    if (hanging >= 0) {
        char name[NAME_BYTES];
        char doing[DOING_BYTES];

        roster_name(roster, hanging, name, sizeof(name));
        name_doing(roster, limits, hanging, doing, sizeof(doing));
        cause->status = STATUS_ERR_PEER;
        cause->rank = hanging;
        (void)snprintf(cause->text, sizeof(cause->text), "%s hangs: no progress for %.1f s at %s",
                       name, SECONDS(still_ns(&roster->members[hanging])), doing);
        return true;
    }
    return false;
}

void roster_forgive(struct roster *roster, int64_t now_ns)
{
    for (int32_t rank = 0; rank < roster->world; rank++) {
        roster->members[rank].heard_ns = now_ns;
        roster->members[rank].beat_ns = now_ns;
        roster->members[rank].changed_ns = now_ns;
    }
}
