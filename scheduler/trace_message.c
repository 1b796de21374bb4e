#include "scheduler/trace_message.h"

#include <stdlib.h>

#include "scheduler/trace.h"

#define NAME_PARTS 7

/* One end of a message and what both ends call it. */
struct message_end {
    const struct trace_rank *rank;
    const struct span *span;
    int32_t name[NAME_PARTS];
};

static int compare_names(const struct message_end *left, const struct message_end *right)
{
    for (int part = 0; part < NAME_PARTS; part++) {
        if (left->name[part] != right->name[part]) {
            return left->name[part] < right->name[part] ? -1 : 1;
        }
    }
    return 0;
}

static int compare_ends(const void *left_item, const void *right_item)
{
    const struct message_end *left = left_item;
    const struct message_end *right = right_item;
    int order = compare_names(left, right);

    if (order != 0) {
        return order;
    }
    return (left->span->begin_ns > right->span->begin_ns) -
           (left->span->begin_ns < right->span->begin_ns);
}

static void name_end(struct message_end *end)
{
    const int32_t *args = end->span->args;
    int32_t own = end->rank->pipeline_rank;
    int32_t peer = args[TRACE_ARG_PEER];
    bool sends = end->span->kind == TRACE_SEND;

    end->name[0] = end->rank->replica;
    end->name[1] = args[TRACE_ARG_STEP];
    end->name[2] = args[TRACE_ARG_EVALUATION] == 1 ? 1 : 0;
    end->name[3] = args[TRACE_ARG_DIRECTION];
    end->name[4] = sends ? own : peer;
    end->name[5] = sends ? peer : own;
    end->name[6] = args[TRACE_ARG_SEQUENCE];
}

static size_t count_ends(const struct trace_run *run, uint32_t kind)
{
    size_t count = 0;

    for (size_t index = 0; index < run->count; index++) {
        for (size_t item = 0; item < run->ranks[index].count; item++) {
            count += run->ranks[index].spans[item].kind == kind ? 1 : 0;
        }
    }
    return count;
}

/* The ends of one kind, by name and time; NULL where memory is short. */
static struct message_end *gather_ends(const struct trace_run *run, uint32_t kind, size_t count)
{
    struct message_end *ends = calloc(count, sizeof(*ends));
    size_t used = 0;

    for (size_t index = 0; ends != NULL && index < run->count; index++) {
        const struct trace_rank *rank = &run->ranks[index];

        for (size_t item = 0; item < rank->count; item++) {
            if (rank->spans[item].kind == kind) {
                ends[used] = (struct message_end){.rank = rank, .span = &rank->spans[item]};
                name_end(&ends[used++]);
            }
        }
    }
    if (ends != NULL) {
        qsort(ends, used, sizeof(*ends), compare_ends);
    }
    return ends;
}

static size_t pair_ends(const struct message_end *sends, size_t send_count,
                        const struct message_end *recvs, size_t recv_count,
                        struct trace_message *messages)
{
    size_t send = 0;
    size_t recv = 0;
    size_t found = 0;

    while (send < send_count && recv < recv_count) {
        int order = compare_names(&sends[send], &recvs[recv]);

        if (order == 0) {
            messages[found++] = (struct trace_message){.sender = sends[send].rank,
                                                       .receiver = recvs[recv].rank,
                                                       .send = sends[send].span,
                                                       .recv = recvs[recv].span};
        }
        send += order <= 0 ? 1 : 0;
        recv += order >= 0 ? 1 : 0;
    }
    return found;
}

enum status trace_messages_find(const struct trace_run *run, struct trace_message **messages_out,
                                size_t *count_out)
{
    size_t send_count = count_ends(run, TRACE_SEND);
    size_t recv_count = count_ends(run, TRACE_RECV);
    size_t most = send_count < recv_count ? send_count : recv_count;
    struct message_end *sends = NULL;
    struct message_end *recvs = NULL;
    struct trace_message *messages = NULL;
    enum status status = STATUS_OK;

    if (most > 0) {
        sends = gather_ends(run, TRACE_SEND, send_count);
        recvs = gather_ends(run, TRACE_RECV, recv_count);
        messages = calloc(most, sizeof(*messages));
        if (sends == NULL || recvs == NULL || messages == NULL) {
            status = status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu messages", most);
            free(messages);
            goto done;
        }
        most = pair_ends(sends, send_count, recvs, recv_count, messages);
    }
    *messages_out = messages;
    *count_out = most;
done:
    free(sends);
    free(recvs);
    return status;
}
