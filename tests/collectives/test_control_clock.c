/* Clocks of ranks on different hosts, measured by ping-pongs with rank 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "collectives/control_clock.h"
#include "collectives/control_message.h"
#include "tests/collectives/control_rig.h"

#define AHEAD_NS (1234567 * CLOCK_MS) /* as of a host that was started 20 minutes earlier */
#define PACE     1e-3                 /* gained: a thousand times what clocks do */

/* What rank 1 finds, and the clock that it has. */
struct skewed {
    int64_t since_ns;
    int64_t slow_ns; /* what each look at it takes */
    int looks;
    struct control_clock first;
    struct control_clock second;
};

static struct skewed skewed;

static int64_t read_skewed(void *context)
{
    (void)context;
    skewed.looks++;
    if (skewed.slow_ns > 0) {
        clock_sleep_ns(skewed.slow_ns);
    }
    int64_t now_ns = clock_now_ns();

    return now_ns + AHEAD_NS + (int64_t)((double)(now_ns - skewed.since_ns) * PACE);
}

/* How far base/clock is ahead of the skewed one when that says `at_ns`. */
static double true_offset(int64_t at_ns)
{
    double skewed_ns =
        (double)(at_ns - skewed.since_ns - AHEAD_NS); /* since then, by its own pace */

    return skewed_ns / (1.0 + PACE) - skewed_ns - (double)AHEAD_NS;
}

static void assert_found(const struct control_clock *clock)
{
    double error = (double)clock->offset_ns - true_offset(clock->at_ns);

    assert_true(clock->differs);
    assert_true(clock->uncertainty_ns >= 1);
    assert_true(error <= (double)clock->uncertainty_ns + 1.0);
    assert_true(error >= -(double)clock->uncertainty_ns - 1.0);
}

static void setup(struct control_rig *rig, int32_t world)
{
    memset(&skewed, 0, sizeof(skewed));
    skewed.since_ns = clock_now_ns();
    rig_init(rig, world);
    rig->ranks[world - 1].config.now = read_skewed;
}

/* At the start and at the end, with rounds between and no rank the wiser. */
static enum status measure_twice(struct rig_rank *self)
{
    struct control_clock clocks[2];

    TRY(control_measure_clock(self->control, rig_deadline(), &clocks[0]));
    TRY(rig_barrier(self, 1));
    clock_sleep_ns(20 * CLOCK_MS);
    TRY(control_measure_clock(self->control, rig_deadline(), &clocks[1]));
    TRY(rig_barrier(self, 2));
    if (self->config.now == NULL) {
        TRY(rig_expect(!clocks[0].differs && clocks[0].offset_ns == 0 &&
                           clocks[0].uncertainty_ns == 0 && !clocks[1].differs,
                       "a rank of rank 0's host has its clock"));
    } else {
        skewed.first = clocks[0];
        skewed.second = clocks[1];
    }
    return STATUS_OK;
}

static void a_clock_of_another_host_is_found_within_half_a_round_trip(void **state)
{
    struct control_rig rig;

    (void)state;
    setup(&rig, 3);
    rig_run(&rig, measure_twice);
    rig_assert_all_well(&rig);
    assert_found(&skewed.first);
    assert_found(&skewed.second);
    assert_true(skewed.second.at_ns - skewed.first.at_ns >= 20 * CLOCK_MS);
    /* Each ping and each answer looks at it once; no letter of another kind must. */
    assert_true(skewed.looks >= 2 * 2 * CONTROL_CLOCK_ROUNDS);
    rig_release(&rig);
}

/* An answer that lies there for a millisecond before the clock is read shifts what is found by half of that
 * and makes it as uncertain: the bound holds. */
static void a_slow_way_back_is_part_of_what_is_uncertain(void **state)
{
    struct control_rig rig;

    (void)state;
    setup(&rig, 2);
    skewed.slow_ns = CLOCK_MS;
    rig_run(&rig, measure_twice);
    rig_assert_all_well(&rig);
    assert_found(&skewed.first);
    assert_true(skewed.first.uncertainty_ns >= CLOCK_MS / 2);
    rig_release(&rig);
}

