/* Collectives between ranks that are threads: numbers, order and overlapping groups. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm_rig.h"

#define LARGE       ((size_t)(1 << 18) + 5) /* a little over 1 MiB */
#define BLOCK_BYTES ((LARGE + 64) * sizeof(float))
#define ALL         0 /* the group of all ranks */

static const int32_t all_ranks[RIG_RANKS_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};

/* All ranks are one group, and no rank has a lane. */
static void connect_all(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, comm_share(self->comm, BLOCK_BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_group(self, ALL, 0, 1, self->rig->world) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* ---- Slices. ---- */

struct slice_case {
    size_t elems;
    int32_t count;
    size_t parts[4]; /* of the first members; the others have none */
};

static void slices_are_equal_parts_of_sixteen_floats_with_the_rest_at_the_end(void **state)
{
    const struct slice_case cases[] = {
        {.elems = 0, .count = 2, .parts = {0}},
        {.elems = 1, .count = 2, .parts = {1}},
        {.elems = 16, .count = 2, .parts = {16}},
        {.elems = 17, .count = 2, .parts = {16, 1}},
        {.elems = 32, .count = 2, .parts = {16, 16}},
        {.elems = 33, .count = 2, .parts = {32, 1}},
        {.elems = 100, .count = 3, .parts = {48, 48, 4}},
        {.elems = 100, .count = 8, .parts = {16, 16, 16, 16}},
        {.elems = 4096, .count = 4, .parts = {1024, 1024, 1024, 1024}},
        {.elems = SIZE_MAX, .count = 2, .parts = {SIZE_MAX / 2 + 1, SIZE_MAX / 2}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t at = 0;

        for (int32_t k = 0; k < 4 && k < cases[i].count; k++) {
            size_t first = 99;
            size_t elems = 99;

            comm_slice(cases[i].elems, cases[i].count, k, &first, &elems);
            assert_int_equal(first, at);
            assert_int_equal(elems, cases[i].parts[k]);
            at += elems;
        }
    }
}

static void slices_cover_everything_once(void **state)
{
    (void)state;
    for (size_t elems = 0; elems < 700; elems++) {
        for (int32_t count = 2; count <= COMM_GROUP_MEMBERS; count++) {
            size_t at = 0;

            for (int32_t k = 0; k < count; k++) {
                size_t first = 0;
                size_t part = 0;

                comm_slice(elems, count, k, &first, &part);
                assert_int_equal(first, at);
                at += part;
            }
            assert_int_equal(at, elems);
        }
    }
}

/* ---- Numbers. ---- */

static const size_t sizes[] = {0, 1, 15, 16, 17, 1000, LARGE};

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Where the host has the data, with room behind it. */
static float *host_of(struct rig_rank *self)
{
    return rig_host(self, BLOCK_BYTES);
}

/* Where the data of case `i` begins: on a cache line, and off one. */
static float *place_of(struct rig_rank *self, uint32_t i)
{
    return (float *)comm_shared(self->comm) + (i % 2 == 0 ? 0 : 3);
}

static enum status reduce_case(struct rig_rank *self, uint32_t i, float *data, size_t elems)
{
    const struct comm_rig *rig = self->rig;
    enum comm_op op = i < SIZES ? COMM_SUM : COMM_MAX;
    float *block = place_of(self, i);
    size_t bytes = (elems + 1) * sizeof(float);

    TRY(rig_put(self, block, data, bytes));
    TRY(comm_all_reduce(self->groups[ALL], block, elems, op, &rig->cancel, rig->deadline_ns));
    return rig_get(self, data, block, bytes);
}

static void reduce_every_size(struct rig_rank *self)
{
    int32_t world = self->rig->world;
    float *data = host_of(self);

    for (uint32_t i = 0; i < 2 * SIZES; i++) {
        size_t elems = sizes[i % SIZES];
        bool right;

        rig_write_floats(data, 0, elems, self->rank, i);
        data[elems] = 77.0F;
        RIG_EXPECT(self, reduce_case(self, i, data, elems) == STATUS_OK);
        right = i < SIZES ? rig_reads_sum(data, 0, elems, all_ranks, world, i)
                          : rig_reads_max(data, 0, elems, all_ranks, world, i);
        RIG_EXPECT(self, right && data[elems] == 77.0F);
    }
}

static enum status scatter_case(struct rig_rank *self, uint32_t i, float *data, size_t elems)
{
    const struct comm_rig *rig = self->rig;
    float *block = place_of(self, i);

    TRY(rig_put(self, block, data, elems * sizeof(float)));
    TRY(comm_reduce_scatter(self->groups[ALL], block, elems, &rig->cancel, rig->deadline_ns));
    return rig_get(self, data, block, elems * sizeof(float));
}

static void scatter_every_size(struct rig_rank *self)
{
    int32_t world = self->rig->world;
    int32_t own[] = {self->rank};
    float *data = host_of(self);

    for (uint32_t i = 0; i < SIZES; i++) {
        size_t first = 0;
        size_t elems = 0;
        size_t end;

        comm_slice(sizes[i], world, self->rank, &first, &elems);
        end = first + elems;
        rig_write_floats(data, 0, sizes[i], self->rank, i);
        RIG_EXPECT(self, scatter_case(self, i, data, sizes[i]) == STATUS_OK);
        RIG_EXPECT(self, rig_reads_sum(data + first, first, elems, all_ranks, world, i));
        RIG_EXPECT(self, rig_reads_sum(data, 0, first, own, 1, i));
        RIG_EXPECT(self, rig_reads_sum(data + end, end, sizes[i] - end, own, 1, i));
    }
}

/* Whether each slice is what its member has. */
static bool reads_slices(const float *data, size_t elems, const int32_t *ranks, int32_t count,
                         uint32_t number)
{
    bool right = true;

    for (int32_t k = 0; k < count; k++) {
        size_t first = 0;
        size_t part = 0;

        comm_slice(elems, count, k, &first, &part);
        right = right && rig_reads_sum(data + first, first, part, &ranks[k], 1, number);
    }
    return right;
}

/* What a member has filled belongs to it alone; the rest is old. */
static void gather_every_size(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;

    for (uint32_t i = 0; i < SIZES; i++) {
        float *data = host_of(self);
        float *block = place_of(self, i);
        size_t bytes = sizes[i] * sizeof(float);
        size_t first = 0;
        size_t elems = 0;

        memset(data, 0xEE, bytes);
        comm_slice(sizes[i], rig->world, self->rank, &first, &elems);
        rig_write_floats(data + first, first, elems, self->rank, i);
        RIG_EXPECT(self, rig_put(self, block, data, bytes) == STATUS_OK);
        RIG_EXPECT(self, comm_all_gather(self->groups[ALL], block, sizes[i], &rig->cancel,
                                         rig->deadline_ns) == STATUS_OK);
        RIG_EXPECT(self, rig_get(self, data, block, bytes) == STATUS_OK);
        RIG_EXPECT(self, reads_slices(data, sizes[i], all_ranks, rig->world, i));
    }
}

static void on_every_world(rig_fn work)
{
    const int32_t worlds[] = {2, 3, 4, 5, 8};

    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        rig_run_on_two_kinds_of_hosts(worlds[i], connect_all, work);
    }
}

static void all_reduce_has_the_bits_of_the_loop_in_rank_order_at_every_member(void **state)
{
    (void)state;
    on_every_world(reduce_every_size);
}

static void reduce_scatter_has_them_in_the_own_slice_and_leaves_the_rest(void **state)
{
    (void)state;
    on_every_world(scatter_every_size);
}

static void all_gather_brings_every_slice_to_every_member(void **state)
{
    (void)state;
    on_every_world(gather_every_size);
}

/* Bits that are no number travel as they are. */
static void gather_bits(struct rig_rank *self)
{
    const uint32_t odd[] = {0x7f800001U, 0xffc12345U, 0x80000000U, 0x00000001U};
    uint32_t *words = rig_host(self, 32 * sizeof(uint32_t));
    float *block = comm_shared(self->comm);

    for (size_t i = 0; i < 16; i++) {
        words[(size_t)self->rank * 16 + i] = odd[i % 4] + (uint32_t)self->rank;
    }
    RIG_EXPECT(self, rig_put(self, block, words, 32 * sizeof(uint32_t)) == STATUS_OK);
    RIG_EXPECT(self, comm_all_gather(self->groups[ALL], block, 32, &self->rig->cancel,
                                     self->rig->deadline_ns) == STATUS_OK);
    RIG_EXPECT(self, rig_get(self, words, block, 32 * sizeof(uint32_t)) == STATUS_OK);
    for (uint32_t i = 0; i < 32; i++) {
        RIG_EXPECT(self, words[i] == odd[i % 4] + i / 16);
    }
}

static void all_gather_moves_bits_that_are_no_number_unchanged(void **state)
{
    (void)state;
    rig_run_on_two_kinds_of_hosts(2, connect_all, gather_bits);
}

static bool has_counted(const struct group *group, enum comm_collective collective, uint64_t calls,
                        uint64_t bytes)
{
    struct comm_traffic traffic = comm_group_traffic(group, collective);

    return traffic.calls == calls && traffic.bytes == bytes;
}

static void count_traffic(struct rig_rank *self)
{
    float *data = comm_shared(self->comm);
    const struct group *all = self->groups[ALL];

    RIG_EXPECT(self, has_counted(all, COMM_ALL_REDUCE, 0, 0));
    RIG_EXPECT(self, comm_all_reduce(self->groups[ALL], data, 1000, COMM_MAX, NULL,
                                     self->rig->deadline_ns) == STATUS_OK);
    RIG_EXPECT(self, comm_all_reduce(self->groups[ALL], data, 1, COMM_SUM, NULL,
                                     self->rig->deadline_ns) == STATUS_OK);
    RIG_EXPECT(self, comm_reduce_scatter(self->groups[ALL], data, 10, NULL,
                                         self->rig->deadline_ns) == STATUS_OK);
    RIG_EXPECT(self, comm_all_gather(self->groups[ALL], data, 1, NULL, self->rig->deadline_ns) ==
                         STATUS_OK);
    RIG_EXPECT(self, has_counted(all, COMM_ALL_REDUCE, 2, 4004));
    RIG_EXPECT(self, has_counted(all, COMM_REDUCE_SCATTER, 1, 40));
    RIG_EXPECT(self, has_counted(all, COMM_ALL_GATHER, 1, 4));
}

static void traffic_is_counted_once_a_call(void **state)
{
    (void)state;
    rig_run_on_two_kinds_of_hosts(3, connect_all, count_traffic);
}

/* ---- A grid of 2 by 2: every rank is in two groups, with no member but itself in both. ---- */

#define GRID_BYTES ((size_t)64 << 10)
#define GRID_TURNS RIG_TURNS(10000)

enum {
    TP, /* 0 1 | 2 3 */
    DP, /* 0 2 | 1 3 */
    EVERYBODY
};

static void connect_grid(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, comm_share(self->comm, GRID_BYTES) == STATUS_OK);
    RIG_EXPECT(self, rig_group(self, TP, self->rank / 2 * 2, 1, 2) == STATUS_OK);
    RIG_EXPECT(self, rig_group(self, DP, self->rank % 2, 2, 2) == STATUS_OK);
    RIG_EXPECT(self, rig_group(self, EVERYBODY, 0, 1, 4) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

struct turn {
    int group;
    int kind; /* 0 sum, 1 max, 2 reduce_scatter, 3 all_gather */
    size_t offset;
    size_t elems;
};

/* The same at every rank. */
static struct turn turn_of(uint64_t *seed)
{
    struct turn turn = {.group = (int)(rig_random(seed) % 3), .kind = (int)(rig_random(seed) % 4)};

    turn.offset = rig_random(seed) % 1000;
    turn.elems = rig_random(seed) % 8 == 0 ? rig_random(seed) % 4000 : rig_random(seed) % 100;
    return turn;
}

static int32_t members_of(const struct rig_rank *self, int group, int32_t ranks[4])
{
    int32_t first[] = {self->rank / 2 * 2, self->rank % 2, 0};
    int32_t step[] = {1, 2, 1};
    int32_t count = group == EVERYBODY ? 4 : 2;

    for (int32_t k = 0; k < count; k++) {
        ranks[k] = first[group] + k * step[group];
    }
    return count;
}

static int32_t index_of(const int32_t *ranks, int32_t rank)
{
    int32_t k = 0;

    while (ranks[k] != rank) {
        k++;
    }
    return k;
}

static enum status call_turn(struct rig_rank *self, const struct turn *turn, float *block)
{
    const struct comm_rig *rig = self->rig;
    struct group *group = self->groups[turn->group];

    switch (turn->kind) {
    case 0:
    case 1:
        return comm_all_reduce(group, block, turn->elems, turn->kind == 0 ? COMM_SUM : COMM_MAX,
                               &rig->cancel, rig->deadline_ns);
    case 2:
        return comm_reduce_scatter(group, block, turn->elems, &rig->cancel, rig->deadline_ns);
    default:
        return comm_all_gather(group, block, turn->elems, &rig->cancel, rig->deadline_ns);
    }
}

/* Does the turn and checks it. */
static bool take_turn(struct rig_rank *self, const struct turn *turn, uint32_t number)
{
    float *block = (float *)comm_shared(self->comm) + turn->offset;
    size_t elems = turn->elems;
    float *data = rig_host(self, GRID_BYTES);
    size_t first = 0;
    size_t part = 0;
    int32_t ranks[4] = {0};
    int32_t count = members_of(self, turn->group, ranks);

    rig_write_floats(data, 0, elems, self->rank, number);
    if (rig_put(self, block, data, elems * sizeof(float)) != STATUS_OK ||
        call_turn(self, turn, block) != STATUS_OK ||
        rig_get(self, data, block, elems * sizeof(float)) != STATUS_OK) {
        return false;
    }
    switch (turn->kind) {
    case 0:
        return rig_reads_sum(data, 0, elems, ranks, count, number);
    case 1:
        return rig_reads_max(data, 0, elems, ranks, count, number);
    case 2:
        comm_slice(elems, count, index_of(ranks, self->rank), &first, &part);
        return rig_reads_sum(data + first, first, part, ranks, count, number);
    default:
        return reads_slices(data, elems, ranks, count, number);
    }
}

static void soak(struct rig_rank *self)
{
    uint64_t plan_seed = 4711;
    uint64_t delay_seed = 77 + (uint64_t)self->rank;

    for (uint32_t number = 0; number < GRID_TURNS; number++) {
        const struct turn turn = turn_of(&plan_seed);
        bool good;

        for (uint32_t left = rig_random(&delay_seed) % 16 == 0 ? rig_random(&delay_seed) % 8 : 0;
             left > 0; left--) {
            (void)sched_yield();
        }
        if (rig_random(&delay_seed) % 512 == 0) {
            clock_sleep_ns(CLOCK_MS / 5);
        }
        good = take_turn(self, &turn, number);
        if (!good) {
            cancel_request(&self->rig->cancel); /* frees the others */
        }
        RIG_EXPECT(self, good);
    }
}

static void ten_thousand_calls_on_overlapping_groups_with_delays_are_all_right(void **state)
{
    (void)state;
    rig_run_on_two_kinds_of_hosts(4, connect_grid, soak);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_equal_parts_of_sixteen_floats_with_the_rest_at_the_end),
        cmocka_unit_test(slices_cover_everything_once),
        cmocka_unit_test(all_reduce_has_the_bits_of_the_loop_in_rank_order_at_every_member),
        cmocka_unit_test(reduce_scatter_has_them_in_the_own_slice_and_leaves_the_rest),
        cmocka_unit_test(all_gather_brings_every_slice_to_every_member),
        cmocka_unit_test(all_gather_moves_bits_that_are_no_number_unchanged),
        cmocka_unit_test(traffic_is_counted_once_a_call),
        cmocka_unit_test(ten_thousand_calls_on_overlapping_groups_with_delays_are_all_right),
    };

    return cmocka_run_group_tests_name("comm_group", tests, NULL, NULL);
}
