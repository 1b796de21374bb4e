/* The parts under the data plane: doorbell, layout, offers, and the memory of the host. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "collectives/doorbell.h"
#include "collectives/host_memory.h"
#include "collectives/segment.h"
#include "collectives/segment_offer.h"

/* ---- doorbell ---- */

#define ROUNDS 20000

struct ping_pong {
    struct doorbell bells[2];
    uint32_t turn; /* atomic */
    int64_t deadline_ns;
};

struct ping_pong_side {
    struct ping_pong *game;
    uint32_t side;
    bool late;
};

/* One sleep may last longer than the game: a single wake-up that is lost makes it late. */
static void *play(void *context)
{
    struct ping_pong_side *self = context;
    struct ping_pong *game = self->game;

    for (uint32_t round = 0; round < ROUNDS && !self->late; round++) {
        uint32_t mine = 2 * round + self->side;
        struct doorbell *bell = &game->bells[self->side];
        bool reached = false;

        while (!reached && !self->late) {
            uint32_t seen = doorbell_arm(bell);

            reached = __atomic_load_n(&game->turn, __ATOMIC_ACQUIRE) == mine;
            if (!reached) {
                doorbell_sleep(bell, seen, 20 * CLOCK_SECOND);
                self->late = clock_now_ns() > game->deadline_ns;
            }
            doorbell_disarm(bell);
        }
        __atomic_store_n(&game->turn, mine + 1, __ATOMIC_RELEASE);
        doorbell_ring(&game->bells[1 - self->side]);
    }
    return NULL;
}

static void no_ring_is_lost_between_arming_and_sleeping(void **state)
{
    static struct ping_pong game;
    struct ping_pong_side sides[2] = {{.game = &game, .side = 0}, {.game = &game, .side = 1}};
    pthread_t threads[2];

    (void)state;
    game.deadline_ns = clock_deadline(19.0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, play, &sides[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_false(sides[0].late || sides[1].late);
    assert_int_equal(game.turn, 2 * ROUNDS);
}

static void a_ring_after_the_arming_makes_the_sleep_return_at_once(void **state)
{
    static struct doorbell bell;
    int64_t begin_ns = clock_now_ns();
    uint32_t seen = doorbell_arm(&bell);

    (void)state;
    doorbell_ring(&bell);
    doorbell_sleep(&bell, seen, 3600 * CLOCK_SECOND);
    doorbell_disarm(&bell);
    assert_true(clock_now_ns() - begin_ns < 3600 * CLOCK_SECOND);
}

/* ---- segment ---- */

static void lanes_are_laid_out_one_behind_the_other(void **state)
{
    struct segment_place first;
    struct segment_place second;
    size_t bytes = 0;

    (void)state;
    assert_true(segment_place_lane(&bytes, 2, 129, &first));
    assert_int_equal(first.marks, 4096);
    assert_int_equal(first.buffers, 4096 + 2 * 128);
    assert_int_equal(bytes, 4096 + 2 * 128 + 2 * 256);
    assert_true(segment_place_lane(&bytes, 1, 128, &second));
    assert_int_equal(second.marks, 4864);
    assert_int_equal(second.buffers, 4992);
    assert_int_equal(bytes, 5120);
    assert_true(segment_place_fits(&second, 1, 128, bytes));
    assert_false(segment_place_fits(&second, 1, 129, bytes));
    assert_false(segment_place_fits(&second, 2, 128, bytes));
    assert_false(segment_place_fits(&second, 1, 128, bytes - 1));
}

static void a_layout_that_overflows_is_told_and_changes_nothing(void **state)
{
    struct segment_place place;
    size_t bytes = 8192;

    (void)state;
    assert_false(segment_place_lane(&bytes, INT32_MAX, SIZE_MAX / 4, &place));
    assert_false(segment_place_lane(&bytes, 1, SIZE_MAX, &place));
    assert_int_equal(bytes, 8192);
}

static void two_mappings_of_a_segment_show_the_same_bytes(void **state)
{
    struct segment own;
    struct segment theirs;
    int fd = -1;

    (void)state;
    assert_int_equal(segment_create(5, 10000, &own, &fd), STATUS_OK);
    assert_int_equal(own.bytes, 12288);
    assert_int_equal(segment_attach(5, fd, own.bytes, &theirs), STATUS_OK);
    (void)close(fd);
    own.base[9999] = 42;
    assert_int_equal(theirs.base[9999], 42);
    segment_page_abort(segment_page(&theirs));
    assert_int_equal(segment_page(&own)->aborted, 1);
    segment_release(&own);
    segment_release(&own);
    assert_int_equal(theirs.base[9999], 42); /* what a peer still reads is its own */
    segment_release(&theirs);
}

static void a_segment_that_is_not_what_was_told_is_refused(void **state)
{
    struct segment own;
    struct segment theirs;
    int fd = -1;
    int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    (void)state;
    assert_int_equal(segment_create(5, 4096, &own, &fd), STATUS_OK);
    assert_int_equal(segment_attach(6, fd, own.bytes, &theirs), STATUS_ERR_FORMAT);
    assert_null(theirs.base);
    assert_int_equal(segment_attach(5, fd, own.bytes + 4096, &theirs), STATUS_ERR_FORMAT);
    assert_int_equal(segment_attach(5, fd, 0, &theirs), STATUS_ERR_FORMAT);
    own.base[0] ^= 1; /* the magic */
    assert_int_equal(segment_attach(5, fd, own.bytes, &theirs), STATUS_ERR_FORMAT);
    assert_int_equal(ftruncate(fd, 0), -1); /* sealed */
    assert_int_equal(errno, EPERM);

    assert_true(loose >= 0);
    assert_int_equal(ftruncate(loose, 4096), 0);
    assert_int_equal(segment_attach(5, loose, 4096, &theirs), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "shrink"));
    (void)close(loose);
    (void)close(fd);
    segment_release(&own);
}

/* ---- offers ---- */

struct offers {
    struct segment_offer mine;
    struct segment_offer theirs;
};

/* Rank 0 sends F to rank 1, which has room for it. */
static void offers_init(struct offers *offers)
{
    segment_offer_init(&offers->mine, 2, 0, 1, 4096);
    segment_offer_init(&offers->theirs, 2, 1, 0, 8192);
    offers->mine.lane_count = 1;
    offers->mine.lanes[0] =
        (struct segment_lane){.direction = 0, .sends = 1, .landings = 4, .landing_bytes = 256};
    offers->theirs.lane_count = 1;
    offers->theirs.lanes[0] = offers->mine.lanes[0];
    offers->theirs.lanes[0].sends = 0;
    offers->theirs.lanes[0].place = (struct segment_place){.marks = 4096, .buffers = 4608};
}

static void offers_that_fit_agree(void **state)
{
    struct offers offers;

    (void)state;
    offers_init(&offers);
    assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_OK);
    assert_int_equal(segment_offer_agree(&offers.theirs, &offers.mine), STATUS_OK);
}

