#include "scheduler/schedule.h"

#include <stdio.h>
#include <string.h>

#define LIST_BYTES 256

struct traits {
    const char *text;
    int32_t least_chunks;
    int32_t most_chunks;
    enum placement placement;
};

static const struct traits traits_of[SCHEDULES] = {
#define X(name, text, least, most, placement) {text, least, most, PLACEMENT_##placement},
    SCHEDULE_TABLE(X)
#undef X
};

static bool is_known(enum schedule schedule)
{
    return (unsigned)schedule < SCHEDULES;
}

const char *schedule_text(enum schedule schedule)
{
    if (schedule == SCHEDULE_AUTO) {
        return "auto";
    }
    return is_known(schedule) ? traits_of[schedule].text : "?";
}

bool schedule_takes_chunks(enum schedule schedule, int32_t virtual_stages)
{
    if (schedule == SCHEDULE_AUTO) {
        return virtual_stages >= 1 && virtual_stages <= SCHEDULE_ANY_CHUNKS;
    }
    return is_known(schedule) && virtual_stages >= traits_of[schedule].least_chunks &&
           virtual_stages <= traits_of[schedule].most_chunks;
}

const char *schedule_chunks_text(enum schedule schedule)
{
    if (!is_known(schedule) || traits_of[schedule].most_chunks > 2) {
        return "any number of chunks a rank";
    }
    return traits_of[schedule].most_chunks == 2 ? "two chunks a rank" : "one chunk a rank";
}

enum placement schedule_placement(enum schedule schedule)
{
    return is_known(schedule) ? traits_of[schedule].placement : PLACEMENT_LOOP;
}

bool schedule_takes_placement(enum schedule schedule, enum placement placement)
{
    return placement == schedule_placement(schedule) || schedule == SCHEDULE_BFS ||
           schedule == SCHEDULE_FORWARD_ONLY || schedule == SCHEDULE_FILE;
}

bool schedule_takes_extra(enum schedule schedule)
{
    return schedule == SCHEDULE_1F1B;
}

bool schedule_takes_slices(enum schedule schedule)
{
    return schedule == SCHEDULE_SEQ1F1B || schedule == SCHEDULE_FORWARD_ONLY ||
           schedule == SCHEDULE_FILE;
}

const char *schedule_list(int32_t virtual_stages, char *list, size_t list_bytes)
{
    const char *between = "";
    size_t used = 0;
    int i;

    list[0] = '\0';
    for (i = 0; i < SCHEDULES && used + 1 < list_bytes; i++) {
        enum schedule schedule = (enum schedule)i;
        int wrote;

        if (!schedule_trains(schedule) ||
            (virtual_stages != 0 && !schedule_takes_chunks(schedule, virtual_stages))) {
            continue;
        }
        wrote = snprintf(list + used, list_bytes - used, "%s%s",
                         schedule == SCHEDULE_FILE ? " or " : between,
                         schedule == SCHEDULE_FILE ? "file:PATH" : traits_of[i].text);
        used += wrote > 0 ? (size_t)wrote : 0;
        between = ", ";
    }
    return list;
}

enum status schedule_parse(const char *text, enum schedule *schedule_out)
{
    char list[LIST_BYTES];
    int i;

    if (strncmp(text, "file:", 5) == 0 && text[5] != '\0') {
        *schedule_out = SCHEDULE_FILE;
        return STATUS_OK;
    }
    if (strcmp(text, "auto") == 0) {
        *schedule_out = SCHEDULE_AUTO;
        return STATUS_OK;
    }
    for (i = 0; i < SCHEDULES; i++) {
        if (i != SCHEDULE_FILE && strcmp(text, traits_of[i].text) == 0) {
            *schedule_out = (enum schedule)i;
            return STATUS_OK;
        }
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "schedule \"%s\" is not known: expected auto, forward_only, %s", text,
                       schedule_list(0, list, sizeof(list)));
}
