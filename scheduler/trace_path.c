#include "scheduler/trace_path.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/trace_event.h"
#include "scheduler/trace_work.h"

/* The walk through one step, from its end to its begin. */
struct walk {
    const struct trace_work *work;
    struct trace_path *path;
    unsigned char **seen; /* owns; by rank and span: on the path already */
    const struct trace_rank *rank;
    const struct span *span;
    int64_t to_ns; /* what lies behind is on the path */
};

/* Something that work waited for. */
struct need {
    struct trace_work_ref ref;
    enum trace_path_cause cause; /* of the time between the two */
};

static enum status add_part(struct trace_path *path, const struct trace_path_part *part)
{
    if (part->end_ns <= part->begin_ns) {
        return STATUS_OK;
    }
    if (path->count == path->capacity) {
        size_t capacity = path->capacity == 0 ? 256 : path->capacity * 2;
        struct trace_path_part *parts = realloc(path->parts, capacity * sizeof(*parts));

        if (parts == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu parts of the critical path",
                               capacity);
        }
        path->parts = parts;
        path->capacity = capacity;
    }
    path->parts[path->count++] = *part;
    return STATUS_OK;
}

/* Puts what lies between `begin_ns` and the path so far before it. */
static enum status go_back(struct walk *walk, enum trace_path_cause cause, int64_t begin_ns,
                           const struct trace_rank *from)
{
    const struct trace_path_part part = {.cause = cause,
                                         .rank = walk->rank,
                                         .span = walk->span,
                                         .from = from,
                                         .begin_ns = begin_ns,
                                         .end_ns = walk->to_ns};

    TRY(add_part(walk->path, &part));
    walk->to_ns = begin_ns < walk->to_ns ? begin_ns : walk->to_ns;
    return STATUS_OK;
}

static unsigned char *seen_at(const struct walk *walk, const struct trace_rank *rank,
                              const struct span *span)
{
    return &walk->seen[rank - walk->work->run->ranks][span - rank->spans];
}

static void move_to(struct walk *walk, const struct trace_rank *rank, const struct span *span)
{
    walk->rank = rank;
    walk->span = span;
    *seen_at(walk, rank, span) = 1;
}

/* The last work of the same step and rank that had ended when this began. */
static struct trace_work_ref line_before(const struct walk *walk)
{
    size_t first = 0;
    size_t behind = trace_work_ended(walk->work, walk->rank, walk->span->args[TRACE_ARG_STEP],
                                     walk->span->begin_ns, &first);

    while (behind-- > first) {
        const struct span *span =
            walk->work->lines[walk->rank - walk->work->run->ranks].spans[behind];

        if (!*seen_at(walk, walk->rank, span)) {
            return (struct trace_work_ref){walk->rank, span};
        }
    }
    return (struct trace_work_ref){NULL, NULL};
}

/* Takes `ref` where it ended later than what was found so far. */
static void take_later(const struct walk *walk, struct need *need, struct trace_work_ref ref,
                       enum trace_path_cause cause)
{
    if (ref.rank == NULL || ref.span->end_ns > walk->to_ns || *seen_at(walk, ref.rank, ref.span) ||
        (need->ref.rank != NULL && ref.span->end_ns <= need->ref.span->end_ns)) {
        return;
    }
    *need = (struct need){.ref = ref, .cause = cause};
}

/* What ranks do together begins when the last of them has come: the path goes on there. */
static enum status join(struct walk *walk)
{
    struct trace_work_ref latest = trace_work_latest(walk->work, walk->rank, walk->span);

    if (latest.rank == NULL || latest.rank == walk->rank ||
        latest.span->begin_ns <= walk->span->begin_ns || latest.span->begin_ns > walk->to_ns ||
        *seen_at(walk, latest.rank, latest.span)) {
        return STATUS_OK;
    }
    TRY(go_back(walk, TRACE_PATH_WORK, latest.span->begin_ns, NULL));
    move_to(walk, latest.rank, latest.span);
    return STATUS_OK;
}

/* One step back; *ended_out where nothing was waited for. */
static enum status walk_back(struct walk *walk, bool *ended_out)
{
    struct need need = {.cause = TRACE_PATH_HOST};
    struct trace_work_ref head;

