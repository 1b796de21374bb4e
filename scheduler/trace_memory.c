#include "scheduler/trace_memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/action.h"
#include "scheduler/trace.h"
#include "scheduler/trace_event.h"

#define NAME_PARTS   3
#define NONE         INT64_MIN
#define WORK_CHANGES 4 /* a stash and a gradient set, each taken and given back */

/* No buffer is larger, whatever a file says, so that no sum overflows. */
#define MOST_BYTES ((uint64_t)1 << 44)

/* What one micro-batch did in one chunk; NONE where it did not. */
struct work {
    int32_t name[NAME_PARTS]; /* step, virtual stage, micro-batch */
    int64_t forward_begin;
    int64_t input_begin;
    int64_t input_end;
    int64_t weight_end;
};

struct change {
    int64_t ns;
    int64_t bytes; /* taken; below 0: given back */
    enum trace_memory_kind kind;
};

/* The works of a rank, and what they and its messages change. */
struct ledger {
    struct work *works; /* owns; by name */
    size_t work_count;
    struct change *changes; /* owns */
    size_t change_count;
};

static const char *const kind_names[] = {
#define X(id, name) name,
    TRACE_MEMORY_TABLE(X)
#undef X
};

const char *trace_memory_name(enum trace_memory_kind kind)
{
    return kind_names[kind];
}

static int compare_works(const void *left_item, const void *right_item)
{
    const struct work *left = left_item;
    const struct work *right = right_item;

    for (int part = 0; part < NAME_PARTS; part++) {
        if (left->name[part] != right->name[part]) {
            return left->name[part] < right->name[part] ? -1 : 1;
        }
    }
    return 0;
}