static void offers_of_other_builds_or_jobs_are_refused_with_both_values(void **state)
{
    struct offers offers;

    (void)state;
    offers_init(&offers);
    offers.theirs.version = 97;
    assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "97"));
    offers_init(&offers);
    offers.theirs.world = 98;
    assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "98"));
    offers_init(&offers);
    offers.theirs.from = 3;
    assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_ERR_REFUSED);
    offers_init(&offers);
    offers.theirs.to = 3;
    assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_ERR_REFUSED);
}

static void offers_that_point_out_of_their_segment_are_refused(void **state)
{
    const struct segment_place wrong[] = {
        {.marks = 4096, .buffers = 8192},             /* behind the end */
        {.marks = 4096, .buffers = 7296},             /* the last buffer reaches over it */
        {.marks = 7808, .buffers = 4608},             /* the last mark reaches over it */
        {.marks = 4096, .buffers = 4609},             /* not aligned */
        {.marks = 128, .buffers = 4608},              /* in the page */
        {.marks = 4096, .buffers = 0},                /* the page itself */
        {.marks = UINT64_MAX - 127, .buffers = 4608}, /* wraps around */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct offers offers;

        offers_init(&offers);
        offers.theirs.lanes[0].place = wrong[i];
        assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_ERR_FORMAT);
    }
}

static void lane_counts_beyond_the_table_are_refused(void **state)
{
    const int32_t counts[] = {-1, SEGMENT_OFFER_LANES + 1, INT32_MAX, INT32_MIN};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct offers offers;

        offers_init(&offers);
        offers.theirs.lane_count = counts[i];
        assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_ERR_FORMAT);
    }
}

/* ---- host memory ---- */

struct host {
    char root[64];
};

