/* How a comm starts: memory is reserved, peers meet, and whatever does not fit is named. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm_rig.h"

#define BYTES 1000 /* no multiple of a cache line */

static void a_rank_without_lanes_connects_at_once(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 4, false);
    assert_int_equal(rig_open(&rig.ranks[2]), STATUS_OK);
    assert_int_equal(comm_connect(rig.ranks[2].comm, &rig.cancel, 0), STATUS_OK);
    assert_int_equal(comm_reserved_bytes(rig.ranks[2].comm), 0);
    assert_int_equal(comm_progress(rig.ranks[2].comm), 0);
    rig_release(&rig);
}

static void a_rank_outside_the_job_is_refused(void **state)
{
    struct comm_rig rig;
    struct comm *comm = NULL;

    (void)state;
    rig_init(&rig, 2, false);
    for (int32_t rank = -1; rank <= 2; rank += 3) {
        const struct comm_config config = {
            .job_directory = rig.directory, .rank = rank, .world = 2};

        assert_int_equal(comm_shm_open(&config, &comm), STATUS_ERR_INVALID);
    }
    assert_null(comm);
    rig_release(&rig);
}

static void a_lane_that_makes_no_sense_is_refused(void **state)
{
    struct comm_rig rig;
    struct rig_rank *self = &rig.ranks[1];

    (void)state;
    rig_init(&rig, 2, false);
    assert_int_equal(rig_open(self), STATUS_OK);
    assert_int_equal(rig_lane(self, 0, 1, 0, true, 1, BYTES), STATUS_ERR_INVALID); /* itself */
    assert_int_equal(rig_lane(self, 0, 2, 0, true, 1, BYTES), STATUS_ERR_INVALID);
    assert_int_equal(rig_lane(self, 0, -1, 0, true, 1, BYTES), STATUS_ERR_INVALID);
    assert_int_equal(rig_lane(self, 0, 0, 3, true, 1, BYTES), STATUS_ERR_INVALID);
    assert_int_equal(rig_lane(self, 0, 0, -1, true, 1, BYTES), STATUS_ERR_INVALID);
    assert_int_equal(rig_lane(self, 0, 0, 0, true, 0, BYTES), STATUS_ERR_INVALID);
    assert_int_equal(rig_lane(self, 0, 0, 0, true, 1, 0), STATUS_ERR_INVALID);
    assert_int_equal(rig_lane(self, 0, 0, 0, true, 1, BYTES), STATUS_OK);
    assert_int_equal(rig_lane(self, 1, 0, 0, true, 2, BYTES), STATUS_ERR_INVALID); /* twice */
    assert_int_equal(rig_lane(self, 1, 0, 0, false, 1, BYTES), STATUS_OK);
    assert_int_equal(rig_lane(self, 2, 0, 1, true, 1, BYTES), STATUS_OK);
    rig_release(&rig);
}

/* ---- Two ranks that agree, or do not. ---- */

static void open_simple_pair(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, 0, 1 - self->rank, 0, self->rank == 0, 3, BYTES) == STATUS_OK);
    (void)rig_connect(self);
}

static void landing_buffers_are_rounded_up_to_whole_cache_lines(void **state)
{
    struct comm_rig rig;
    const struct lane *lane;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, open_simple_pair);
    rig_assert_no_notes(&rig);
    lane = rig.ranks[1].lanes[0];
    assert_int_equal(comm_reserved_bytes(rig.ranks[0].comm), 0);
    assert_int_equal(comm_reserved_bytes(rig.ranks[1].comm), 3 * 1024);
    assert_ptr_equal((char *)comm_landing(lane, 0) + 1024, comm_landing(lane, 1));
    assert_ptr_equal((char *)comm_landing(lane, 1) + 1024, comm_landing(lane, 2));
    rig_release(&rig);
}

static void no_file_is_left_once_the_ranks_have_met(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, open_simple_pair);
    rig_assert_no_notes(&rig);
    assert_int_equal(rig.ranks[0].connected, STATUS_OK);
    assert_int_equal(rig.ranks[1].connected, STATUS_OK);
    assert_int_equal(rig_names(&rig), 0);
    rig_release(&rig);
}

