#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <stdio.h>

#include "collectives/grid.h"

static void check_place(const struct grid_shape *shape, int32_t rank, int32_t pp, int32_t dp,
                        int32_t tp)
{
    struct grid grid;

    assert_int_equal(grid_init(&grid, shape, rank, shape->pp * shape->tp * shape->dp), STATUS_OK);
    assert_int_equal(grid.rank, rank);
    assert_int_equal(grid.pp, pp);
    assert_int_equal(grid.dp, dp);
    assert_int_equal(grid.tp, tp);
    assert_int_equal(grid_rank_of(shape, pp, tp, dp), rank);
}

/* The layout's definition, counted instead of computed: tp runs fastest, then dp, then pp. */
static void check_shape(const struct grid_shape *shape)
{
    int32_t rank = 0;

    for (int32_t pp = 0; pp < shape->pp; pp++) {
        for (int32_t dp = 0; dp < shape->dp; dp++) {
            for (int32_t tp = 0; tp < shape->tp; tp++) {
                check_place(shape, rank++, pp, dp, tp);
            }
        }
    }
}

static void every_rank_has_the_place_that_counting_gives(void **state)
{
    const struct grid_shape shapes[] = {{1, 1, 1}, {4, 1, 1}, {4, 2, 2}, {3, 5, 7}, {2, 1, 6}};

    (void)state;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        check_shape(&shapes[s]);
    }
}

/* The well-known example of 16 ranks with TP 2 and PP 4: pipelines [0,4,8,12], [1,5,9,13], ... */
static void the_pipelines_of_sixteen_ranks_are_those_of_the_example(void **state)
{
    const int32_t pipelines[4][4] = {{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}};
    const struct grid_shape shape = {.pp = 4, .tp = 2, .dp = 2};

    (void)state;
    for (int line = 0; line < 4; line++) {
        for (int place = 0; place < 4; place++) {
            struct grid grid;

            assert_int_equal(grid_init(&grid, &shape, pipelines[line][place], 16), STATUS_OK);
            assert_int_equal(grid.pp, place);
            for (int32_t pp = 0; pp < 4; pp++) {
                assert_int_equal(grid_stage_rank(&grid, pp), pipelines[line][pp]);
            }
        }
    }
}

/* Rank 13 of PP 4, TP 2, DP 2: 13 = 1 + 2·(0 + 2·3). */
static void a_place_names_what_there_are_several_of(void **state)
{
    static const struct {
        struct grid_shape shape;
        int32_t rank;
        const char *text;
    } cases[] = {
        {{.pp = 4, .tp = 2, .dp = 2}, 13, "stage 3, shard 1, replica 0"},
        {{.pp = 4, .tp = 2, .dp = 2}, 2, "stage 0, shard 0, replica 1"},
        {{.pp = 2, .tp = 3, .dp = 1}, 4, "stage 1, shard 1"},
        {{.pp = 2, .tp = 1, .dp = 3}, 5, "stage 1, replica 2"},
        {{.pp = 3, .tp = 1, .dp = 1}, 2, "stage 2"},
        {{.pp = 1, .tp = 1, .dp = 1}, 0, "stage 0"},
    };
    char text[GRID_PLACE_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_ptr_equal(grid_place_text(&cases[i].shape, cases[i].rank, text, sizeof(text)), text);
        assert_string_equal(text, cases[i].text);
    }
    (void)grid_place_text(&cases[0].shape, 13, text, 9);
    assert_string_equal(text, "stage 3,");
}

static void a_product_that_is_not_the_world_is_refused_with_both_numbers(void **state)
{
    const struct grid_shape shape = {.pp = 4, .tp = 2, .dp = 3};
    struct grid grid;

    (void)state;
    assert_int_equal(grid_init(&grid, &shape, 0, 16), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "24"));
    assert_non_null(strstr(status_last()->message, "16"));
    assert_int_equal(grid_init(&grid, &shape, 0, 48), STATUS_ERR_REFUSED);
    assert_int_equal(grid_init(&grid, &shape, 0, 12), STATUS_ERR_REFUSED);
}

static void an_extent_below_one_is_refused(void **state)
{
    const struct grid_shape shapes[] = {{0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {-1, -1, 1}};
    struct grid grid;

    (void)state;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        assert_int_equal(grid_init(&grid, &shapes[s], 0, 1), STATUS_ERR_REFUSED);
    }
}

