/* How groups and shared blocks start: what is refused, who meets whom, and what peers can read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "collectives/segment_offer.h"
#include "comm_rig.h"

#define BYTES 10000 /* no multiple of a page */

static enum status open_ranks(struct rig_rank *self, const int32_t *ranks, int32_t count)
{
    const struct group_config config = {.ranks = ranks, .count = count};

    return comm_group_open(self->comm, &config, &self->groups[0]);
}

static void a_group_that_makes_no_sense_is_refused(void **state)
{
    const int32_t good[] = {0, 1, 3};
    const int32_t falling[] = {0, 3, 1};
    const int32_t twice[] = {0, 1, 1};
    const int32_t without[] = {0, 2, 3};
    const int32_t outside[] = {0, 1, 4};
    const int32_t negative[] = {-1, 0, 1};
    int32_t many[COMM_GROUP_MEMBERS + 1];
    struct comm_rig rig;
    struct rig_rank *self = &rig.ranks[1];

    (void)state;
    rig_init(&rig, 4, false);
    for (int32_t i = 0; i <= COMM_GROUP_MEMBERS; i++) {
        many[i] = i;
    }
    assert_int_equal(rig_open(self), STATUS_OK);
    assert_int_equal(open_ranks(self, falling, 3), STATUS_ERR_INVALID);
    assert_int_equal(open_ranks(self, twice, 3), STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, "0, 1, 1"));
    assert_int_equal(open_ranks(self, without, 3), STATUS_ERR_INVALID);
    assert_int_equal(open_ranks(self, outside, 3), STATUS_ERR_INVALID);
    assert_int_equal(open_ranks(self, negative, 3), STATUS_ERR_INVALID);
    assert_int_equal(open_ranks(self, good + 1, 1), STATUS_ERR_INVALID);
    assert_int_equal(open_ranks(self, many, COMM_GROUP_MEMBERS + 1), STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, "65"));
    assert_int_equal(open_ranks(self, good, 3), STATUS_OK);
    rig_release(&rig);
}

static void two_ranks_have_eight_groups_in_common_at_most(void **state)
{
    struct comm_rig rig;
    struct rig_rank *self = &rig.ranks[1];

    (void)state;
    rig_init(&rig, 4, false);
    assert_int_equal(rig_open(self), STATUS_OK);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(rig_group(self, 0, 0, 1, 3), STATUS_OK);
    }
    assert_int_equal(rig_group(self, 0, 1, 1, 3), STATUS_ERR_INVALID); /* ranks 1, 2, 3 */
    assert_non_null(strstr(status_last()->message, "8 groups with rank 2"));
    assert_int_equal(rig_group(self, 0, 1, 2, 2), STATUS_OK); /* ranks 1 and 3 */
    rig_release(&rig);
}

static void a_world_of_one_has_a_block_too(void **state)
{
    struct comm_rig rig;
    struct rig_rank *self = &rig.ranks[0];
    const unsigned char *block;

    (void)state;
    rig_init(&rig, 1, false);
    assert_int_equal(rig_open(self), STATUS_OK);
    assert_int_equal(comm_share(self->comm, BYTES), STATUS_OK);
    assert_int_equal(rig_connect(self), STATUS_OK);
    block = comm_shared(self->comm);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 4096, 0);
    for (size_t i = 0; i < BYTES; i++) {
        assert_int_equal(block[i], 0);
    }
    assert_int_equal(comm_reserved_bytes(self->comm), 0);
    rig_release(&rig);
}

static void a_rank_that_shares_nothing_has_no_block(void **state)
{
    struct comm_rig rig;

    (void)state;
    rig_init(&rig, 1, false);
    assert_int_equal(rig_open(&rig.ranks[0]), STATUS_OK);
    assert_int_equal(comm_share(rig.ranks[0].comm, 0), STATUS_OK);
    assert_int_equal(rig_connect(&rig.ranks[0]), STATUS_OK);
    assert_null(comm_shared(rig.ranks[0].comm));
    rig_release(&rig);
}

static void check_no_memory(size_t bytes, const char *word)
{
    struct comm_rig rig;
    struct rig_rank *self = &rig.ranks[0];

    rig_init(&rig, 2, false);
    assert_int_equal(rig_open(self), STATUS_OK);
    assert_int_equal(comm_share(self->comm, bytes), STATUS_OK);
    assert_int_equal(rig_group(self, 0, 0, 1, 2), STATUS_OK);
    assert_int_equal(rig_connect(self), STATUS_ERR_NO_MEMORY);
    assert_non_null(strstr(status_last()->message, word));
    rig_release(&rig);
}

static void a_block_that_is_too_large_is_refused_with_bytes(void **state)
{
    (void)state;
    /* 2^46 bytes, the page in front, and the page of the group's mark. */
    check_no_memory((size_t)1 << 46, "70368744185856 bytes");
    check_no_memory((size_t)1 << 46, "available");
    check_no_memory(SIZE_MAX, "18446744073709551615 bytes");
    check_no_memory(SIZE_MAX / 2, "9223372036854775807 bytes");
}

