#include "scheduler/executor.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define ACTION_TEXT_BYTES 48

enum status executor_init(struct executor *executor, int32_t capacity)
{
    memset(executor, 0, sizeof(*executor));
    ENSURE(capacity >= 0, "an executor for %d actions", (int)capacity);
    executor->tickets = calloc((size_t)capacity + 1, sizeof(*executor->tickets));
    if (executor->tickets == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY,
                           "executor: %zu bytes for the tickets of %d actions",
                           ((size_t)capacity + 1) * sizeof(*executor->tickets), (int)capacity);
    }
    executor->capacity = capacity;
    return STATUS_OK;
}

/* Adds the action to what the worker recorded. One that was cancelled is a consequence and not a
 * cause, so it is recorded without a log line. */
static enum status name_failure(enum status status, const struct action *action, int32_t index,
                                const char *doing)
{
    const struct status_record *record = status_last();
    const char *cause = record->code == status ? record->message : status_text(status);
    char text[ACTION_TEXT_BYTES];

    (void)action_print(action, text, sizeof(text));
    if (status == STATUS_ERR_CANCELLED) {
        return status_note(status, "action %d (%s): %s%s", (int)index, text, doing, cause);
    }
    return status_fail(status, "action %d (%s): %s%s", (int)index, text, doing, cause);
}

static void set_progress(struct executor *executor, int32_t index)
{
    __atomic_store_n(&executor->progress, index, __ATOMIC_RELAXED);
}

static int32_t gather_dependencies(const struct executor *executor, const struct action *action,
                                   int32_t index, worker_ticket *dependencies)
{
    int32_t found = 0;

    for (int slot = 0; slot < ACTION_DEPENDS && action->depends[slot] != ACTION_NONE; slot++) {
        int32_t earlier = action->depends[slot];

        ENSURE(earlier >= 0 && earlier < index, "action %d depends on action %d", (int)index,
               (int)earlier);
        dependencies[found++] = executor->tickets[earlier];
    }
    return found;
}

/* STEP reads what the whole line has added up: every compute action and reduction before it, in the
 * order of the line, and what lowering lists. Not the SENDs, and not a SYNC that is not listed: the
 * head's goes on in the background. */
static bool step_needs(const struct action *step, const struct action *earlier, int32_t index)
{
    if (action_is_compute((enum action_kind)earlier->kind) || earlier->kind == ACTION_REDUCE) {
        return true;
    }
    for (int slot = 0; slot < ACTION_DEPENDS && step->depends[slot] != ACTION_NONE; slot++) {
        if (step->depends[slot] == index) {
            return true;
        }
    }
    return false;
}

/* Waits for what `step` needs among the first `count` actions, or for all of them where it is
 * NULL. */
static enum status wait_for(struct executor *executor, const struct plan_line *line, int32_t count,
                            const struct action *step, struct worker *worker, int64_t deadline_ns)
{
    for (int32_t index = 0; index < count; index++) {
        const struct action *action = &line->actions[index];
        enum status status = STATUS_OK;

        if (step != NULL && !step_needs(step, action, index)) {
            continue;
        }
        status = worker->ops->wait(worker, executor->tickets[index], deadline_ns);
        if (status < 0) {
            return name_failure(status, action, index, "waiting for its end: ");
        }
    }
    return STATUS_OK;
}

/* Issues the action at `index`; STEP only after what it needs has ended. */
static enum status issue(struct executor *executor, const struct plan_line *line, int32_t index,
                         struct worker *worker, int64_t deadline_ns)
{
    const struct action *action = &line->actions[index];
    worker_ticket dependencies[ACTION_DEPENDS];
    int32_t count = gather_dependencies(executor, action, index, dependencies);
    enum status status = STATUS_OK;

    if (action->kind == ACTION_STEP) {
        TRY(wait_for(executor, line, index, action, worker, deadline_ns));
    }
    status =
        worker->ops->issue(worker, action, index, dependencies, count, &executor->tickets[index]);
    return status < 0 ? name_failure(status, action, index, "") : STATUS_OK;
}

enum status executor_run(struct executor *executor, const struct plan_line *line,
                         struct worker *worker, const struct cancel *cancel, int64_t deadline_ns)
{
    ENSURE(line->count <= executor->capacity, "a line of %d actions, room for %d", (int)line->count,
           (int)executor->capacity);
    for (int32_t index = 0; index < line->count; index++) {
        set_progress(executor, index);
        if (cancel_requested(cancel)) {
            return status_note(STATUS_ERR_CANCELLED, "cancelled before action %d", (int)index);
        }
        TRY(issue(executor, line, index, worker, deadline_ns));
    }
    return wait_for(executor, line, line->count, NULL, worker, deadline_ns);
}

int32_t executor_progress(const struct executor *executor)
{
    return __atomic_load_n(&executor->progress, __ATOMIC_RELAXED);
}

void executor_release(struct executor *executor)
{
    free(executor->tickets);
    memset(executor, 0, sizeof(*executor));
}
