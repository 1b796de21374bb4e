#include "tests/stages/mutant_verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/validate.h"

static const char *const reason_texts[REASONS] = {
#define X(kind, text) text,
    REASON_TABLE(X)
#undef X
};

static const char *const excuse_texts[EXCUSES] = {
#define X(kind, text) text,
    EXCUSE_TABLE(X)
#undef X
};

const char *excuse_text(enum excuse excuse)
{
    return excuse_texts[excuse];
}

const char *reason_text(enum reason reason)
{
    return reason_texts[reason];
}

/* A part of the message, and what it is a matter of. The first that is found counts. */
struct phrase {
    const char *text;
    enum reason reason;
};

static const struct phrase phrases[] = {
    {", cycle of ", REASON_DEADLOCK},
    {"does not point to an earlier action", REASON_FORM},
    {"stands behind an empty place", REASON_FORM},
    {"is not chunk", REASON_FORM},
    {"is outside 0 to", REASON_FORM}, /* a micro-batch; see below for buffers */
    {"may not wait for action", REASON_WAITS},
    {"is not known", REASON_FORM},
    {"for the whole rank", REASON_IDLE},
    {"has a direction, which only messages have", REASON_IDLE},
    {"that this kind of action does not have", REASON_IDLE},
    {"but no chunk of this rank reads it", REASON_IDLE},
    {"no other rank is at the other end", REASON_FORM},
    {"peer is rank", REASON_FORM},
    {" is not one of ", REASON_FORM},
    {"repeats action", REASON_COMPLETE},
    {"has no place in", REASON_COMPLETE},
    {"has no part in an embedding sync", REASON_COMPLETE},
    {"has no SYNC", REASON_COMPLETE},
    {"has no REDUCE", REASON_COMPLETE},
    {" of micro-batch ", REASON_COMPLETE},
    {"is numbered message", REASON_TAGS},
    {"of its lane here", REASON_TAGS},
    {"which still holds its out buffer", REASON_LIFETIME},
    {"cannot be", REASON_COUNT},
    {"still holds", REASON_LIFETIME},
    {"its micro-batch does not hold", REASON_LIFETIME},
    {"in turn", REASON_LIFETIME},
    {"the order must ascend", REASON_ACCUMULATE},
    {"is not the last action of its rank", REASON_END},
    {"does not end with STEP", REASON_END},
    {"stands before the last compute action or SEND", REASON_END},
    {"STEP alone may follow", REASON_END},
    {"that it needs", REASON_ORDER},
    {"among its dependencies", REASON_ORDER},
};

static enum reason reason_of(const char *message)
{
    for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++) {
        if (strstr(message, phrases[i].text) != NULL) {
            bool buffer = phrases[i].reason == REASON_FORM &&
                          strstr(message, "micro-batch") == NULL &&
                          strstr(message, "is outside") != NULL;

            return buffer ? REASON_LIFETIME : phrases[i].reason;
        }
    }
    return REASON_UNKNOWN;
}

void mutant_judge(const struct plan *plan, struct verdict *verdict_out)
{
    enum status status = plan_validate(plan);

    verdict_out->message[0] = '\0';
    verdict_out->reason = REASON_ACCEPTED;
    if (status != STATUS_OK) {
        (void)snprintf(verdict_out->message, sizeof(verdict_out->message), "%s",
                       status_last()->message);
        verdict_out->reason =
            status == STATUS_ERR_REFUSED ? reason_of(verdict_out->message) : REASON_UNKNOWN;
    }
}

/* Numbers of all actions of a plan, and which of them must have ended before one may begin. */
struct past {
    const struct plan *plan;
    int32_t first[MUTANT_RANKS + 1];
    bool *seen; /* owns */
};

static void look_back(struct past *past, int32_t rank, int32_t index);

static void look_back_in_line(struct past *past, int32_t rank, int32_t index)
{
    const struct action *actions = past->plan->lines[rank].actions;
    const struct action *action = &actions[index];
    bool compute = action_is_compute((enum action_kind)action->kind);
    bool last = action->kind == ACTION_REDUCE || action->kind == ACTION_STEP;

    /* Compute goes in the order of the line, and STEP and REDUCE wait for all of it. */
    for (int32_t i = index - 1; i >= 0 && (compute || last); i--) {
        if (action_is_compute((enum action_kind)actions[i].kind) ||
            (last && actions[i].kind == ACTION_REDUCE)) {
            look_back(past, rank, i);
        }
    }
    for (int d = 0; d < ACTION_DEPENDS && action->depends[d] != ACTION_NONE; d++) {
        if (action->depends[d] >= 0 && action->depends[d] < index) {
            look_back(past, rank, action->depends[d]);
        }
    }
}

