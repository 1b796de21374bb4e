#include "scheduler/trace_work.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/action.h"
#include "scheduler/trace.h"
#include "scheduler/trace_event.h"

/* What the parts of a key mean, by list. */
enum action_key {
    KEY_REPLICA,
    KEY_STEP,
    KEY_DIRECTION,
    KEY_STAGE,
    KEY_MICROBATCH
};

enum join_key {
    KEY_JOIN_STEP,
    KEY_JOIN_KIND,
    KEY_JOIN_PIPELINE_RANK, /* STEP joins all of them */
    KEY_JOIN_INDEX
};

static bool is_work(const struct span *span)
{
    return span->kind < TRACE_KINDS && span->kind != TRACE_WAIT && span->kind != TRACE_RECV &&
           span->kind != TRACE_EVALUATE && span->args[TRACE_ARG_EVALUATION] != 1;
}

static int compare_ends(const void *left_item, const void *right_item)
{
    const struct span *left = *(const struct span *const *)left_item;
    const struct span *right = *(const struct span *const *)right_item;

    if (left->args[TRACE_ARG_STEP] != right->args[TRACE_ARG_STEP]) {
        return left->args[TRACE_ARG_STEP] < right->args[TRACE_ARG_STEP] ? -1 : 1;
    }
    if (left->end_ns != right->end_ns) {
        return left->end_ns < right->end_ns ? -1 : 1;
    }
    return (left > right) - (left < right); /* by begin, as in the rank */
}

static int compare_keys(const void *left_item, const void *right_item)
{
    const struct trace_work_entry *left = left_item;
    const struct trace_work_entry *right = right_item;

    for (int part = 0; part < TRACE_WORK_KEYS; part++) {
        if (left->key[part] != right->key[part]) {
            return left->key[part] < right->key[part] ? -1 : 1;
        }
    }
    return 0;
}

/* Those that came last at the end of their equals. */
static int compare_joins(const void *left_item, const void *right_item)
{
    const struct trace_work_entry *left = left_item;
    const struct trace_work_entry *right = right_item;
    int order = compare_keys(left, right);

    if (order != 0) {
        return order;
    }
    return (left->span->begin_ns > right->span->begin_ns) -
           (left->span->begin_ns < right->span->begin_ns);
}

static bool name_act(const struct trace_rank *rank, const struct span *span,
                     int32_t key[TRACE_WORK_KEYS])
{
    key[KEY_REPLICA] = rank->replica;
    key[KEY_STEP] = span->args[TRACE_ARG_STEP];
    key[KEY_DIRECTION] = span->kind == TRACE_F ? LANE_F : LANE_B;
    key[KEY_STAGE] = span->args[TRACE_ARG_VIRTUAL_STAGE];
    key[KEY_MICROBATCH] = span->args[TRACE_ARG_MICROBATCH];
    return span->kind == TRACE_F || span->kind == TRACE_I || span->kind == TRACE_B;
}

static bool name_join(const struct trace_rank *rank, const struct span *span,
                      int32_t key[TRACE_WORK_KEYS])
{
    memset(key, 0, TRACE_WORK_KEYS * sizeof(*key));
    key[KEY_JOIN_STEP] = span->args[TRACE_ARG_STEP];
    key[KEY_JOIN_KIND] = (int32_t)span->kind;
    if (span->kind != TRACE_STEP) {
        key[KEY_JOIN_PIPELINE_RANK] = rank->pipeline_rank;
        key[KEY_JOIN_INDEX] = span->args[TRACE_ARG_INDEX];
    }
    return span->kind == TRACE_STEP || span->kind == TRACE_REDUCE || span->kind == TRACE_GATHER;
}

static void sort_entries(struct trace_work_entry *entries, size_t count,
                         int (*compare)(const void *, const void *))
{
    if (count > 0) {
        qsort(entries, count, sizeof(*entries), compare);
    }
}

static enum status gather_line(struct trace_work *work, size_t index)
{
    const struct trace_rank *rank = &work->run->ranks[index];
    struct trace_work_line *line = &work->lines[index];
    struct trace_work_line *recvs = &work->recvs[index];

    line->spans = calloc(rank->count + 1, sizeof(const struct span *));
    recvs->spans = calloc(rank->count + 1, sizeof(const struct span *));
    if (line->spans == NULL || recvs->spans == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: the order of %zu spans", rank->count);
    }
    for (size_t item = 0; item < rank->count; item++) {
        const struct span *span = &rank->spans[item];
        struct trace_work_entry entry = {.rank = rank, .span = span};

        if (span->kind == TRACE_RECV && span->args[TRACE_ARG_EVALUATION] != 1) {
            recvs->spans[recvs->count++] = span;
        }
        if (!is_work(span)) {
            continue;
        }
        line->spans[line->count++] = span;
        if (name_act(rank, span, entry.key)) {
            work->acts[work->act_count++] = entry;
        }
        if (name_join(rank, span, entry.key)) {
            work->joins[work->join_count++] = entry;
        }
    }
    qsort(line->spans, line->count, sizeof(const struct span *), compare_ends);
    qsort(recvs->spans, recvs->count, sizeof(const struct span *), compare_ends);
    return STATUS_OK;
}