static enum status lanes_with(struct rig_rank *self, int32_t peer)
{
    TRY(rig_lane(self, 0, peer, 0, true, 1, BYTES));
    return rig_lane(self, 1, peer, 0, false, 1, BYTES);
}

/* Every rank has a lane with every other, so each both listens and connects. */
static void open_all_to_all(struct rig_rank *self)
{
    enum status status = rig_open(self);

    for (int32_t peer = 0; peer < self->rig->world && status >= 0; peer++) {
        status = peer != self->rank ? lanes_with(self, peer) : STATUS_OK;
    }
    RIG_EXPECT(self, status == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

static void eight_ranks_that_all_share_lanes_meet_without_deadlock(void **state)
{
    struct comm_rig rig;

    (void)state;
    for (int round = 0; round < 5; round++) {
        rig_init(&rig, 8, true);
        rig_run(&rig, open_all_to_all);
        rig_assert_no_notes(&rig);
        rig_release(&rig);
    }
}

static void open_with_other_count(struct rig_rank *self)
{
    int32_t landings = self->rank == 0 ? 31 : 42;

    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self,
               rig_lane(self, 0, 1 - self->rank, 0, self->rank == 0, landings, 64) == STATUS_OK);
    (void)rig_connect(self);
}

static void open_with_other_bytes(struct rig_rank *self)
{
    size_t bytes = self->rank == 0 ? 3100 : 4200;

    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, 0, 1 - self->rank, 1, self->rank == 1, 1, bytes) == STATUS_OK);
    (void)rig_connect(self);
}

/* Rank 0 knows of a lane B that rank 1 does not know. */
static void open_with_lane_more(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, 0, 1 - self->rank, 0, self->rank == 0, 1, 64) == STATUS_OK);
    if (self->rank == 0) {
        RIG_EXPECT(self, rig_lane(self, 1, 1, 1, false, 31, 4200) == STATUS_OK);
    }
    (void)rig_connect(self);
}

/* Both send: neither receives what the other sends. */
static void open_both_senders(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, rig_lane(self, 0, 1 - self->rank, 0, true, 31, 4200) == STATUS_OK);
    (void)rig_connect(self);
}

static void lanes_that_disagree_are_named_with_both_values_at_both_ends(void **state)
{
    (void)state;
    rig_assert_both_refuse(2, open_with_other_count, "31", "42");
    rig_assert_both_refuse(2, open_with_other_bytes, "3100", "4200");
    rig_assert_both_refuse(2, open_with_lane_more, "direction B", "rank 1 has no such lane");
    rig_assert_both_refuse(2, open_both_senders, "sends in direction F",
                           "31 landing buffers of 4200");
}

/* Rank 1 has a lane with rank 0, which has lanes with rank 2 alone. */
static void open_stranger(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self,
               rig_lane(self, 0, self->rank == 0 ? 2 : 0, 0, self->rank == 0, 1, 64) == STATUS_OK);
    if (self->rank < 2) {
        (void)rig_connect(self);
    }
}

static void a_rank_that_is_not_expected_is_refused_at_both_ends(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 3, false);
    rig_run(&rig, open_stranger);
    rig_assert_no_notes(&rig);
    for (int32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig.ranks[rank].connected, STATUS_ERR_REFUSED);
        assert_non_null(strstr(rig.ranks[rank].failure.message, "rank 0 has no such lane"));
    }
    rig_release(&rig);
}

/* ---- Peers that do not come. ---- */

static void open_alone(struct comm_rig *rig)
{
    struct rig_rank *self = &rig->ranks[1];

    rig_init(rig, 4, false);
    assert_int_equal(rig_open(self), STATUS_OK);
    assert_int_equal(rig_lane(self, 0, 0, 0, false, 1, BYTES), STATUS_OK);
    assert_int_equal(rig_lane(self, 1, 3, 0, true, 1, BYTES), STATUS_OK);
}

