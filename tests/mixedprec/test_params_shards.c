/* Parts of tensors: which stretches they are made of, and that they begin as parts of the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "mixedprec/params.h"

/* Of the whole tensor. */
#define ROWS 12
#define COLS 24

/* Adds the only entry of `params` and draws its starting weights in memory of its own. */
static void draw(const struct param *part, struct params *params)
{
    *params = (struct params){.table = NULL};
    assert_int_equal(params_add(params, part), STATUS_OK);
    params->table[0].weight = calloc(params->table[0].elems + 1, sizeof(float));
    assert_non_null(params->table[0].weight);
    assert_int_equal(params_initialize(params, 99), STATUS_OK);
}

static void drop(struct params *params)
{
    free(params->table[0].weight);
    params_release(params);
}

static struct param whole_tensor(void)
{
    return (struct param){
        .name = "t", .rows = ROWS, .cols = COLS, .init_std = 0.02F, .site = 5, .layer = 3};
}

/* Rows first_row … of the whole, and columns first_col … of each of `blocks`. */
static struct param shard_of(int64_t first_row, int64_t rows, int64_t first_col, int64_t cols,
                             int64_t blocks)
{
    struct param part = whole_tensor();

    part.rows = rows;
    part.cols = cols;
    part.sharded = true;
    part.shard = (struct param_shard){.whole_rows = ROWS,
                                      .whole_cols = COLS,
                                      .first_row = first_row,
                                      .first_col = first_col,
                                      .blocks = blocks};
    return part;
}

/* Puts a shard's values at their places in `whole`, counted by rows, blocks and columns, and counts
 * how often each place was hit. */
static void put_places(const struct param *part, float *whole, int *hits)
{
    const struct param_shard *shard = &part->shard;
    int64_t width = part->cols / shard->blocks;

    for (int64_t row = 0; row < part->rows; row++) {
        for (int64_t col = 0; col < part->cols; col++) {
            int64_t at = (shard->first_row + row) * COLS + col / width * (COLS / shard->blocks) +
                         shard->first_col + col % width;

            whole[at] = ((const float *)part->weight)[row * part->cols + col];
            hits[at]++;
        }
    }
}

/* The same by the stretches that files go by: ascending at both ends, and without a gap here. */
static void put_runs(const struct param *part, float *whole)
{
    size_t here = 0;
    size_t end = 0;

    for (int64_t r = 0; r < param_runs(part); r++) {
        struct param_run run = param_run_at(part, r);

        assert_int_equal(run.here, here);
        assert_true(run.whole >= end);
        memcpy(whole + run.whole, (const float *)part->weight + run.here,
               run.elems * sizeof(float));
        here += run.elems;
        end = run.whole + run.elems;
    }
    assert_int_equal(here, part->elems);
}

static void check_shards(const struct param *parts, int count)
{
    const struct param all = whole_tensor();
    float by_place[ROWS * COLS] = {0.0F};
    float by_run[ROWS * COLS] = {0.0F};
    int hits[ROWS * COLS] = {0};
    struct params whole;

    for (int i = 0; i < count; i++) {
        struct params shard;

        draw(&parts[i], &shard);
        put_places(&shard.table[0], by_place, hits);
        put_runs(&shard.table[0], by_run);
        drop(&shard);
    }
    draw(&all, &whole);
    for (int e = 0; e < ROWS * COLS; e++) {
        assert_int_equal(hits[e], 1);
    }
    assert_memory_equal(by_place, whole.table[0].weight, sizeof(by_place));
    assert_memory_equal(by_run, whole.table[0].weight, sizeof(by_run));
    drop(&whole);
}

static void rows_begin_as_the_rows_of_the_whole(void **state)
{
    const struct param one[] = {shard_of(0, 12, 0, 24, 1)};
    const struct param rows[] = {shard_of(0, 4, 0, 24, 1), shard_of(4, 4, 0, 24, 1),
                                 shard_of(8, 4, 0, 24, 1)};

    (void)state;
    check_shards(one, 1);
    check_shards(rows, 3);
}