/* What is given back at a time comes before what is taken then. */
static int compare_changes(const void *left_item, const void *right_item)
{
    const struct change *left = left_item;
    const struct change *right = right_item;

    if (left->ns != right->ns) {
        return left->ns < right->ns ? -1 : 1;
    }
    return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

static void name_work(struct work *work, const struct span *span)
{
    work->name[0] = span->args[TRACE_ARG_STEP];
    work->name[1] = span->args[TRACE_ARG_VIRTUAL_STAGE];
    work->name[2] = span->args[TRACE_ARG_MICROBATCH];
}

static void note_span(struct work *work, const struct span *span)
{
    *work = (struct work){
        .forward_begin = NONE, .input_begin = NONE, .input_end = NONE, .weight_end = NONE};
    name_work(work, span);
    if (span->kind == TRACE_F) {
        work->forward_begin = span->begin_ns;
    }
    if (span->kind == TRACE_I || span->kind == TRACE_B) {
        work->input_begin = span->begin_ns;
        work->input_end = span->end_ns;
    }
    if (span->kind == TRACE_W || span->kind == TRACE_B) {
        work->weight_end = span->end_ns;
    }
}

/* F, I and W of one micro-batch stand in records of their own until here. */
static void join_works(struct work *into, const struct work *from)
{
    into->forward_begin =
        from->forward_begin > into->forward_begin ? from->forward_begin : into->forward_begin;
    into->input_begin =
        from->input_begin > into->input_begin ? from->input_begin : into->input_begin;
    into->input_end = from->input_end > into->input_end ? from->input_end : into->input_end;
    into->weight_end = from->weight_end > into->weight_end ? from->weight_end : into->weight_end;
}

static enum status gather_works(const struct trace_rank *rank, struct ledger *ledger)
{
    struct work *works = calloc(rank->count + 1, sizeof(*works));
    size_t used = 0;
    size_t joined = 0;

    if (works == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: the memory of %zu spans", rank->count);
    }
    for (size_t index = 0; index < rank->count; index++) {
        const struct span *span = &rank->spans[index];

        if (trace_kind_is_compute(span->kind) && span->args[TRACE_ARG_EVALUATION] != 1) {
            note_span(&works[used++], span);
        }
    }
    if (used > 0) {
        qsort(works, used, sizeof(*works), compare_works);
    }
    for (size_t index = 0; index < used; index++) {
        if (joined > 0 && compare_works(&works[joined - 1], &works[index]) == 0) {
            join_works(&works[joined - 1], &works[index]);
        } else {
            works[joined++] = works[index];
        }
    }
    ledger->works = works;
    ledger->work_count = joined;
    return STATUS_OK;
}

static void hold(struct ledger *ledger, enum trace_memory_kind kind, uint64_t bytes, int64_t from,
                 int64_t until)
{
    if (bytes == 0 || bytes > MOST_BYTES || from == NONE || until == NONE) {
        return;
    }
    ledger->changes[ledger->change_count++] =
        (struct change){.ns = from, .bytes = (int64_t)bytes, .kind = kind};
    ledger->changes[ledger->change_count++] =
        (struct change){.ns = until, .bytes = -(int64_t)bytes, .kind = kind};
}

static const struct trace_memory_size *size_of(const struct trace_rank *rank, int32_t stage)
{
    for (size_t index = 0; index < rank->size_count; index++) {
        if (rank->sizes[index].virtual_stage == stage) {
            return &rank->sizes[index];
        }
    }
    return NULL;
}

static void hold_works(const struct trace_rank *rank, struct ledger *ledger)
{
    for (size_t index = 0; index < ledger->work_count; index++) {
        const struct work *work = &ledger->works[index];
        const struct trace_memory_size *size = size_of(rank, work->name[1]);

        if (size != NULL) {
            hold(ledger, TRACE_MEMORY_STASHES, size->stash_bytes, work->forward_begin,
                 work->weight_end);
            hold(ledger, TRACE_MEMORY_DY, size->gradient_bytes, work->input_begin,
                 work->weight_end);
        }
    }
}

static void hold_messages(const struct trace_rank *rank, const struct trace_message *messages,
                          size_t message_count, struct ledger *ledger)
{
    for (size_t index = 0; ledger->works != NULL && index < message_count; index++) {
        const struct trace_message *message = &messages[index];
        const struct work *work = NULL;
        struct work name;

        if (message->receiver != rank || message->recv->args[TRACE_ARG_EVALUATION] == 1) {
            continue;
        }
        name_work(&name, message->recv);
        work = bsearch(&name, ledger->works, ledger->work_count, sizeof(*work), compare_works);
        if (work != NULL) {
            bool gradient = message->recv->args[TRACE_ARG_DIRECTION] == LANE_B;
            int64_t until = gradient ? work->weight_end : work->input_end;

            hold(ledger, TRACE_MEMORY_LANDING, message->send->bytes, message->send->end_ns, until);
        }
    }
}

static void add_point(struct trace_memory *memory, const struct change *change)
{
    struct trace_memory_point point = {.ns = change->ns};
    int64_t together = 0;

    if (memory->count > 0) {
        memcpy(point.bytes, memory->points[memory->count - 1].bytes, sizeof(point.bytes));
        memory->count -= memory->points[memory->count - 1].ns == change->ns ? 1 : 0;
    }
    point.bytes[change->kind] += change->bytes;
    memory->points[memory->count++] = point;
    for (int kind = 0; kind < TRACE_MEMORY_KINDS; kind++) {
        together += point.bytes[kind];
        if (point.bytes[kind] > memory->peak[kind]) {
            memory->peak[kind] = point.bytes[kind];
        }
    }
    memory->peak_together = together > memory->peak_together ? together : memory->peak_together;
}

static enum status balance(struct ledger *ledger, struct trace_memory *memory)
{
    memory->points = calloc(ledger->change_count + 1, sizeof(*memory->points));
    if (memory->points == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu changes of memory",
                           ledger->change_count);
    }
    if (ledger->change_count > 0) {
        qsort(ledger->changes, ledger->change_count, sizeof(*ledger->changes), compare_changes);
    }
    for (size_t index = 0; index < ledger->change_count; index++) {
        add_point(memory, &ledger->changes[index]);
    }
    return STATUS_OK;
}

enum status trace_memory_make(const struct trace_rank *rank, const struct trace_message *messages,
                              size_t message_count, struct trace_memory *memory_out)
{
    struct ledger ledger = {.works = NULL};
    enum status status = STATUS_OK;

    memset(memory_out, 0, sizeof(*memory_out));
    if (rank->size_count == 0) {
        return STATUS_OK;
    }
    TRY(gather_works(rank, &ledger));
    ledger.changes =
        calloc(WORK_CHANGES * ledger.work_count + 2 * message_count + 1, sizeof(*ledger.changes));
    if (ledger.changes == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "trace: the memory of %zu micro-batches",
                             ledger.work_count);
        goto done;
    }
    hold_works(rank, &ledger);
    hold_messages(rank, messages, message_count, &ledger);
    status = balance(&ledger, memory_out);
done:
    free(ledger.works);
    free(ledger.changes);
    return status;
}

void trace_memory_release(struct trace_memory *memory)
{
    free(memory->points);
    memset(memory, 0, sizeof(*memory));
}