static void peers_that_do_not_come_are_named(void **state)
{
    struct comm_rig rig;

    (void)state;
    open_alone(&rig);
    assert_int_equal(comm_connect(rig.ranks[1].comm, NULL, clock_now_ns() + 30 * CLOCK_MS),
                     STATUS_ERR_TIMEOUT);
    assert_non_null(strstr(status_last()->message, "rank 0, 3"));
    assert_non_null(strstr(status_last()->message, rig.directory));
    rig_release(&rig);
}

static void *cancel_later(void *context)
{
    struct comm_rig *rig = context;

    cancel_request(&rig->cancel);
    return NULL;
}

static void *abort_later(void *context)
{
    struct comm_rig *rig = context;

    comm_abort(rig->ranks[1].comm);
    return NULL;
}

static void cancel_and_abort_end_the_wait_for_peers(void **state)
{
    void *(*const ends[])(void *) = {cancel_later, abort_later};

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct comm_rig rig;
        pthread_t thread;

        open_alone(&rig);
        assert_int_equal(pthread_create(&thread, NULL, ends[i], &rig), 0);
        assert_int_equal(comm_connect(rig.ranks[1].comm, &rig.cancel, CLOCK_NEVER),
                         STATUS_ERR_CANCELLED);
        assert_int_equal(pthread_join(thread, NULL), 0);
        rig_release(&rig);
    }
}

/* ---- Memory. ---- */

static void memory_that_the_host_does_not_have_is_refused_with_bytes(void **state)
{
    struct comm_rig rig;
    struct rig_rank *self = &rig.ranks[1];

    (void)state;
    rig_init(&rig, 2, false);
    assert_int_equal(rig_open(self), STATUS_OK);
    assert_int_equal(rig_lane(self, 0, 0, 0, false, 2, (size_t)1 << 45), STATUS_OK);
    assert_int_equal(rig_connect(self), STATUS_ERR_NO_MEMORY);
    /* 2^46 bytes of buffers, a page in front and two marks, in whole pages. */
    assert_non_null(strstr(status_last()->message, "70368744185856 bytes"));
    assert_non_null(strstr(status_last()->message, "available"));
    assert_int_equal(comm_reserved_bytes(self->comm), 0);
    rig_release(&rig);
}

static void sizes_whose_product_overflows_are_refused(void **state)
{
    const size_t bytes[] = {SIZE_MAX, SIZE_MAX - 127, SIZE_MAX / 2, (size_t)1 << 62};

    (void)state;
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        struct comm_rig rig;

        rig_init(&rig, 2, false);
        assert_int_equal(rig_open(&rig.ranks[0]), STATUS_OK);
        assert_int_equal(rig_lane(&rig.ranks[0], 0, 1, 0, false, INT32_MAX, bytes[i]), STATUS_OK);
        assert_int_equal(rig_connect(&rig.ranks[0]), STATUS_ERR_NO_MEMORY);
        rig_release(&rig);
    }
}

/* ---- The job directory. ---- */

static int bind_by_hand(const struct comm_rig *rig, int32_t rank, bool listens)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/shm-%d", rig->directory, rank);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    if (listens) {
        assert_int_equal(listen(fd, 4), 0);
    }
    return fd;
}

static void a_socket_that_a_dead_process_has_left_is_taken_over(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    (void)close(bind_by_hand(&rig, 0, true));
    assert_int_equal(rig_names(&rig), 1);
    rig_run(&rig, open_simple_pair);
    rig_assert_no_notes(&rig);
    assert_int_equal(rig.ranks[0].connected, STATUS_OK);
    assert_int_equal(rig.ranks[1].connected, STATUS_OK);
    rig_release(&rig);
}