static void host_file(const struct host *host, const char *path, const char *text)
{
    char name[256];
    FILE *file;

    (void)snprintf(name, sizeof(name), "%s%s", host->root, path);
    for (char *slash = name + strlen(host->root) + 1; (slash = strchr(slash, '/')) != NULL;
         slash++) {
        *slash = '\0';
        assert_true(mkdir(name, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    file = fopen(name, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void host_init(struct host *host)
{
    (void)snprintf(host->root, sizeof(host->root), "/tmp/weir-test-host-XXXXXX");
    assert_non_null(mkdtemp(host->root));
    host_file(host, "/proc/meminfo",
              "MemTotal:        2000000 kB\nMemFree:  7 kB\nMemAvailable:   1000000 kB\n");
}

static void host_release(const struct host *host)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -r %s", host->root);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void a_host_without_control_groups_has_what_is_available(void **state)
{
    struct host host;

    (void)state;
    host_init(&host);
    assert_int_equal(host_memory_room(host.root), 1024000000);
    host_release(&host);
}

/* The limit stands one level above the process's own group, whose own limit is "max". */
static void a_limit_anywhere_above_counts_with_file_cache_as_room(void **state)
{
    struct host host;

    (void)state;
    host_init(&host);
    host_file(&host, "/proc/self/cgroup", "1:name=systemd:/x\n0::/pod/box\n");
    host_file(&host, "/sys/fs/cgroup/pod/box/memory.max", "max\n");
    host_file(&host, "/sys/fs/cgroup/pod/box/memory.current", "100\n");
    host_file(&host, "/sys/fs/cgroup/pod/memory.max", "5000\n");
    host_file(&host, "/sys/fs/cgroup/pod/memory.current", "3000\n");
    host_file(&host, "/sys/fs/cgroup/pod/memory.stat",
              "anon 1\nfile 9\ninactive_file 200\nactive_file 50\n");
    assert_int_equal(host_memory_room(host.root), 5000 - (3000 - 250));
    host_file(&host, "/sys/fs/cgroup/pod/box/memory.max", "300\n");
    assert_int_equal(host_memory_room(host.root), 200);
    host_file(&host, "/sys/fs/cgroup/pod/box/memory.current", "301\n");
    assert_int_equal(host_memory_room(host.root), 0);
    host_release(&host);
}

static void limits_of_the_first_version_of_control_groups_count_too(void **state)
{
    struct host host;

    (void)state;
    host_init(&host);
    host_file(&host, "/proc/self/cgroup", "4:memory:/docker/7\n3:cpu:/docker/7\n0::/\n");
    host_file(&host, "/sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes", "7000\n");
    host_file(&host, "/sys/fs/cgroup/memory/docker/7/memory.usage_in_bytes", "6000\n");
    host_file(&host, "/sys/fs/cgroup/memory/docker/7/memory.stat",
              "inactive_file 1\ntotal_inactive_file 20\ntotal_active_file 3\n");
    assert_int_equal(host_memory_room(host.root), 1023);
    host_release(&host);
}

static void a_system_that_says_nothing_has_no_known_limit(void **state)
{
    (void)state;
    assert_int_equal(host_memory_room("/nonexistent-weir-root"), SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_ring_is_lost_between_arming_and_sleeping),
        cmocka_unit_test(a_ring_after_the_arming_makes_the_sleep_return_at_once),
        cmocka_unit_test(lanes_are_laid_out_one_behind_the_other),
        cmocka_unit_test(a_layout_that_overflows_is_told_and_changes_nothing),
        cmocka_unit_test(two_mappings_of_a_segment_show_the_same_bytes),
        cmocka_unit_test(a_segment_that_is_not_what_was_told_is_refused),
        cmocka_unit_test(offers_that_fit_agree),
        cmocka_unit_test(offers_of_other_builds_or_jobs_are_refused_with_both_values),
        cmocka_unit_test(offers_that_point_out_of_their_segment_are_refused),
        cmocka_unit_test(lane_counts_beyond_the_table_are_refused),
        cmocka_unit_test(a_host_without_control_groups_has_what_is_available),
        cmocka_unit_test(a_limit_anywhere_above_counts_with_file_cache_as_room),
        cmocka_unit_test(limits_of_the_first_version_of_control_groups_count_too),
        cmocka_unit_test(a_system_that_says_nothing_has_no_known_limit),
    };

    return cmocka_run_group_tests_name("segment", tests, NULL, NULL);
}
