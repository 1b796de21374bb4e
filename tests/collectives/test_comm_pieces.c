/* Collectives that work on many pieces at once: numbers and counts. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "comm_pieces_rig.h"

#define ALL 0 /* the group of all ranks */

/* ---- Numbers. ---- */

static void scatter_pieces(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;
    unsigned char *block = comm_shared(self->comm);
    unsigned char *host = rig_host(self, 2 * PIECES_BLOCK_BYTES);
    struct comm_piece pieces[PIECES_MOST];
    struct comm_piece singles[PIECES_MOST];
    struct comm_piece there[PIECES_MOST];
    int32_t count = pieces_lay(host, false, pieces);

    memset(host, PIECES_UNTOUCHED, 2 * PIECES_BLOCK_BYTES);
    (void)pieces_lay(host + PIECES_BLOCK_BYTES, false, singles);
    pieces_fill(pieces, count, self->rank);
    pieces_fill(singles, count, self->rank);
    RIG_EXPECT(self, rig_put(self, block, host, 2 * PIECES_BLOCK_BYTES) == STATUS_OK);
    pieces_shift(pieces, count, host, block, there);
    RIG_EXPECT(self, comm_reduce_scatter_pieces(self->groups[ALL], there, count, &rig->cancel,
                                                rig->deadline_ns) == STATUS_OK);
    pieces_shift(singles, count, host, block, there);
    for (int32_t i = 0; i < count; i++) {
        RIG_EXPECT(self, comm_reduce_scatter(self->groups[ALL], there[i].data, there[i].elems,
                                             &rig->cancel, rig->deadline_ns) == STATUS_OK);
    }
    RIG_EXPECT(self, rig_get(self, host, block, 2 * PIECES_BLOCK_BYTES) == STATUS_OK);
    RIG_EXPECT(self, pieces_are_scattered(self, pieces, count));
    RIG_EXPECT(self, pieces_guards_hold(pieces, count));
    RIG_EXPECT(self, memcmp(host, host + PIECES_BLOCK_BYTES, PIECES_BLOCK_BYTES) == 0);
}

static void gather_pieces(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;
    unsigned char *block = comm_shared(self->comm);
    unsigned char *host = rig_host(self, PIECES_BLOCK_BYTES);
    struct comm_piece pieces[PIECES_MOST];
    struct comm_piece there[PIECES_MOST];
    int32_t count = pieces_lay(host, true, pieces);

    memset(host, PIECES_UNTOUCHED, PIECES_BLOCK_BYTES);
    for (int32_t i = 0; i < count; i++) {
        size_t first = 0;
        size_t elems = 0;

        comm_slice(pieces[i].elems, rig->world, self->rank, &first, &elems);
        for (size_t e = first; e < first + elems; e++) {
            pieces_write_element(&pieces[i], i, e, self->rank);
        }
    }
    RIG_EXPECT(self, rig_put(self, block, host, PIECES_BLOCK_BYTES) == STATUS_OK);
    pieces_shift(pieces, count, host, block, there);
    RIG_EXPECT(self, comm_all_gather_pieces(self->groups[ALL], there, count, &rig->cancel,
                                            rig->deadline_ns) == STATUS_OK);
    RIG_EXPECT(self, rig_get(self, host, block, PIECES_BLOCK_BYTES) == STATUS_OK);
    RIG_EXPECT(self, pieces_are_gathered(self, pieces, count));
    RIG_EXPECT(self, pieces_guards_hold(pieces, count));
}

static void on_every_world(rig_fn work)
{
    const int32_t worlds[] = {2, 3, 4, 5, 8};

    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        rig_run_on_two_kinds_of_hosts(worlds[i], pieces_connect, work);
    }
}

static void every_piece_is_scattered_with_the_bits_of_a_call_of_its_own(void **state)
{
    (void)state;
    on_every_world(scatter_pieces);
}

static void pieces_of_two_and_of_four_bytes_are_gathered_in_one_call(void **state)
{
    (void)state;
    on_every_world(gather_pieces);
}

/* ---- Counting. ---- */

static bool has_counted(const struct group *group, enum comm_collective collective, uint64_t calls,
                        uint64_t bytes)
{
    struct comm_traffic traffic = comm_group_traffic(group, collective);

    return traffic.calls == calls && traffic.bytes == bytes;
}