static void on_one_host_nothing_is_sent(void **state)
{
    struct control_rig rig;

    (void)state;
    setup(&rig, 2);
    rig.ranks[1].config.now = NULL;
    rig_run(&rig, measure_twice);
    rig_assert_all_well(&rig);
    assert_int_equal(skewed.looks, 0);
    rig_release(&rig);
}

static void a_world_of_one_has_its_own_clock(void **state)
{
    struct control_rig rig;

    (void)state;
    setup(&rig, 1);
    rig.ranks[0].config.now = NULL;
    rig_run(&rig, measure_twice);
    rig_assert_all_well(&rig);
    rig_release(&rig);
}

/* A measurement that was given up does not stand in the way of the next. */
static enum status give_up_and_ask_again(struct rig_rank *self)
{
    if (self->rank == 1) {
        struct control_clock clock = {.offset_ns = 77};
        enum status status = control_measure_clock(self->control, clock_now_ns() - 1, &clock);

        TRY(rig_expect(status == STATUS_ERR_TIMEOUT && clock.offset_ns == 77,
                       "a deadline ends a measurement"));
        TRY(control_measure_clock(self->control, rig_deadline(), &skewed.first));
    }
    return rig_barrier(self, 1);
}

static void a_deadline_ends_a_measurement(void **state)
{
    struct control_rig rig;

    (void)state;
    setup(&rig, 2);
    skewed.slow_ns = CLOCK_MS;
    rig_run(&rig, give_up_and_ask_again);
    rig_assert_all_well(&rig);
    assert_found(&skewed.first);
    rig_release(&rig);
}

static enum status abort_meanwhile(struct rig_rank *self)
{
    struct control_clock clock;

    if (self->rank == 0) {
        control_abort(self->control, "the first has had enough");
        return STATUS_OK;
    }
    skewed.slow_ns = 20 * CLOCK_MS; /* longer in all than it takes to hear of it */
    enum status status = control_measure_clock(self->control, rig_deadline(), &clock);

    return rig_expect(status == STATUS_ERR_PEER &&
                          strstr(status_last()->message, "the first has had enough") != NULL,
                      "an abort ends a measurement with its cause");
}

static void an_abort_ends_a_measurement(void **state)
{
    struct control_rig rig;

    (void)state;
    setup(&rig, 2);
    rig_run(&rig, abort_meanwhile);
    assert_int_equal(rig.ranks[1].ended, STATUS_OK);
    rig_release(&rig);
}

static enum status cancel_first(struct rig_rank *self)
{
    struct control_clock clock;

    if (self->rank == 0) {
        return rig_await(&self->rig->turns, 1) ? STATUS_OK : STATUS_ERR_TIMEOUT;
    }
    skewed.slow_ns = 20 * CLOCK_MS;
    cancel_request(&self->cancel);
    enum status status = control_measure_clock(self->control, rig_deadline(), &clock);

    (void)__atomic_add_fetch(&self->rig->turns, 1, __ATOMIC_RELEASE);
    return rig_expect(status == STATUS_ERR_CANCELLED, "a cancel ends a measurement");
}

static void a_cancel_ends_a_measurement(void **state)
{
    struct control_rig rig;

    (void)state;
    setup(&rig, 2);
    rig_run(&rig, cancel_first);
    assert_int_equal(rig.ranks[1].ended, STATUS_OK);
    assert_int_equal(rig.ranks[0].ended, STATUS_OK);
    rig_release(&rig);
}

static bool take(struct clock_probe *probe, int64_t t0, int64_t t1, int64_t t2, int64_t t3)
{
    clock_probe_send(probe, t0);
    return clock_probe_take(
        probe, &(struct control_pong){.number = probe->number, .heard_ns = t1, .said_ns = t2}, t3);
}

static void of_several_ping_pongs_the_quickest_counts(void **state)
{
    struct clock_probe probe = {.number = 40};

    (void)state;
    clock_probe_begin(&probe, 3);
    /* Round trip (200 - 10) = 190. */
    assert_false(take(&probe, 0, 1150, 1160, 200));
    /* (330 - 300) - (1350 - 1340) = 20: ((1340 - 300) + (1350 - 330)) / 2 = 1030, in the middle at 315. */
    assert_false(take(&probe, 300, 1340, 1350, 330));
    /* 400 - 0. */
    assert_true(take(&probe, 500, 1700, 1700, 900));
    assert_int_equal(probe.best.offset_ns, 1030);
    assert_int_equal(probe.best.uncertainty_ns, 20 / 2 + 1);
    assert_int_equal(probe.best.at_ns, 315);
    assert_true(probe.best.differs);
    assert_int_equal(probe.number, 43);
}

