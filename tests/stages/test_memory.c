/* The memory table: its sum, its text, and the limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "stages/memory.h"

#define MIB ((size_t)1 << 20)

/* 12.5 + 12.5 + 3.25 MiB. */
static void fill(struct memory_table *table)
{
    *table = (struct memory_table){.count = 0};
    memory_add(table, "params", 25 * MIB / 2);
    memory_add(table, "gradients", 25 * MIB / 2);
    memory_add(table, "head", 0);
    memory_add(table, "stashes", 13 * MIB / 4);
}

static void rows_add_up_and_empty_ones_are_left_out(void **state)
{
    struct memory_table table;

    (void)state;
    fill(&table);
    assert_int_equal(table.count, 3);
    assert_int_equal(table.total_bytes, 113 * MIB / 4);
    assert_string_equal(table.rows[2].name, "stashes");
    assert_int_equal(table.rows[2].bytes, 13 * MIB / 4);
}

static void a_full_table_takes_an_empty_row_still(void **state)
{
    struct memory_table table = {.count = 0};

    (void)state;
    for (int i = 0; i < MEMORY_ROWS_MOST; i++) {
        memory_add(&table, "row", 1);
    }
    memory_add(&table, "empty", 0);
    assert_int_equal(table.count, MEMORY_ROWS_MOST);
    assert_int_equal(table.total_bytes, MEMORY_ROWS_MOST);
}

static void the_text_names_stage_sum_and_rows(void **state)
{
    struct memory_table table;
    char text[256];

    (void)state;
    fill(&table);
    memory_print(&table, "stage 3", text, sizeof(text));
    assert_string_equal(text, "stage 3 holds 28.2 MiB: params 12.5, gradients 12.5, stashes 3.2");
}

/* At every length the text ends where the room ends, and all behind stays as it was. */
static void a_text_is_cut_and_never_overrun(void **state)
{
    struct memory_table table;
    char whole[128];
    char text[256];
    char untouched[256];

    (void)state;
    fill(&table);
    memory_print(&table, "stage 3", whole, sizeof(whole));
    for (size_t room = 1; room <= strlen(whole) + 1; room++) {
        memset(text, '~', sizeof(text));
        memset(untouched, '~', sizeof(untouched));
        memory_print(&table, "stage 3", text, room);
        assert_int_equal(strlen(text), room - 1);
        assert_memory_equal(text, whole, room - 1);
        assert_memory_equal(text + room, untouched, sizeof(text) - room);
    }
}

static void the_limit_itself_is_allowed_and_one_byte_more_is_not(void **state)
{
    struct memory_table table;
    const char *message = status_last()->message;

    (void)state;
    fill(&table);
    assert_int_equal(memory_check(&table, "stage 0", 0), STATUS_OK);
    assert_int_equal(memory_check(&table, "stage 0", (int64_t)table.total_bytes), STATUS_OK);
    assert_int_equal(memory_check(&table, "stage 2, shard 1", (int64_t)table.total_bytes - 1),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(message, "train.memory_limit"));
    assert_non_null(strstr(message, "stage 2, shard 1 holds"));
    assert_non_null(strstr(message, "gradients 12.5"));
    assert_int_equal(memory_check(&table, "stage 0", (int64_t)(10 * MIB)), STATUS_ERR_REFUSED);
    assert_non_null(strstr(message, "10.0 MiB allowed, 28.2 MiB needed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_add_up_and_empty_ones_are_left_out),
        cmocka_unit_test(a_full_table_takes_an_empty_row_still),
        cmocka_unit_test(the_text_names_stage_sum_and_rows),
        cmocka_unit_test(a_text_is_cut_and_never_overrun),
        cmocka_unit_test(the_limit_itself_is_allowed_and_one_byte_more_is_not),
    };

    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
