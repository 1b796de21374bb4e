#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_the_place_that_counting_gives),
        cmocka_unit_test(the_pipelines_of_sixteen_ranks_are_those_of_the_example),
        cmocka_unit_test(a_product_that_is_not_the_world_is_refused_with_both_numbers),
        cmocka_unit_test(an_extent_below_one_is_refused),
        cmocka_unit_test(extents_whose_product_overflows_are_refused),
        cmocka_unit_test(a_rank_outside_the_world_is_refused),
    };

    return cmocka_run_group_tests_name("grid", tests, NULL, NULL);
}
