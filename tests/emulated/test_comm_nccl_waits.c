/*
 * What a wait of the device says of the plane over NCCL when others end the job: whom it stood at, however long its thread
 * was away before it learned of the end, and nothing of an earlier wait.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm_rig.h"
#include "tests/base/capture.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/queued.h"

#define BYTES ((size_t)256)
#define LANE  0

/* A wait has looked at what it stands at by then; and its thread is away for longer than between two looks. */
#define LOOKED_MS 400
#define AWAY_MS   900

/* What happens in the streams of rank 1, in the thread that waits for them. */
struct event {
    struct rig_rank *self;
    int64_t began_ns;
    enum {
        NOTHING,
        CANCEL, /* the thread is away, and meanwhile the job is cancelled */
        ABORT   /* the plane is aborted too, and the stream comes to its end with it */
    } brings;
    bool ends;
};

static struct event event;

static bool happens(const void *context)
{
    struct event *now = (struct event *)context;

    now->began_ns = now->began_ns == 0 ? clock_now_ns() : now->began_ns;
    if (now->ends || clock_now_ns() - now->began_ns < LOOKED_MS * CLOCK_MS) {
        return now->ends;
    }
    if (now->brings == NOTHING) {
        now->ends = true;
        return true;
    }
    if (now->brings == CANCEL) {
        clock_sleep_ns(AWAY_MS * CLOCK_MS);
    }
    cancel_request(&now->self->rig->cancel);
    if (now->brings == ABORT) {
        comm_abort(now->self->comm);
        now->ends = true;
    }
    now->brings = NOTHING;
    now->began_ns = INT64_MAX; /* the stream stands until the test says */
    return now->ends;
}

static void connect_pair(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, comm_share(self->comm, 4096) == STATUS_OK);
    RIG_EXPECT(self,
               rig_lane(self, LANE, 1 - self->rank, 0, self->rank == 0, 1, BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* A kernel of rank 1 at which `event` happens, and the wait for it. */
static void wait_at_event(struct rig_rank *self)
{
    float *number = rig_memory(self, 1, sizeof(*number));

    event.self = self;
    fake_cuda_hang_launch(1, happens, &event);
    RIG_EXPECT(self, number != NULL);
    RIG_EXPECT(self, queued_scale(number, 1.0F, 1.0F, device_stream(self->device)) == STATUS_OK);
    self->connected = device_wait(self->device, &self->rig->cancel, self->rig->deadline_ns);
    event.ends = true;
}

/* Rank 1 is given a message to receive that rank 0 does not send. */
static void wait_for_a_message(struct rig_rank *self)
{
    if (self->rank == 1) {
        RIG_EXPECT(self, comm_post_receive(self->lanes[LANE], 0, 0) == STATUS_OK);
        wait_at_event(self);
    }
}

/* Rank 0 sends it after all, and rank 1's wait finds it. */
static void let_it_come(struct rig_rank *self)
{
    if (self->rank == 0) {
        RIG_EXPECT(self, comm_post_send(self->lanes[LANE], 0, 0, rig_memory(self, 2, BYTES),
                                        BYTES) == STATUS_OK);
    } else {
        RIG_EXPECT(self,
                   comm_wait_arrival(self->lanes[LANE], 0, 0, NULL, CLOCK_NEVER) == STATUS_OK);
    }
    RIG_EXPECT(self, device_wait(self->device, NULL, self->rig->deadline_ns) == STATUS_OK);
}

/* The next wait is over before it has looked at anything. */
static void wait_in_a_job_that_has_ended(struct rig_rank *self)
{
    if (self->rank == 1) {
        cancel_request(&self->rig->cancel);
        wait_at_event(self);
    }
}

static const char words[] =
    "rank 1 waits for rank 0: message 1 of the lane F from rank 0 to rank 1 (256 bytes)";

/* Ends the test where a rank has a note. The planes are aborted, as the control plane does in a job. */
static void end(struct comm_rig *rig)
{
    rig_assert_no_notes(rig);
    for (int32_t rank = 0; rank < rig->world; rank++) {
        comm_abort(rig->ranks[rank].comm);
    }
    rig_release(rig);
}

static void check_said(const struct event *what)
{
    static char said[4096];
    struct capture capture;
    struct comm_rig rig;

    rig_init(&rig, 2, false);
    rig_run(&rig, connect_pair);
    rig_assert_no_notes(&rig);
    event = *what;
    capture_begin(&capture);
    rig_run(&rig, wait_for_a_message);
    capture_end(&capture, said, sizeof(said));
    assert_int_equal(rig.ranks[1].connected, STATUS_ERR_CANCELLED);
    if (strstr(said, words) == NULL) {
        fail_msg("\"%s\" is not in what was said: %s", words, said);
    }
    end(&rig);
}

static void a_thread_that_was_away_when_the_job_ended_says_what_it_stood_at(void **state)
{
    (void)state;
    check_said(&(struct event){.brings = CANCEL});
}

static void a_stream_that_an_abort_has_emptied_is_said_to_have_stood(void **state)
{
    (void)state;
    check_said(&(struct event){.brings = ABORT});
}

static void what_an_earlier_wait_stood_at_is_not_said(void **state)
{
    static char said[4096];
    struct capture capture;
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, connect_pair);
    rig_assert_no_notes(&rig);
    event = (struct event){.brings = NOTHING};
    rig_run(&rig, wait_for_a_message);
    assert_int_equal(rig.ranks[1].connected, STATUS_OK);
    rig_run(&rig, let_it_come);
    event = (struct event){.began_ns = INT64_MAX};
    capture_begin(&capture);
    rig_run(&rig, wait_in_a_job_that_has_ended);
    capture_end(&capture, said, sizeof(said));
    assert_int_equal(rig.ranks[1].connected, STATUS_ERR_CANCELLED);
    if (strstr(said, "waits for") != NULL) {
        fail_msg("a wait that stood at nothing says: %s", said);
    }
    end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_was_away_when_the_job_ended_says_what_it_stood_at),
        cmocka_unit_test(a_stream_that_an_abort_has_emptied_is_said_to_have_stood),
        cmocka_unit_test(what_an_earlier_wait_stood_at_is_not_said),
    };

    return cmocka_run_group_tests_name("comm_nccl_waits", tests, NULL, NULL);
}