/* ---- Who meets whom. ---- */

/* Rank 0 has a lane with 1 and a group with 2; rank 1 has a lane and a group with 3. */
static void open_mixture(struct rig_rank *self)
{
    const int32_t pairs[] = {2, 3, 0, 1};

    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, comm_share(self->comm, BYTES + (size_t)self->rank) == STATUS_OK);
    if (self->rank < 2) {
        RIG_EXPECT(self, rig_lane(self, 0, 1 - self->rank, 0, self->rank == 0, 2, 64) == STATUS_OK);
    }
    if (self->rank == 1 || self->rank == 3) {
        RIG_EXPECT(self,
                   rig_lane(self, 1, pairs[self->rank], 1, self->rank == 3, 3, 4000) == STATUS_OK);
    }
    RIG_EXPECT(self, rig_group(self, 0, self->rank % 2, 2, 2) == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* Fills its block, then reads both ends of that of the other member. */
static void read_the_other(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;
    unsigned char *block = comm_shared(self->comm);
    float *data = (float *)(void *)block;
    int32_t peer = (self->rank + 2) % 4;
    unsigned char last = 0;
    float first = -1.0F;

    data[0] = (float)self->rank;
    data[1] = 0.0F;
    block[BYTES - 1 + self->rank] = (unsigned char)(100 + self->rank);
    RIG_EXPECT(self, comm_all_reduce(self->groups[0], data + 1, 1, COMM_SUM, &rig->cancel,
                                     rig->deadline_ns) == STATUS_OK);
    RIG_EXPECT(self, comm_read(self->comm, peer, 0, &first, sizeof(first)) == STATUS_OK);
    RIG_EXPECT(self, first == (float)peer);
    RIG_EXPECT(self,
               comm_read(self->comm, peer, (size_t)(BYTES - 1 + peer), &last, 1) == STATUS_OK);
    RIG_EXPECT(self, last == 100 + peer);
}

static void ranks_meet_for_lanes_for_groups_and_for_both(void **state)
{
    struct comm_rig rig;
    float data = 0.0F;

    (void)state;
    rig_init(&rig, 4, true);
    rig_run(&rig, open_mixture);
    rig_assert_no_notes(&rig);
    rig_run(&rig, read_the_other);
    rig_assert_no_notes(&rig);
    /* A lane is enough to read, and without one there is nobody. */
    assert_int_equal(comm_read(rig.ranks[0].comm, 1, 0, &data, sizeof(data)), STATUS_OK);
    assert_true(data == 1.0F);
    assert_int_equal(comm_read(rig.ranks[0].comm, 3, 0, &data, sizeof(data)), STATUS_ERR_INVALID);
    assert_int_equal(comm_read(rig.ranks[0].comm, 0, 0, &data, sizeof(data)), STATUS_ERR_INVALID);
    assert_int_equal(comm_read(rig.ranks[0].comm, -1, 0, &data, sizeof(data)), STATUS_ERR_INVALID);
    rig_release(&rig);
}

static void a_read_beyond_the_block_is_refused_with_both_sizes(void **state)
{
    struct comm_rig rig;
    struct comm *comm;
    unsigned char data[8];

    (void)state;
    rig_init(&rig, 4, true);
    rig_run(&rig, open_mixture);
    rig_assert_no_notes(&rig);
    comm = rig.ranks[0].comm;
    assert_int_equal(comm_read(comm, 2, BYTES + 2 - 8, data, 8), STATUS_OK);
    assert_int_equal(comm_read(comm, 2, BYTES + 2, data, 0), STATUS_OK);
    assert_int_equal(comm_read(comm, 2, BYTES + 2 - 7, data, 8), STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, "10002"));
    assert_non_null(strstr(status_last()->message, "9995"));
    assert_int_equal(comm_read(comm, 2, SIZE_MAX - 3, data, 8), STATUS_ERR_INVALID);
    assert_int_equal(comm_read(comm, 2, 0, data, SIZE_MAX), STATUS_ERR_INVALID);
    rig_release(&rig);
}

/* ---- Groups that disagree. ---- */

/* Rank 2 is a name only: it never comes. */
static void open_with_other_members(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self,
               self->rank == 2 || rig_group(self, 0, 0, 1, self->rank == 0 ? 2 : 3) == STATUS_OK);
    (void)rig_connect(self);
}

static void open_in_other_order(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    for (int32_t i = 0; i < 2 && self->rank < 2; i++) {
        int32_t count = (self->rank + i) % 2 == 0 ? 2 : 3;

        RIG_EXPECT(self, rig_group(self, i, 0, 1, count) == STATUS_OK);
    }
    (void)rig_connect(self);
}

