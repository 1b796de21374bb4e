#include "tests/scheduler/pipeline_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler/executor.h"

/* The names are the linker's. NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
 */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

/* Allocations of this thread; the linker sends every call in this program through the wrappers. */
static _Thread_local int64_t allocations;

void *__wrap_malloc(size_t bytes)
{
    allocations++;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    allocations++;
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    allocations++;
    return __real_realloc(old, bytes);
}
/* NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming) */

struct seat {
    struct fake_world *world;
    const struct plan *plan;
    int32_t rank;
    enum status status;
    int64_t allocations;
    pthread_barrier_t *start; /* borrows; all ranks begin at once */
    char message[STATUS_MESSAGE_BYTES];
    pthread_t thread;
};

static void *run_rank(void *argument)
{
    struct seat *seat = argument;
    const struct plan_line *line = &seat->plan->lines[seat->rank];
    struct executor executor;
    int64_t before = 0;

    seat->status = executor_init(&executor, line->count);
    (void)pthread_barrier_wait(seat->start);
    if (seat->status == STATUS_OK) {
        before = allocations;
        seat->status =
            executor_run(&executor, line, fake_world_worker(seat->world, seat->rank),
                         fake_world_cancel(seat->world), clock_deadline(PIPELINE_SECONDS));
        seat->allocations = allocations - before;
    }
    fake_world_finish(seat->world, seat->rank, seat->status);
    if (seat->status < 0) {
        memcpy(seat->message, status_last()->message, sizeof(seat->message));
    }
    executor_release(&executor);
    return NULL;
}

static bool is_right(const struct fake_world *world, const struct plan *plan)
{
    struct fake_totals expected[FAKE_MOST_STAGES];
    bool trains = plan->shape.schedule != SCHEDULE_FORWARD_ONLY;

    fake_totals_expect(plan_stages(plan), plan->shape.microbatches, trains,
                       trains && plan->shape.embedding_sync && plan->shape.ranks > 1, expected);
    for (int32_t s = 0; s < plan_stages(plan); s++) {
        if (memcmp(&expected[s], fake_world_totals(world, s), sizeof(expected[s])) != 0) {
            return false;
        }
    }
    return true;
}

void pipeline_run(const struct plan *plan, struct fake_config config, struct outcome *outcome)
{
    struct fake_world *world = NULL;
    struct seat seats[FAKE_MOST_STAGES];
    pthread_barrier_t start;

    assert_int_equal(pthread_barrier_init(&start, NULL, (unsigned)plan->shape.ranks), 0);
    memset(outcome, 0, sizeof(*outcome));
    config.deadline_ns = clock_deadline(PIPELINE_SECONDS);
    assert_int_equal(fake_world_create(plan, &config, &world), STATUS_OK);
    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        seats[rank] = (struct seat){.world = world, .plan = plan, .rank = rank, .start = &start};
        assert_int_equal(pthread_create(&seats[rank].thread, NULL, run_rank, &seats[rank]), 0);
    }
    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        assert_int_equal(pthread_join(seats[rank].thread, NULL), 0);
        outcome->statuses[rank] = seats[rank].status;
        outcome->allocations += seats[rank].allocations;
        memcpy(outcome->messages[rank], seats[rank].message, sizeof(seats[rank].message));
    }
    (void)pthread_barrier_destroy(&start);
    outcome->verdict = fake_world_verdict(world, &outcome->place);
    for (int32_t rank = 0; outcome->verdict == FAKE_RIGHT && rank < plan->shape.ranks; rank++) {
        if (seats[rank].status < 0) {
            outcome->verdict = FAKE_FAILED;
        }
    }
    if (outcome->verdict == FAKE_RIGHT && !is_right(world, plan)) {
        outcome->verdict = FAKE_WRONG;
    }
    fake_world_destroy(&world);
}