static void an_answer_to_an_earlier_ping_is_not_taken(void **state)
{
    struct clock_probe probe = {.number = 0};
    const struct control_pong late = {.number = 1, .heard_ns = 10, .said_ns = 10};

    (void)state;
    clock_probe_begin(&probe, 1);
    clock_probe_send(&probe, 0); /* number 1 */
    clock_probe_begin(&probe, 1);
    assert_false(clock_probe_take(&probe, &late, 20));
    clock_probe_send(&probe, 100); /* number 2 */
    assert_false(clock_probe_take(&probe, &late, 120));
    assert_int_equal(probe.left, 1);
    assert_true(probe.awaited);
}

static enum status read_back(const struct control_pong *pong, struct control_pong *read)
{
    struct message_pack *pack = NULL;
    struct message_view *view = NULL;
    const void *bytes = NULL;
    size_t size = 0;
    enum status status = STATUS_OK;

    assert_int_equal(message_pack_create(&pack), STATUS_OK);
    assert_int_equal(message_view_create(&view), STATUS_OK);
    message_pack_begin(pack);
    control_pong_put(pack, pong);
    assert_int_equal(message_pack_end(pack, &bytes, &size), STATUS_OK);
    assert_int_equal(message_view_open(view, bytes, size, "rank 0"), STATUS_OK);
    status = control_pong_get(view, read);
    message_view_destroy(&view);
    message_pack_destroy(&pack);
    return status;
}

static void an_answer_whose_times_cannot_be_is_refused(void **state)
{
    const struct control_pong good = {.number = 3, .heard_ns = -5, .said_ns = 7};
    const struct control_pong before = {.number = 3, .heard_ns = 8, .said_ns = 7};
    const struct control_pong beyond = {.number = 3, .heard_ns = 8, .said_ns = INT64_MAX};
    struct control_pong read;

    (void)state;
    assert_int_equal(read_back(&good, &read), STATUS_OK);
    assert_memory_equal(&read, &good, sizeof(good));
    assert_int_equal(read_back(&before, &read), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "said_ns"));
    assert_int_equal(read_back(&beyond, &read), STATUS_ERR_FORMAT);
}

static void clocks_are_told_apart_by_their_names_and_else_by_their_hosts(void **state)
{
    struct control_place left = {.host = "a", .clock = 5};
    struct control_place right = {.host = "b", .clock = 5}; /* a container of the same host */

    (void)state;
    assert_true(control_clock_is_shared(&left, &right));
    right.clock = 6;
    (void)strcpy(right.host, "a"); /* two hosts of one name */
    assert_false(control_clock_is_shared(&left, &right));
    right.clock = 0;
    assert_true(control_clock_is_shared(&left, &right));
    (void)strcpy(right.host, "b");
    assert_false(control_clock_is_shared(&left, &right));
    assert_int_equal(control_clock_name(), control_clock_name());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clock_of_another_host_is_found_within_half_a_round_trip),
        cmocka_unit_test(a_slow_way_back_is_part_of_what_is_uncertain),
        cmocka_unit_test(on_one_host_nothing_is_sent),
        cmocka_unit_test(a_world_of_one_has_its_own_clock),
        cmocka_unit_test(a_deadline_ends_a_measurement),
        cmocka_unit_test(an_abort_ends_a_measurement),
        cmocka_unit_test(a_cancel_ends_a_measurement),
        cmocka_unit_test(of_several_ping_pongs_the_quickest_counts),
        cmocka_unit_test(an_answer_to_an_earlier_ping_is_not_taken),
        cmocka_unit_test(an_answer_whose_times_cannot_be_is_refused),
        cmocka_unit_test(clocks_are_told_apart_by_their_names_and_else_by_their_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