/* The SEND of what a RECV gets. */
static void look_back_message(struct past *past, const struct action *receive)
{
    enum lane_direction direction = (enum lane_direction)receive->direction;
    int32_t source = plan_source(past->plan, receive->virtual_stage, direction);
    const struct plan_line *line =
        source == ACTION_NONE ? NULL : &past->plan->lines[past->plan->rank_of[source]];

    for (int32_t i = 0; line != NULL && i < line->count; i++) {
        const struct action *send = &line->actions[i];

        if (send->kind == ACTION_SEND && send->direction == receive->direction &&
            send->virtual_stage == source && send->microbatch == receive->microbatch) {
            look_back(past, past->plan->rank_of[source], i);
        }
    }
}

static void look_back(struct past *past, int32_t rank, int32_t index)
{
    const struct action *action = &past->plan->lines[rank].actions[index];

    if (past->seen[past->first[rank] + index]) {
        return;
    }
    past->seen[past->first[rank] + index] = true;
    look_back_in_line(past, rank, index);
    if (action->kind == ACTION_RECV) {
        look_back_message(past, action);
    }
}

/* Whether the action at `later` cannot begin before that at `earlier` of the same line has ended, by
 * what is in the plan: compute in the order of the line, dependencies, messages. Naive, and knows
 * fewer such facts than there are, so that true is true. */
static bool is_implied(const struct plan *plan, int32_t rank, int32_t earlier, int32_t later)
{
    struct past past = {.plan = plan};
    bool implied = false;

    for (int32_t r = 0; r < plan->shape.ranks; r++) {
        past.first[r + 1] = past.first[r] + plan->lines[r].count;
    }
    past.seen = test_calloc((size_t)past.first[plan->shape.ranks] + 1, sizeof(*past.seen));
    look_back(&past, rank, later);
    implied = past.seen[past.first[rank] + earlier];
    test_free(past.seen);
    return implied;
}

/* What the message misses: "rank 1, action 7 (1B0): does not name action 4 (...)". */
static bool is_missed_implied(const struct plan *plan, const char *message)
{
    const char *place = strstr(message, "rank ");
    const char *verb = strstr(message, "does not ");
    int rank = 0;
    int later = 0;
    int earlier = 0;

    if (place == NULL || verb == NULL ||
        sscanf(place, "rank %d, action %d", &rank, &later) != 2 ||      /* NOLINT(cert-err34-c) */
        (sscanf(verb, "does not name action %d", &earlier) != 1 &&      /* NOLINT(cert-err34-c) */
         sscanf(verb, "does not wait for action %d", &earlier) != 1)) { /* NOLINT(cert-err34-c) */
        return false;
    }
    return is_implied(plan, rank, earlier, later);
}

/* Whether everything that the action named before a dependency was lost still comes before it. */
static bool are_all_implied(const struct mutant *mutant)
{
    const struct mutation *mutation = &mutant->mutation;
    const struct action *before = &mutant->original->lines[mutation->rank].actions[mutation->index];
    bool implied = mutation->kind == MUTATION_DROP || mutation->kind == MUTATION_REDIRECT;

    for (int d = 0; d < ACTION_DEPENDS && implied && before->depends[d] != ACTION_NONE; d++) {
        implied = is_implied(mutant->plan, mutation->rank, before->depends[d], mutation->index);
    }
    return implied;
}

enum excuse mutant_excuse(const struct mutant *mutant, const struct verdict *verdict)
{
    const struct mutation *mutation = &mutant->mutation;
    const struct plan_line *line = &mutant->original->lines[mutation->rank];

    if (mutation->kind == MUTATION_COUNT || mutation->kind == MUTATION_LANDINGS) {
        return mutation->is > mutation->was ? EXCUSE_LARGER : EXCUSE_NONE;
    }
    switch (verdict->reason) {
    case REASON_IDLE:
        return mutation->index < line->count &&
                       !mutation_has_field(mutant->original, &line->actions[mutation->index],
                                           mutation->kind)
                   ? EXCUSE_IDLE
                   : EXCUSE_NONE;
    case REASON_ORDER:
    case REASON_LIFETIME:
    case REASON_FORM:
        return is_missed_implied(mutant->plan, verdict->message) || are_all_implied(mutant)
                   ? EXCUSE_IMPLIED
                   : EXCUSE_NONE;
    case REASON_WAITS:
        return EXCUSE_WAITS;
    case REASON_END:
        return strstr(verdict->message, "STEP alone may follow") != NULL ||
                       strstr(verdict->message, "compute action or SEND") != NULL
                   ? EXCUSE_PLACE
                   : EXCUSE_NONE;
    default:
        return EXCUSE_NONE;
    }
}