/* Multiplied in 32 bits the first product is 0. */
static void extents_whose_product_overflows_are_refused(void **state)
{
    const struct grid_shape wide = {.pp = 65536, .tp = 65536, .dp = 65536};
    const struct grid_shape wider = {.pp = INT32_MAX, .tp = INT32_MAX, .dp = INT32_MAX};
    struct grid grid;

    (void)state;
    assert_int_equal(grid_init(&grid, &wide, 0, 1), STATUS_ERR_REFUSED);
    assert_int_equal(grid_init(&grid, &wider, 0, INT32_MAX), STATUS_ERR_REFUSED);
}

static void a_rank_outside_the_world_is_refused(void **state)
{
    const struct grid_shape shape = {.pp = 2, .tp = 1, .dp = 1};
    struct grid grid;

    (void)state;
    assert_int_equal(grid_init(&grid, &shape, 2, 2), STATUS_ERR_REFUSED);
    assert_int_equal(grid_init(&grid, &shape, -1, 2), STATUS_ERR_REFUSED);
}

/* "[0,1] [2,3]": all groups of the kind, as they are listed. */
static void print_groups(const struct grid_shape *shape, enum grid_group group, char *text,
                         size_t text_bytes)
{
    int32_t ranks[16];
    size_t used = 0;

    text[0] = '\0';
    for (int32_t i = 0; i < grid_group_count(shape, group); i++) {
        int32_t count = grid_group_at(shape, group, i, ranks);

        assert_int_equal(count, grid_group_size(shape, group));
        for (int32_t r = 0; r < count; r++) {
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%d",
                                     r > 0   ? ","
                                     : i > 0 ? " ["
                                             : "[",
                                     ranks[r]);
        }
        used += (size_t)snprintf(text + used, text_bytes - used, "]");
    }
}

/* The published example of Megatron: 16 ranks, TP 2, PP 4 and so DP 2. */
static void the_groups_of_sixteen_ranks_are_those_of_the_example(void **state)
{
    static const struct {
        enum grid_group group;
        const char *name;
        const char *groups;
    } expected[] = {
        {GRID_TENSOR, "tensor", "[0,1] [2,3] [4,5] [6,7] [8,9] [10,11] [12,13] [14,15]"},
        {GRID_DATA, "data", "[0,2] [1,3] [4,6] [5,7] [8,10] [9,11] [12,14] [13,15]"},
        {GRID_PIPELINE, "pipeline", "[0,4,8,12] [1,5,9,13] [2,6,10,14] [3,7,11,15]"},
        {GRID_MODEL_PARALLEL, "model-parallel", "[0,1,4,5,8,9,12,13] [2,3,6,7,10,11,14,15]"},
        {GRID_EMBEDDING, "embedding", "[0,12] [1,13] [2,14] [3,15]"},
        {GRID_POSITION_EMBEDDING, "position embedding", "[0] [1] [2] [3]"},
    };
    const struct grid_shape shape = {.pp = 4, .tp = 2, .dp = 2};
    char text[256];

    (void)state;
    assert_int_equal(sizeof(expected) / sizeof(expected[0]), GRID_GROUPS);
    for (size_t i = 0; i < GRID_GROUPS; i++) {
        print_groups(&shape, expected[i].group, text, sizeof(text));
        assert_string_equal(text, expected[i].groups);
        assert_string_equal(grid_group_text(expected[i].group), expected[i].name);
    }
}

static void one_stage_is_first_and_last_of_its_pipeline(void **state)
{
    const struct grid_shape shape = {.pp = 1, .tp = 2, .dp = 2};
    char text[64];

    (void)state;
    print_groups(&shape, GRID_EMBEDDING, text, sizeof(text));
    assert_string_equal(text, "[0] [1] [2] [3]");
    print_groups(&shape, GRID_MODEL_PARALLEL, text, sizeof(text));
    assert_string_equal(text, "[0,1] [2,3]");
}