static void count_pieces(struct rig_rank *self)
{
    float *data = comm_shared(self->comm);
    struct group *all = self->groups[ALL];
    const int64_t until_ns = self->rig->deadline_ns;
    struct comm_piece pieces[] = {{.data = data, .elems = 10, .elem_bytes = 4},
                                  {.data = data + 100, .elems = 0, .elem_bytes = 4},
                                  {.data = data + 200, .elems = 7, .elem_bytes = 4}};

    RIG_EXPECT(self, comm_reduce_scatter_pieces(all, pieces, 3, NULL, until_ns) == STATUS_OK);
    RIG_EXPECT(self, has_counted(all, COMM_REDUCE_SCATTER, 1, 68));
    pieces[2].elem_bytes = 2;
    RIG_EXPECT(self, comm_all_gather_pieces(all, pieces, 3, NULL, until_ns) == STATUS_OK);
    RIG_EXPECT(self, has_counted(all, COMM_ALL_GATHER, 1, 54));
    /* Nothing at all is a call too. */
    RIG_EXPECT(self, comm_all_gather_pieces(all, NULL, 0, NULL, until_ns) == STATUS_OK);
    RIG_EXPECT(self, comm_all_gather_pieces(all, pieces + 1, 1, NULL, until_ns) == STATUS_OK);
    RIG_EXPECT(self, has_counted(all, COMM_ALL_GATHER, 3, 54));
    RIG_EXPECT(self, has_counted(all, COMM_ALL_REDUCE, 0, 0));
}

static void a_list_counts_once_with_the_bytes_of_its_elements(void **state)
{
    (void)state;
    rig_run_on_two_kinds_of_hosts(3, pieces_connect, count_pieces);
}

/* ---- Random lists, one after the other. ---- */

#define TURNS       RIG_TURNS(2000)
#define TURN_BYTES  (16 << 10) /* room for one list */
#define TURN_PIECES 12

/* The same list at every rank. */
static int32_t random_list(uint64_t *seed, void *from, struct comm_piece *pieces)
{
    float *block = from;
    int32_t count = (int32_t)(rig_random(seed) % (TURN_PIECES + 1));
    size_t at = rig_random(seed) % 8;

    for (int32_t i = 0; i < count; i++) {
        size_t elems = rig_random(seed) % 100;

        pieces[i] = (struct comm_piece){.data = block + at, .elems = elems, .elem_bytes = 4};
        at += elems + rig_random(seed) % 3;
    }
    return count;
}

static void soak(struct rig_rank *self)
{
    const struct comm_rig *rig = self->rig;
    struct group *all = self->groups[ALL];
    struct comm_piece pieces[TURN_PIECES];
    struct comm_piece there[TURN_PIECES];
    float *host = rig_host(self, TURN_BYTES);
    void *block = comm_shared(self->comm);
    uint64_t plan_seed = 4711;
    uint64_t delay_seed = 77 + (uint64_t)self->rank;

    for (uint32_t turn = 0; turn < TURNS; turn++) {
        int32_t count = random_list(&plan_seed, host, pieces);
        bool good;

        for (uint32_t left = rig_random(&delay_seed) % 8; left > 4; left--) {
            (void)sched_yield();
        }
        pieces_shift(pieces, count, host, block, there);
        pieces_fill(pieces, count, self->rank);
        good = rig_put(self, block, host, TURN_BYTES) == STATUS_OK &&
               comm_reduce_scatter_pieces(all, there, count, &rig->cancel, rig->deadline_ns) ==
                   STATUS_OK &&
               rig_get(self, host, block, TURN_BYTES) == STATUS_OK &&
               pieces_are_scattered(self, pieces, count);
        pieces_fill(pieces, count, self->rank);
        good = good && rig_put(self, block, host, TURN_BYTES) == STATUS_OK &&
               comm_all_gather_pieces(all, there, count, &rig->cancel, rig->deadline_ns) ==
                   STATUS_OK &&
               rig_get(self, host, block, TURN_BYTES) == STATUS_OK &&
               pieces_are_gathered(self, pieces, count);
        if (!good) {
            cancel_request(&self->rig->cancel); /* frees the others */
        }
        RIG_EXPECT(self, good);
    }
}

static void two_thousand_random_lists_with_delays_are_all_right(void **state)
{
    (void)state;
    rig_run_on_two_kinds_of_hosts(3, pieces_connect, soak);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_scattered_with_the_bits_of_a_call_of_its_own),
        cmocka_unit_test(pieces_of_two_and_of_four_bytes_are_gathered_in_one_call),
        cmocka_unit_test(a_list_counts_once_with_the_bytes_of_its_elements),
        cmocka_unit_test(two_thousand_random_lists_with_delays_are_all_right),
    };

    return cmocka_run_group_tests_name("comm_pieces", tests, NULL, NULL);
}