/* As a vocabulary is split: the last part is shorter, or empty. */
static void uneven_rows_do_too(void **state)
{
    const struct param shorter[] = {shard_of(0, 5, 0, 24, 1), shard_of(5, 5, 0, 24, 1),
                                    shard_of(10, 2, 0, 24, 1)};
    const struct param empty[] = {shard_of(0, 6, 0, 24, 1), shard_of(6, 6, 0, 24, 1),
                                  shard_of(12, 0, 0, 24, 1)};

    (void)state;
    check_shards(shorter, 3);
    check_shards(empty, 3);
}

static void columns_begin_as_the_columns_of_the_whole(void **state)
{
    const struct param columns[] = {shard_of(0, 12, 0, 6, 1), shard_of(0, 12, 6, 6, 1),
                                    shard_of(0, 12, 12, 6, 1), shard_of(0, 12, 18, 6, 1)};

    (void)state;
    check_shards(columns, 4);
}

/* Columns Q|K|V: each shard has its part of each third. */
static void columns_of_three_blocks_begin_as_those_of_the_whole(void **state)
{
    const struct param halves[] = {shard_of(0, 12, 0, 12, 3), shard_of(0, 12, 4, 12, 3)};
    const struct param quarters[] = {shard_of(0, 12, 0, 6, 3), shard_of(0, 12, 2, 6, 3),
                                     shard_of(0, 12, 4, 6, 3), shard_of(0, 12, 6, 6, 3)};

    (void)state;
    check_shards(halves, 2);
    check_shards(quarters, 4);
}

static void constants_are_those_of_the_whole(void **state)
{
    struct param part = shard_of(0, 12, 4, 12, 3);
    struct params params;

    (void)state;
    part.init_std = 0.0F;
    part.init_value = 1.0F;
    draw(&part, &params);
    for (size_t e = 0; e < params.table[0].elems; e++) {
        assert_true(((const float *)params.table[0].weight)[e] == 1.0F);
    }
    drop(&params);
}

static void assert_run(const struct param *part, int64_t at, int here, int whole, int elems)
{
    struct param_run run = param_run_at(part, at);

    assert_int_equal(run.here, here);
    assert_int_equal(run.whole, whole);
    assert_int_equal(run.elems, elems);
}

static void a_shard_has_one_stretch_of_whole_rows_or_one_a_row_and_block(void **state)
{
    const struct param parts[] = {whole_tensor(), shard_of(4, 4, 0, 24, 1),
                                  shard_of(0, 12, 6, 6, 1), shard_of(0, 12, 4, 12, 3)};
    struct params params = {.table = NULL};

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(params_add(&params, &parts[i]), STATUS_OK);
    }
    assert_int_equal(param_runs(&params.table[0]), 1);
    assert_run(&params.table[0], 0, 0, 0, 12 * 24);
    assert_int_equal(param_runs(&params.table[1]), 1);
    assert_run(&params.table[1], 0, 0, 4 * 24, 4 * 24);
    assert_int_equal(param_runs(&params.table[2]), 12);
    assert_run(&params.table[2], 3, 3 * 6, 3 * 24 + 6, 6);
    /* Row 2, the second of three blocks of 8 columns, of which the last 4 lie here. */
    assert_int_equal(param_runs(&params.table[3]), 36);
    assert_run(&params.table[3], 7, 2 * 12 + 4, 2 * 24 + 8 + 4, 4);
    params_release(&params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_begin_as_the_rows_of_the_whole),
        cmocka_unit_test(uneven_rows_do_too),
        cmocka_unit_test(columns_begin_as_the_columns_of_the_whole),
        cmocka_unit_test(columns_of_three_blocks_begin_as_those_of_the_whole),
        cmocka_unit_test(constants_are_those_of_the_whole),
        cmocka_unit_test(a_shard_has_one_stretch_of_whole_rows_or_one_a_row_and_block),
    };

    return cmocka_run_group_tests_name("params_shards", tests, NULL, NULL);
}