static void a_socket_that_another_process_serves_is_refused_and_kept(void **state)
{
    struct comm_rig rig;
    char path[128];
    int fd;

    (void)state;
    rig_init(&rig, 2, false);
    fd = bind_by_hand(&rig, 0, true);
    open_simple_pair(&rig.ranks[0]);
    rig_assert_no_notes(&rig);
    assert_int_equal(rig.ranks[0].connected, STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "same rank"));
    assert_int_equal(rig_names(&rig), 1);
    (void)close(fd);
    (void)snprintf(path, sizeof(path), "%s/shm-0", rig.directory);
    assert_int_equal(unlink(path), 0);
    rig_release(&rig);
}

static void a_job_directory_that_does_not_exist_or_is_too_long_is_named(void **state)
{
    char longer[200];
    const char *names[] = {"/nonexistent-weir-job", longer};
    const enum status wanted[] = {STATUS_ERR_IO, STATUS_ERR_REFUSED};

    (void)state;
    memset(longer, 'x', sizeof(longer) - 1);
    longer[0] = '/';
    longer[sizeof(longer) - 1] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct comm_config config = {.job_directory = names[i], .rank = 0, .world = 2};
        const struct lane_config lane_config = {
            .peer = 1, .sends = true, .landings = 1, .landing_bytes = 64};
        struct comm *comm = NULL;
        struct lane *lane = NULL;

        assert_int_equal(comm_shm_open(&config, &comm), STATUS_OK);
        assert_int_equal(comm_lane_open(comm, &lane_config, &lane), STATUS_OK);
        assert_int_equal(comm_connect(comm, NULL, 0), wanted[i]);
        assert_non_null(strstr(status_last()->message, names[i]));
        comm_close(&comm);
    }
}

/* Connects to rank 0 as soon as it listens, and says something that is no offer. */
static int talk_garbage(const struct comm_rig *rig)
{
    const unsigned char garbage[200] = {0x93, 0xc0, 0xff};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/shm-0", rig->directory);
    while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        if (clock_now_ns() > rig->deadline_ns) {
            break;
        }
        clock_sleep_ns(CLOCK_MS);
    }
    (void)send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
    return fd;
}

static void open_beside_garbage(struct rig_rank *self)
{
    int fds[3] = {-1, -1, -1};

    if (self->rank == 1) {
        for (int i = 0; i < 3; i++) {
            fds[i] = talk_garbage(self->rig);
        }
    }
    open_simple_pair(self);
    for (int i = 0; i < 3; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
}

static void garbage_on_the_socket_does_not_keep_healthy_ranks_apart(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 2, false);
    rig_run(&rig, open_beside_garbage);
    rig_assert_no_notes(&rig);
    assert_int_equal(rig.ranks[0].connected, STATUS_OK);
    assert_int_equal(rig.ranks[1].connected, STATUS_OK);
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_lanes_connects_at_once),
        cmocka_unit_test(a_rank_outside_the_job_is_refused),
        cmocka_unit_test(a_lane_that_makes_no_sense_is_refused),
        cmocka_unit_test(landing_buffers_are_rounded_up_to_whole_cache_lines),
        cmocka_unit_test(no_file_is_left_once_the_ranks_have_met),
        cmocka_unit_test(eight_ranks_that_all_share_lanes_meet_without_deadlock),
        cmocka_unit_test(lanes_that_disagree_are_named_with_both_values_at_both_ends),
        cmocka_unit_test(a_rank_that_is_not_expected_is_refused_at_both_ends),
        cmocka_unit_test(peers_that_do_not_come_are_named),
        cmocka_unit_test(cancel_and_abort_end_the_wait_for_peers),
        cmocka_unit_test(memory_that_the_host_does_not_have_is_refused_with_bytes),
        cmocka_unit_test(sizes_whose_product_overflows_are_refused),
        cmocka_unit_test(a_socket_that_a_dead_process_has_left_is_taken_over),
        cmocka_unit_test(a_socket_that_another_process_serves_is_refused_and_kept),
        cmocka_unit_test(a_job_directory_that_does_not_exist_or_is_too_long_is_named),
        cmocka_unit_test(garbage_on_the_socket_does_not_keep_healthy_ranks_apart),
    };

    return cmocka_run_group_tests_name("comm_connect", tests, NULL, NULL);
}