/* A SEND under the name that the action has which reads its message. */
static enum status gather_sends(struct trace_work *work)
{
    struct trace_message *messages = NULL;
    size_t count = 0;

    TRY(trace_messages_find(work->run, &messages, &count));
    work->sends = calloc(count + 1, sizeof(*work->sends));
    if (work->sends == NULL) {
        free(messages);
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: the names of %zu messages", count);
    }
    for (size_t index = 0; index < count; index++) {
        const struct trace_message *message = &messages[index];
        const int32_t *args = message->recv->args;

        if (is_work(message->send)) {
            work->sends[work->send_count++] = (struct trace_work_entry){
                .key = {message->receiver->replica, args[TRACE_ARG_STEP], args[TRACE_ARG_DIRECTION],
                        args[TRACE_ARG_VIRTUAL_STAGE], args[TRACE_ARG_MICROBATCH]},
                .rank = message->sender,
                .span = message->send};
        }
    }
    free(messages);
    sort_entries(work->sends, work->send_count, compare_keys);
    return STATUS_OK;
}

enum status trace_work_make(const struct trace_run *run, struct trace_work *work_out)
{
    struct trace_work work = {.run = run};
    enum status status = STATUS_OK;
    size_t spans = 0;

    for (size_t index = 0; index < run->count; index++) {
        spans += run->ranks[index].count;
    }
    work.lines = calloc(run->count + 1, sizeof(*work.lines));
    work.recvs = calloc(run->count + 1, sizeof(*work.recvs));
    work.acts = calloc(spans + 1, sizeof(*work.acts));
    work.joins = calloc(spans + 1, sizeof(*work.joins));
    if (work.lines == NULL || work.recvs == NULL || work.acts == NULL || work.joins == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "trace: the work of %zu spans", spans);
        goto fail;
    }
    for (size_t index = 0; index < run->count; index++) {
        TRY_OR(fail, status, gather_line(&work, index));
    }
    TRY_OR(fail, status, gather_sends(&work));
    sort_entries(work.acts, work.act_count, compare_keys);
    sort_entries(work.joins, work.join_count, compare_joins);
    *work_out = work;
    return STATUS_OK;
fail:
    trace_work_release(&work);
    return status;
}

void trace_work_release(struct trace_work *work)
{
    for (size_t index = 0; work->lines != NULL && index < work->run->count; index++) {
        free(work->lines[index].spans);
    }
    for (size_t index = 0; work->recvs != NULL && index < work->run->count; index++) {
        free(work->recvs[index].spans);
    }
    free(work->lines);
    free(work->recvs);
    free(work->acts);
    free(work->sends);
    free(work->joins);
    memset(work, 0, sizeof(*work));
}

