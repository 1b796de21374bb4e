#include "control_rig.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

#define PATIENCE_S 20.0

static const char welcome_text[] = "the plan of the job";

static void count_abort(void *context)
{
    struct rig_rank *self = context;

    (void)__atomic_add_fetch(&self->aborts, 1, __ATOMIC_RELAXED);
}

void rig_init(struct control_rig *rig, int32_t world)
{
    memset(rig, 0, sizeof(*rig));
    (void)snprintf(rig->directory, sizeof(rig->directory), "/tmp/weir-test-XXXXXX");
    assert_non_null(mkdtemp(rig->directory));
    rig->world = world;
    for (int32_t rank = 0; rank < world; rank++) {
        struct rig_rank *self = &rig->ranks[rank];

        self->rig = rig;
        self->rank = rank;
        self->config = (struct control_config){.job_directory = rig->directory,
                                               .rank = rank,
                                               .world = world,
                                               .config_hash = 0x1234,
                                               .variant = "plain",
                                               .device = "cpu",
                                               .heartbeat_s = 0.05,
                                               .dead_after_s = 10.0,
                                               .stall_after_s = -1.0,
                                               .start_timeout_s = PATIENCE_S,
                                               .cancel = &self->cancel,
                                               .on_abort = count_abort,
                                               .context = self};
        if (rank == 0) {
            self->config.welcome = welcome_text;
            self->config.welcome_bytes = sizeof(welcome_text);
        }
    }
}

static void *run_rank(void *argument)
{
    struct rig_rank *self = argument;

    self->opened = control_open(&self->config, &self->control);
    (void)snprintf(self->opened_text, sizeof(self->opened_text), "%s", status_last()->message);
    if (self->opened != STATUS_OK) {
        return NULL;
    }
    if (self->rig->body != NULL) {
        self->ended = self->rig->body(self);
        (void)snprintf(self->ended_text, sizeof(self->ended_text), "%s", status_last()->message);
    }
    (void)snprintf(self->cause, sizeof(self->cause), "%s",
                   control_abort_cause(self->control, &self->cause_rank));
    self->closed = control_close(&self->control);
    return NULL;
}

void rig_run(struct control_rig *rig, rig_body_fn body)
{
    pthread_t threads[RIG_RANKS_MOST];

    rig->body = body;
    for (int32_t rank = 0; rank < rig->world; rank++) {
        if (!rig->ranks[rank].absent) {
            assert_int_equal(pthread_create(&threads[rank], NULL, run_rank, &rig->ranks[rank]), 0);
        }
    }
    for (int32_t rank = 0; rank < rig->world; rank++) {
        if (!rig->ranks[rank].absent) {
            assert_int_equal(pthread_join(threads[rank], NULL), 0);
        }
    }
}

void rig_assert_all_well(const struct control_rig *rig)
{
    for (int32_t rank = 0; rank < rig->world; rank++) {
        const struct rig_rank *self = &rig->ranks[rank];

        if (self->opened != STATUS_OK || self->ended != STATUS_OK || self->closed != STATUS_OK) {
            fail_msg("rank %d: open %d (%s), body %d (%s), close %d", (int)rank, (int)self->opened,
                     self->opened_text, (int)self->ended, self->ended_text, (int)self->closed);
        }
    }
}

void rig_release(struct control_rig *rig)
{
    char path[96];

    (void)snprintf(path, sizeof(path), "%s/control", rig->directory);
    (void)unlink(path);
    assert_int_equal(rmdir(rig->directory), 0);
}

int64_t rig_deadline(void)
{
    return clock_deadline(PATIENCE_S);
}

bool rig_await(const int *flag, int value)
{
    int64_t deadline_ns = rig_deadline();

    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < value) {
        if (clock_now_ns() > deadline_ns) {
            return false;
        }
        clock_sleep_ns(CLOCK_MS);
    }
    return true;
}

enum status rig_barrier(struct rig_rank *self, uint64_t number)
{
    static const struct control_key keys[] = {{.name = "here", .op = CONTROL_SUM}};
    const struct control_value value = {.key = 0, .number = 1.0};
    const struct control_round round = {.name = "BARRIER",
                                        .number = number,
                                        .keys = keys,
                                        .key_count = 1,
                                        .values = &value,
                                        .value_count = 1,
                                        .note = ""};
    double here = 0.0;
    struct control_answer answer = {.numbers = &here};

    TRY(control_reduce(self->control, &round, &answer, rig_deadline()));
    return rig_expect(here == (double)self->rig->world, "all ranks are counted");
}

enum status rig_expect(bool condition, const char *text)
{
    return condition ? STATUS_OK : status_note(STATUS_ERR_INVALID, "expected that %s", text);
}
