#include "scheduler/trace_clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "scheduler/trace_message.h"

/* What the clock did between two measurements. */
static enum status check_order(const struct trace_clock *first, const struct trace_clock *second)
{
    int64_t passed_ns = second->at_ns - first->at_ns;
    int64_t changed_ns = second->offset_ns - first->offset_ns;

    if (passed_ns <= 0) {
        return status_note(STATUS_ERR_FORMAT,
                           "clock: \"at_ns\" is %" PRId64
                           ", not after the first measurement's %" PRId64,
                           second->at_ns, first->at_ns);
    }
    if (changed_ns >= passed_ns || changed_ns <= -passed_ns) {
        return status_note(STATUS_ERR_FORMAT,
                           "clock: \"offset_ns\" changes by %" PRId64 " within %" PRId64
                           " ns, expected less than the time that has passed",
                           changed_ns, passed_ns);
    }
    return STATUS_OK;
}

enum status trace_clock_add(struct trace_rank *rank, const struct trace_clock *clock,
                            int64_t moved_ns)
{
    if (rank->clock_count == TRACE_CLOCKS) {
        return status_note(STATUS_ERR_FORMAT, "clock: a third measurement, expected two at most");
    }
    if (rank->clock_count > 0) {
        TRY(check_order(&rank->clocks[0], clock));
        if (moved_ns != rank->clock_moved_ns) {
            return status_note(STATUS_ERR_FORMAT,
                               "clock: \"moved_ns\" is %" PRId64 ", expected the first's %" PRId64,
                               moved_ns, rank->clock_moved_ns);
        }
    }
    rank->clocks[rank->clock_count++] = *clock;
    rank->clock_moved_ns = moved_ns;
    return STATUS_OK;
}

int64_t trace_clock_map(const struct trace_rank *rank, int64_t ns)
{
    const struct trace_clock *first = &rank->clocks[0];
    const struct trace_clock *second = &rank->clocks[1];
    double passed_ns = (double)(ns - first->at_ns);
    double change = 0.0;

    if (rank->clock_count == 0) {
        return ns;
    }
    if (rank->clock_count == TRACE_CLOCKS) {
        change = (double)(second->offset_ns - first->offset_ns) * passed_ns /
                 (double)(second->at_ns - first->at_ns);
    }
    return ns - rank->clock_moved_ns + first->offset_ns + (int64_t)llround(change);
}

void trace_clock_align(struct trace_run *run)
{
    for (size_t index = 0; index < run->count; index++) {
        struct trace_rank *rank = &run->ranks[index];

        for (size_t item = 0; rank->clock_count > 0 && item < rank->count; item++) {
            rank->spans[item].begin_ns = trace_clock_map(rank, rank->spans[item].begin_ns);
            rank->spans[item].end_ns = trace_clock_map(rank, rank->spans[item].end_ns);
        }
    }
}

/* What a time of the rank may be off by: between two measurements no more than at the worse of them. */
static int64_t uncertainty(const struct trace_rank *rank)
{
    int64_t most_ns = 0;

    for (int32_t index = 0; index < rank->clock_count; index++) {
        if (rank->clocks[index].uncertainty_ns > most_ns) {
            most_ns = rank->clocks[index].uncertainty_ns;
        }
    }
    return most_ns;
}

static void check_message(const struct trace_message *message, struct trace_causality *causality)
{
    int64_t early_ns = message->send->begin_ns - message->recv->end_ns;
    int64_t allowed_ns = uncertainty(message->sender) + uncertainty(message->receiver);

    if (message->sender->clock_count == 0 && message->receiver->clock_count == 0) {
        return;
    }
    causality->messages++;
    if (early_ns <= allowed_ns) {
        return;
    }
    if (causality->violations == 0 ||
        early_ns - allowed_ns > causality->worst_ns - causality->allowed_ns) {
        causality->worst_ns = early_ns;
        causality->allowed_ns = allowed_ns;
        causality->sender = message->sender->rank;
        causality->receiver = message->receiver->rank;
    }
    causality->violations++;
}

enum status trace_clock_check(const struct trace_run *run, struct trace_causality *causality_out)
{
    struct trace_causality causality = {.sender = -1, .receiver = -1};
    struct trace_message *messages = NULL;
    size_t count = 0;

    for (size_t index = 0; index < run->count; index++) {
        causality.ranks += run->ranks[index].clock_count > 0 ? 1 : 0;
    }
    if (causality.ranks > 0) {
        TRY(trace_messages_find(run, &messages, &count));
    }
    for (size_t index = 0; index < count; index++) {
        check_message(&messages[index], &causality);
    }
    free(messages);
    *causality_out = causality;
    return STATUS_OK;
}

static void print_rank(const struct trace_rank *rank, FILE *out)
{
    const struct trace_clock *first = &rank->clocks[0];
    const struct trace_clock *second = &rank->clocks[1];

    (void)fprintf(out, "rank %d %+.3f ms ± %.3f ms, ", (int)rank->rank,
                  (double)-first->offset_ns / 1e6, (double)uncertainty(rank) / 1e6);
    if (rank->clock_count == TRACE_CLOCKS) {
        double passed_ns = (double)(second->at_ns - first->at_ns);

        (void)fprintf(out, "drift %+.1f ± %.1f us/s",
                      -1e6 * (double)(second->offset_ns - first->offset_ns) / passed_ns,
                      1e6 * (double)(first->uncertainty_ns + second->uncertainty_ns) / passed_ns);
    } else {
        (void)fprintf(out, "drift unknown (no measurement at the end)");
    }
}

static void print_causality(const struct trace_causality *causality, FILE *out)
{
    if (causality->messages == 0) {
        (void)fprintf(out, "no message between them shows whether that is so\n");
    } else if (causality->violations == 0) {
        (void)fprintf(out, "no message arrives before it was sent\n");
    } else {
        (void)fprintf(
            out,
            "%zu of %zu messages arrive before they were sent, the worst, from rank %d to "
            "rank %d, by %.3f ms ± %.3f ms: do not trust times across ranks\n",
            causality->violations, causality->messages, (int)causality->sender,
            (int)causality->receiver, (double)causality->worst_ns / 1e6,
            (double)causality->allowed_ns / 1e6);
    }
}

enum status trace_clock_print(const struct trace_run *run, FILE *out)
{
    struct trace_causality causality;
    const char *between = "clocks: ";

    TRY(trace_clock_check(run, &causality));
    if (causality.ranks == 0) {
        return STATUS_OK;
    }
    for (size_t index = 0; index < run->count; index++) {
        if (run->ranks[index].clock_count > 0) {
            (void)fputs(between, out);
            print_rank(&run->ranks[index], out);
            between = causality.ranks > 1 ? ";\n        " : "; ";
        }
    }
    (void)fputs(causality.ranks > 1 ? ";\n        " : "; ", out);
    print_causality(&causality, out);
    return ferror(out) == 0 ? STATUS_OK
                            : status_fail(STATUS_ERR_IO, "printing the clocks of a trace");
}