/* First place in a line that is of a later step, or of `step` and ends behind `ns`. */
static size_t find_behind(const struct trace_work_line *line, int32_t step, int64_t ns)
{
    size_t low = 0;
    size_t high = line->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct span *span = line->spans[middle];
        int32_t at = span->args[TRACE_ARG_STEP];

        if (at < step || (at == step && span->end_ns <= ns)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

size_t trace_work_ended(const struct trace_work *work, const struct trace_rank *rank, int32_t step,
                        int64_t ns, size_t *first_out)
{
    const struct trace_work_line *line = &work->lines[rank - work->run->ranks];

    *first_out = find_behind(line, step, INT64_MIN);
    while (*first_out > 0 && line->spans[*first_out - 1]->args[TRACE_ARG_STEP] == step) {
        (*first_out)--; /* what ends at the least of all times */
    }
    return find_behind(line, step, ns);
}

static struct trace_work_ref find_entry(const struct trace_work_entry *entries, size_t count,
                                        const struct trace_work_entry *key)
{
    const struct trace_work_entry *found =
        count == 0 ? NULL : bsearch(key, entries, count, sizeof(*entries), compare_keys);

    return found == NULL ? (struct trace_work_ref){NULL, NULL}
                         : (struct trace_work_ref){found->rank, found->span};
}

struct trace_work_ref trace_work_source(const struct trace_work *work,
                                        const struct trace_rank *rank, const struct span *span)
{
    struct trace_work_entry key;
    struct trace_work_ref found;

    if (!name_act(rank, span, key.key)) {
        return (struct trace_work_ref){NULL, NULL};
    }
    found = find_entry(work->sends, work->send_count, &key);
    if (found.rank == NULL && key.key[KEY_STAGE] > 0 && key.key[KEY_STAGE] < INT32_MAX) {
        key.key[KEY_STAGE] += span->kind == TRACE_F ? -1 : 1;
        found = find_entry(work->acts, work->act_count, &key);
    } else if (found.rank == NULL && key.key[KEY_STAGE] == 0 && span->kind != TRACE_F) {
        key.key[KEY_STAGE] = 1;
        found = find_entry(work->acts, work->act_count, &key);
    }
    /* Within a rank the order of its line says it. */
    return found.rank == rank ? (struct trace_work_ref){NULL, NULL} : found;
}

struct trace_work_ref trace_work_received(const struct trace_work *work,
                                          const struct trace_rank *rank, const struct span *span)
{
    const struct trace_work_line *recvs = &work->recvs[rank - work->run->ranks];
    size_t behind = find_behind(recvs, span->args[TRACE_ARG_STEP], span->begin_ns);
    const struct span *recv = behind > 0 ? recvs->spans[behind - 1] : NULL;
    struct trace_work_entry key;

    if (recv == NULL || recv->args[TRACE_ARG_STEP] != span->args[TRACE_ARG_STEP]) {
        return (struct trace_work_ref){NULL, NULL};
    }
    key.key[KEY_REPLICA] = rank->replica;
    key.key[KEY_STEP] = recv->args[TRACE_ARG_STEP];
    key.key[KEY_DIRECTION] = recv->args[TRACE_ARG_DIRECTION];
    key.key[KEY_STAGE] = recv->args[TRACE_ARG_VIRTUAL_STAGE];
    key.key[KEY_MICROBATCH] = recv->args[TRACE_ARG_MICROBATCH];
    return find_entry(work->sends, work->send_count, &key);
}

static const struct trace_rank *find_rank(const struct trace_run *run, int32_t replica,
                                          int32_t pipeline_rank)
{
    for (size_t index = 0; index < run->count; index++) {
        if (run->ranks[index].replica == replica &&
            run->ranks[index].pipeline_rank == pipeline_rank) {
            return &run->ranks[index];
        }
    }
    return NULL;
}

/* Whether `span` is the last reader of messages of a direction that go into `stage`. */
static bool gives_back(const struct span *span, int32_t direction, int32_t stage)
{
    return span->args[TRACE_ARG_VIRTUAL_STAGE] == stage &&
           (span->kind == TRACE_B || span->kind == (direction == LANE_B ? TRACE_W : TRACE_I));
}

struct trace_work_ref trace_work_credit(const struct trace_work *work,
                                        const struct trace_rank *rank, const struct span *send)
{
    const int32_t direction = send->args[TRACE_ARG_DIRECTION];
    const int32_t stage = send->args[TRACE_ARG_VIRTUAL_STAGE];
    const struct trace_rank *receiver =
        find_rank(work->run, rank->replica, send->args[TRACE_ARG_PEER]);
    struct trace_work_entry key = {.key = {rank->replica, send->args[TRACE_ARG_STEP], direction,
                                           stage, send->args[TRACE_ARG_MICROBATCH]}};
    struct trace_work_ref maker = find_entry(work->acts, work->act_count, &key);
    size_t first = 0;
    size_t behind = 0;

    if (receiver == NULL || maker.rank != rank || stage < 0 || stage == INT32_MAX) {
        return (struct trace_work_ref){NULL, NULL};
    }
    behind = trace_work_ended(work, receiver, send->args[TRACE_ARG_STEP], send->begin_ns, &first);
    while (behind-- > first) {
        const struct span *span = work->lines[receiver - work->run->ranks].spans[behind];

        if (span->end_ns <= maker.span->end_ns) {
            break;
        }
        if (gives_back(span, direction, direction == LANE_B ? stage - 1 : stage + 1)) {
            return (struct trace_work_ref){receiver, span};
        }
    }
    return (struct trace_work_ref){NULL, NULL};
}

struct trace_work_ref trace_work_latest(const struct trace_work *work,
                                        const struct trace_rank *rank, const struct span *span)
{
    struct trace_work_entry key = {.rank = NULL};
    size_t low = 0;
    size_t high = work->join_count;

    if (!name_join(rank, span, key.key)) {
        return (struct trace_work_ref){NULL, NULL};
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (compare_keys(&work->joins[middle], &key) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0 || compare_keys(&work->joins[low - 1], &key) != 0) {
        return (struct trace_work_ref){NULL, NULL};
    }
    return (struct trace_work_ref){work->joins[low - 1].rank, work->joins[low - 1].span};
}

struct trace_work_ref trace_work_head(const struct trace_work *work, const struct trace_rank *rank,
                                      const struct span *sync)
{
    const int32_t step = sync->args[TRACE_ARG_STEP];
    const struct trace_rank *head =
        find_rank(work->run, rank->replica, trace_run_stages(work->run) - 1);
    size_t first = 0;
    size_t behind = 0;

    if (sync->kind != TRACE_SYNC || head == NULL || head == rank) {
        return (struct trace_work_ref){NULL, NULL};
    }
    behind = trace_work_ended(work, head, step, sync->end_ns, &first);
    while (behind-- > first) {
        const struct span *span = work->lines[head - work->run->ranks].spans[behind];

        if (span->kind == TRACE_SYNC) {
            return (struct trace_work_ref){head, span};
        }
    }
    return (struct trace_work_ref){NULL, NULL};
}