/* Whether the definition puts two ranks into one group of the kind, asked of their places. */
static bool belong_together(enum grid_group group, const struct grid *a, const struct grid *b)
{
    int32_t last = a->shape.pp - 1;

    switch (group) {
    case GRID_TENSOR:
        return a->dp == b->dp && a->pp == b->pp;
    case GRID_DATA:
        return a->tp == b->tp && a->pp == b->pp;
    case GRID_PIPELINE:
        return a->tp == b->tp && a->dp == b->dp;
    case GRID_MODEL_PARALLEL:
        return a->dp == b->dp;
    case GRID_EMBEDDING:
        return a->tp == b->tp && a->dp == b->dp && (a->pp == 0 || a->pp == last) &&
               (b->pp == 0 || b->pp == last);
    case GRID_POSITION_EMBEDDING:
        return a->rank == b->rank && a->pp == 0;
    case GRID_GROUPS:
        break;
    }
    return false;
}

/* The group of `rank` holds, ascending, all that belong to it and no other. */
static void check_group_of(const struct grid_shape *shape, enum grid_group group, int32_t rank,
                           int32_t world)
{
    int32_t ranks[256];
    struct grid grid;
    int32_t count = 0;
    int32_t seen = 0;

    assert_int_equal(grid_init(&grid, shape, rank, world), STATUS_OK);
    count = grid_group_ranks(&grid, group, ranks);
    for (int32_t other = 0; other < world; other++) {
        struct grid place;

        assert_int_equal(grid_init(&place, shape, other, world), STATUS_OK);
        if (belong_together(group, &grid, &place)) {
            assert_true(seen < count);
            assert_int_equal(ranks[seen++], other);
        }
    }
    assert_int_equal(seen, count);
    assert_true(count == 0 || count == grid_group_size(shape, group));
}

/* The list of all groups names each rank once, or, of the embeddings, each that has a table; and
 * each group is that of each of its ranks. */
static void check_list(const struct grid_shape *shape, enum grid_group group, int32_t world)
{
    int32_t times[256] = {0};
    int32_t ranks[256];
    int32_t own[256];
    int32_t first = -1;

    for (int32_t i = 0; i < grid_group_count(shape, group); i++) {
        int32_t count = grid_group_at(shape, group, i, ranks);

        assert_true(ranks[0] > first);
        first = ranks[0];
        for (int32_t r = 0; r < count; r++) {
            struct grid grid;

            times[ranks[r]]++;
            assert_int_equal(grid_init(&grid, shape, ranks[r], world), STATUS_OK);
            assert_int_equal(grid_group_ranks(&grid, group, own), count);
            assert_memory_equal(own, ranks, (size_t)count * sizeof(own[0]));
        }
    }
    for (int32_t rank = 0; rank < world; rank++) {
        int32_t stage = rank / (shape->tp * shape->dp);
        bool outside = (group == GRID_EMBEDDING && stage > 0 && stage < shape->pp - 1) ||
                       (group == GRID_POSITION_EMBEDDING && stage > 0);

        assert_int_equal(times[rank], outside ? 0 : 1);
    }
}

static void groups_part_the_world_and_are_the_same_for_all_their_ranks(void **state)
{
    static const int32_t extents[] = {1, 2, 3, 5};

    (void)state;
    for (int i = 0; i < 4 * 4 * 4; i++) {
        const struct grid_shape shape = {
            .pp = extents[i % 4], .tp = extents[i / 4 % 4], .dp = extents[i / 16]};
        int32_t world = shape.pp * shape.tp * shape.dp;

        for (int group = 0; group < GRID_GROUPS; group++) {
            check_list(&shape, (enum grid_group)group, world);
            for (int32_t rank = 0; rank < world; rank++) {
                check_group_of(&shape, (enum grid_group)group, rank, world);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_the_place_that_counting_gives),
        cmocka_unit_test(the_pipelines_of_sixteen_ranks_are_those_of_the_example),
        cmocka_unit_test(the_groups_of_sixteen_ranks_are_those_of_the_example),
        cmocka_unit_test(one_stage_is_first_and_last_of_its_pipeline),
        cmocka_unit_test(groups_part_the_world_and_are_the_same_for_all_their_ranks),
        cmocka_unit_test(a_place_names_what_there_are_several_of),
        cmocka_unit_test(a_product_that_is_not_the_world_is_refused_with_both_numbers),
        cmocka_unit_test(an_extent_below_one_is_refused),
        cmocka_unit_test(extents_whose_product_overflows_are_refused),
        cmocka_unit_test(a_rank_outside_the_world_is_refused),
    };

    return cmocka_run_group_tests_name("grid", tests, NULL, NULL);
}