static void open_with_group_more(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, self->rank == 2 || rig_group(self, 0, 0, 1, 2) == STATUS_OK);
    RIG_EXPECT(self, self->rank != 1 || rig_group(self, 1, 0, 1, 3) == STATUS_OK);
    (void)rig_connect(self);
}

/* Both have the lane, and rank 0 believes in a group. */
static void open_lane_against_group(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    RIG_EXPECT(self, self->rank != 0 || rig_group(self, 0, 0, 1, 2) == STATUS_OK);
    RIG_EXPECT(self, self->rank == 2 ||
                         rig_lane(self, 0, 1 - self->rank, 0, self->rank == 0, 1, 64) == STATUS_OK);
    (void)rig_connect(self);
}

/* Rank 1 has a group with rank 0, which has one with rank 2 alone. */
static void open_with_stranger(struct rig_rank *self)
{
    RIG_EXPECT(self, rig_open(self) == STATUS_OK);
    if (self->rank < 2) {
        RIG_EXPECT(self, rig_group(self, 0, 0, self->rank == 0 ? 2 : 1, 2) == STATUS_OK);
    }
    (void)rig_connect(self);
}

static void groups_that_disagree_are_named_with_both_values_at_both_ends(void **state)
{
    (void)state;
    rig_assert_both_refuse(3, open_with_other_members, "2 members (0, 1)", "3 members (0, 1, 2)");
    rig_assert_both_refuse(3, open_in_other_order, "2 members (0, 1)", "3 members (0, 1, 2)");
    rig_assert_both_refuse(3, open_with_group_more, "group of ranks 0, 1, 2",
                           "rank 0 has no such group");
    rig_assert_both_refuse(3, open_lane_against_group, "group of ranks 0, 1",
                           "rank 1 has no such group");
    rig_assert_both_refuse(3, open_with_stranger, "group of ranks 0, 1",
                           "rank 0 has no such group");
}

/* ---- Offers that contradict themselves. ---- */

struct offers {
    struct segment_offer mine;
    struct segment_offer theirs;
};

static void offers_init(struct offers *offers)
{
    const struct segment_group group = {.count = 3, .ranks = {0, 1, 5}, .mark = 4096};

    segment_offer_init(&offers->mine, 6, 0, 1, 16384);
    segment_offer_init(&offers->theirs, 6, 1, 0, 16384);
    offers->mine.groups[0] = group;
    offers->mine.group_count = 1;
    offers->theirs.groups[0] = group;
    offers->theirs.group_count = 1;
    offers->theirs.shared = (struct segment_block){.offset = 8192, .bytes = 8192};
}

static void offers_of_groups_that_point_nowhere_are_refused(void **state)
{
    const uint64_t marks[] = {0, 4095, 4096 + 64, 16384 - 128, 16384, UINT64_MAX - 127};
    const struct segment_block blocks[] = {{0, 8192},          {8192, 8193},
                                           {8192 + 128, 128},  {16384, 1},
                                           {8192, UINT64_MAX}, {UINT64_MAX - 4095, 8192}};
    struct offers offers;

    (void)state;
    offers_init(&offers);
    assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_OK);
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        offers_init(&offers);
        offers.theirs.groups[0].mark = marks[i];
        assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_ERR_FORMAT);
    }
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        offers_init(&offers);
        offers.theirs.shared = blocks[i];
        assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_ERR_FORMAT);
    }
}

static void counts_beyond_the_tables_are_refused(void **state)
{
    const int32_t counts[] = {-1, SEGMENT_OFFER_GROUPS + 1, INT32_MAX, INT32_MIN};
    const int32_t members[] = {-1, 0, 1, SEGMENT_GROUP_MEMBERS + 1, INT32_MAX, INT32_MIN};
    struct offers offers;

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        offers_init(&offers);
        offers.theirs.group_count = counts[i];
        assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_ERR_FORMAT);
    }
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        offers_init(&offers);
        offers.theirs.groups[0].count = members[i];
        assert_int_equal(segment_offer_agree(&offers.mine, &offers.theirs), STATUS_ERR_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_that_makes_no_sense_is_refused),
        cmocka_unit_test(two_ranks_have_eight_groups_in_common_at_most),
        cmocka_unit_test(a_world_of_one_has_a_block_too),
        cmocka_unit_test(a_rank_that_shares_nothing_has_no_block),
        cmocka_unit_test(a_block_that_is_too_large_is_refused_with_bytes),
        cmocka_unit_test(ranks_meet_for_lanes_for_groups_and_for_both),
        cmocka_unit_test(a_read_beyond_the_block_is_refused_with_both_sizes),
        cmocka_unit_test(groups_that_disagree_are_named_with_both_values_at_both_ends),
        cmocka_unit_test(offers_of_groups_that_point_nowhere_are_refused),
        cmocka_unit_test(counts_beyond_the_tables_are_refused),
    };

    return cmocka_run_group_tests_name("comm_group_connect", tests, NULL, NULL);
}