    TRY(join(walk));
    head = trace_work_head(walk->work, walk->rank, walk->span);
    if (head.rank != NULL && head.span->end_ns > walk->span->begin_ns) {
        take_later(walk, &need, head, TRACE_PATH_MESSAGE);
    }
    if (need.ref.rank == NULL) {
        take_later(walk, &need, line_before(walk), TRACE_PATH_HOST);
        take_later(walk, &need, trace_work_source(walk->work, walk->rank, walk->span),
                   TRACE_PATH_MESSAGE);
        take_later(walk, &need, trace_work_received(walk->work, walk->rank, walk->span),
                   TRACE_PATH_MESSAGE);
        if (walk->span->kind == TRACE_SEND) {
            take_later(walk, &need, trace_work_credit(walk->work, walk->rank, walk->span),
                       TRACE_PATH_LANDING);
        }
        TRY(go_back(walk, TRACE_PATH_WORK,
                    need.ref.rank != NULL && need.ref.span->end_ns > walk->span->begin_ns
                        ? need.ref.span->end_ns
                        : walk->span->begin_ns,
                    NULL));
    }
    *ended_out = need.ref.rank == NULL;
    if (*ended_out) {
        return STATUS_OK;
    }
    TRY(go_back(walk, need.cause, need.ref.span->end_ns,
                need.cause == TRACE_PATH_HOST ? NULL : need.ref.rank));
    move_to(walk, need.ref.rank, need.ref.span);
    return STATUS_OK;
}

/* The parts of a step were found from its end. */
static void turn_round(struct trace_path_part *parts, size_t count)
{
    for (size_t index = 0; index < count / 2; index++) {
        struct trace_path_part kept = parts[index];

        parts[index] = parts[count - 1 - index];
        parts[count - 1 - index] = kept;
    }
}

/* The work of `step` that ends last; of equals, that of the first rank. */
static bool find_last(struct walk *walk, int32_t step)
{
    walk->rank = NULL;
    for (size_t index = 0; index < walk->work->run->count; index++) {
        const struct trace_rank *rank = &walk->work->run->ranks[index];
        size_t first = 0;
        size_t behind = trace_work_ended(walk->work, rank, step, INT64_MAX, &first);
        const struct span *span =
            behind > first ? walk->work->lines[index].spans[behind - 1] : NULL;

        if (span != NULL && (walk->rank == NULL || span->end_ns > walk->span->end_ns)) {
            walk->rank = rank;
            walk->span = span;
        }
    }
    return walk->rank != NULL;
}

static enum status walk_step(struct walk *walk, int32_t step)
{
    size_t begin = walk->path->count;
    bool ended = false;

    if (!find_last(walk, step)) {
        return STATUS_OK;
    }
    move_to(walk, walk->rank, walk->span);
    walk->to_ns = walk->span->end_ns;
    while (!ended) {
        TRY(walk_back(walk, &ended));
    }
    turn_round(walk->path->parts + begin, walk->path->count - begin);
    walk->path->steps++;
    return STATUS_OK;
}

/* The least step above `step` that any rank has; INT32_MAX where there is none. */
static int32_t next_step(const struct trace_work *work, int32_t step)
{
    int32_t next = INT32_MAX;

    for (size_t index = 0; index < work->run->count; index++) {
        size_t first = 0;
        size_t behind = trace_work_ended(work, &work->run->ranks[index], step, INT64_MAX, &first);

        if (behind < work->lines[index].count) {
            int32_t own = work->lines[index].spans[behind]->args[TRACE_ARG_STEP];

            next = own < next ? own : next;
        }
    }
    return next;
}

static enum status walk_all(struct walk *walk)
{
    for (int32_t step = next_step(walk->work, -1); step != INT32_MAX;
         step = next_step(walk->work, step)) {
        TRY(walk_step(walk, step));
    }
    return STATUS_OK;
}

static enum status make_seen(const struct trace_run *run, unsigned char ***seen_out)
{
    unsigned char **seen = calloc(run->count + 1, sizeof(*seen));
    bool made = seen != NULL;

    for (size_t index = 0; made && index < run->count; index++) {
        seen[index] = calloc(run->ranks[index].count + 1, 1);
        made = seen[index] != NULL;
    }
    *seen_out = seen;
    return made ? STATUS_OK
                : status_fail(STATUS_ERR_NO_MEMORY, "trace: the critical path of %zu ranks",
                              run->count);
}

enum status trace_path_make(const struct trace_run *run, struct trace_path *path_out)
{
    struct trace_work work = {0};
    struct trace_path path = {0};
    struct walk walk = {.work = &work, .path = &path};
    enum status status = STATUS_OK;

    TRY_OR(done, status, make_seen(run, &walk.seen));
    TRY_OR(done, status, trace_work_make(run, &work));
    TRY_OR(done, status, walk_all(&walk));
    *path_out = path;
    path = (struct trace_path){0};
done:
    for (size_t index = 0; walk.seen != NULL && index < run->count; index++) {
        free(walk.seen[index]);
    }
    free(walk.seen);
    trace_work_release(&work);
    trace_path_release(&path);
    return status;
}

void trace_path_release(struct trace_path *path)
{
    free(path->parts);
    memset(path, 0, sizeof(*path));
}
