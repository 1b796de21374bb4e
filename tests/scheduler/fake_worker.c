#include "tests/scheduler/fake_worker.h"

#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "tests/scheduler/fake_token.h"
#include "tests/scheduler/fake_world.h"

static uint64_t draw(struct fake_rank *rank, uint64_t below)
{
    rank->random = fake_mix(rank->random);
    return rank->random % below;
}

/* Lets one action of the rank begin or end, chosen at random; false where none can. */
static bool progress(struct fake_rank *rank)
{
    int32_t chosen = -1;
    uint64_t found = 0;

    for (int32_t index = 0; index < rank->issued; index++) {
        enum action_state state = rank->actions[index].state;

        if ((state == BEGUN || (state == ISSUED && fake_action_can_begin(rank, index))) &&
            draw(rank, ++found) == 0) {
            chosen = index;
        }
    }
    if (chosen < 0) {
        return false;
    }
    if (rank->actions[chosen].state == BEGUN) {
        fake_action_end(rank, chosen);
    } else {
        fake_action_begin(rank, chosen);
    }
    return true;
}

void fake_world_check_idle(struct fake_world *world)
{
    if (world->idle == 0 || world->idle + world->finished < world->count ||
        cancel_requested(&world->cancel)) {
        return;
    }
    if (world->config->cancel_when_idle) {
        cancel_request(&world->cancel);
    } else {
        world->hang = true;
    }
    (void)pthread_cond_broadcast(&world->moved);
}

/* Sleeps until another rank has moved something. */
static enum status block(struct fake_rank *rank, int64_t deadline_ns)
{
    struct fake_world *world = rank->world;
    uint64_t epoch = world->epoch;
    enum status status = STATUS_OK;

    world->idle++;
    fake_world_check_idle(world);
    while (status == STATUS_OK && epoch == world->epoch) {
        int64_t until = clock_now_ns() + CANCEL_POLL_NS;
        struct timespec time = {.tv_sec = until / CLOCK_SECOND, .tv_nsec = until % CLOCK_SECOND};

        status = cancel_check(&world->cancel, deadline_ns);
        if (world->hang) {
            status = STATUS_ERR_TIMEOUT;
        }
        if (status == STATUS_OK) {
            (void)pthread_cond_timedwait(&world->moved, &world->lock, &time);
        }
    }
    return status;
}

/* Goes on until the action stands at `state` at least. */
static enum status drive(struct fake_rank *rank, int32_t index, enum action_state state,
                         int64_t deadline_ns)
{
    struct fake_world *world = rank->world;
    int64_t until =
        deadline_ns < world->config->deadline_ns ? deadline_ns : world->config->deadline_ns;
    enum status status = STATUS_OK;

    while (status >= 0 && rank->actions[index].state < state) {
        status = cancel_check(&world->cancel, until);
        if (status >= 0 && !progress(rank)) {
            status = block(rank, until);
        }
        if (draw(rank, 4) == 0) {
            /* Others get the lock in the middle of what this rank does. */
            (void)pthread_mutex_unlock(&world->lock);
            (void)sched_yield();
            (void)pthread_mutex_lock(&world->lock);
        }
    }
    if (status == STATUS_ERR_TIMEOUT) {
        world->hang = true;
        return status_note(status, "rank %d waited in vain", (int)rank->rank);
    }
    return status;
}

static enum status fake_issue(struct worker *worker, const struct action *action, int32_t index,
                              const worker_ticket *dependencies, int32_t count,
                              worker_ticket *ticket_out)
{
    struct fake_rank *rank = (struct fake_rank *)worker;
    struct fake_action *fake = &rank->actions[index];
    bool waits =
        rank->world->config->issue_waits && action_is_compute((enum action_kind)action->kind);
    enum status status = STATUS_OK;

    if (fake_action_has_fault(rank, index, FAKE_FAULT_ISSUE)) {
        return status_note(STATUS_ERR_NUMERIC, "the fault of this test");
    }
    (void)pthread_mutex_lock(&rank->world->lock);
    fake->state = ISSUED;
    fake->depends_count = count;
    for (int32_t slot = 0; slot < count; slot++) {
        fake->depends[slot] = dependencies[slot];
    }
    rank->issued = index + 1;
    if (waits) {
        status = drive(rank, index, ENDED, CLOCK_NEVER);
    } else {
        for (uint64_t tries = draw(rank, 4); tries > 0 && progress(rank); tries--) {
        }
    }
    (void)pthread_mutex_unlock(&rank->world->lock);
    *ticket_out = index;
    return status;
}

static enum status ended_badly(const struct fake_rank *rank, worker_ticket ticket)
{
    return fake_action_has_fault(rank, (int32_t)ticket, FAKE_FAULT_END)
               ? status_note(STATUS_ERR_NUMERIC, "the fault of this test")
               : STATUS_OK;
}

static enum status fake_done(struct worker *worker, worker_ticket ticket, bool *done_out)
{
    struct fake_rank *rank = (struct fake_rank *)worker;
    bool ended = false;

    (void)pthread_mutex_lock(&rank->world->lock);
    (void)progress(rank);
    ended = rank->actions[ticket].state == ENDED;
    (void)pthread_mutex_unlock(&rank->world->lock);
    *done_out = ended;
    return ended ? ended_badly(rank, ticket) : STATUS_OK;
}

static enum status fake_wait(struct worker *worker, worker_ticket ticket, int64_t deadline_ns)
{
    struct fake_rank *rank = (struct fake_rank *)worker;
    enum status status = STATUS_OK;

    (void)pthread_mutex_lock(&rank->world->lock);
    status = drive(rank, (int32_t)ticket, ENDED, deadline_ns);
    (void)pthread_mutex_unlock(&rank->world->lock);
    return status < 0 ? status : ended_badly(rank, ticket);
}

const struct worker_ops fake_worker_ops = {
    .issue = fake_issue,
    .done = fake_done,
    .wait = fake_wait,
};
