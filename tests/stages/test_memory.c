/* The memory table: its sum, its text, its limit, and what it is compared with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>

#include "stages/memory.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* 12.5 + 12.5 + 3.25 MiB. */
static void fill(struct memory_table *table)
{
    *table = (struct memory_table){.parameters = 0};
    memory_add(table, MEMORY_PARAMS, 25 * MIB / 2);
    memory_add(table, MEMORY_GRADIENTS, 25 * MIB / 2);
    memory_add(table, MEMORY_HEAD, 0);
    memory_add(table, MEMORY_STASHES, 13 * MIB / 4);
}

static void kinds_add_up(void **state)
{
    struct memory_table table;

    (void)state;
    fill(&table);
    assert_int_equal(table.total_bytes, 113 * MIB / 4);
    assert_int_equal(table.bytes[MEMORY_STASHES], 13 * MIB / 4);
    memory_add(&table, MEMORY_STASHES, MIB);
    assert_int_equal(table.bytes[MEMORY_STASHES], 17 * MIB / 4);
    assert_int_equal(table.total_bytes, 117 * MIB / 4);
}

static void every_kind_has_names_of_its_own(void **state)
{
    (void)state;
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        for (int other = 0; other < kind; other++) {
            assert_string_not_equal(memory_key((enum memory_kind)kind),
                                    memory_key((enum memory_kind)other));
            assert_string_not_equal(memory_text((enum memory_kind)kind),
                                    memory_text((enum memory_kind)other));
            assert_string_not_equal(memory_head((enum memory_kind)kind),
                                    memory_head((enum memory_kind)other));
        }
    }
}

static void the_text_names_stage_sum_and_kinds(void **state)
{
    struct memory_table table;
    char text[256];

    (void)state;
    fill(&table);
    memory_print(&table, "stage 3", text, sizeof(text));
    assert_string_equal(text, "stage 3 holds 28.2 MiB: params 12.5, gradients 12.5, stashes 3.2");
    table = (struct memory_table){.parameters = 0};
    memory_add(&table, MEMORY_DY, 3 * KIB / 2);
    memory_print(&table, "stage 0", text, sizeof(text));
    assert_string_equal(text, "stage 0 holds 1.5 KiB: dY 1.5");
    memory_add(&table, MEMORY_MOMENTS, 20480 * MIB);
    memory_print(&table, "stage 0", text, sizeof(text));
    assert_string_equal(text, "stage 0 holds 20.0 GiB: moments 20.0, dY 0.0");
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

/* 2 + 4 + 4 + 8 bytes, and what is in flight is none of them. */
static void state_is_counted_by_parameter(void **state)
{
    struct memory_table table = {.parameters = 1000};

    (void)state;
    memory_add(&table, MEMORY_PARAMS, 2000);
    memory_add(&table, MEMORY_MAIN_PARAMS, 4000);
    memory_add(&table, MEMORY_GRADIENTS, 4000);
    memory_add(&table, MEMORY_MOMENTS, 8000);
    memory_add(&table, MEMORY_STASHES, 123456);
    memory_add(&table, MEMORY_HEAD, 777);
    assert_true(memory_state_each(&table) == 18.0);
    table.parameters = 0;
    assert_true(memory_state_each(&table) == 0.0);
}

static void use_stands_beside_the_plan(void **state)
{
    struct memory_table table;
    char text[128];

    (void)state;
    fill(&table);
    memory_compare(&table, 27 * MIB, 63 * MIB + MIB / 2, text, sizeof(text));
    assert_string_equal(text,
                        "planned 28.2 MiB, used 27.0 MiB (arenas and segments), resident 63.5 MiB");
    memory_compare(&table, 27 * MIB, 0, text, sizeof(text));
    assert_string_equal(text, "planned 28.2 MiB, used 27.0 MiB (arenas and segments)");
}

/* What was touched stays in the number after it is given back. */
static void the_most_that_was_resident_is_known(void **state)
{
    size_t before = memory_resident_bytes();
    unsigned char *block =
        mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(block != MAP_FAILED && before > 0);
    memset(block, 1, 64 * MIB);
    assert_int_equal(munmap(block, 64 * MIB), 0);
    assert_in_range(memory_resident_bytes(), 64 * MIB, before + 80 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_add_up),
        cmocka_unit_test(every_kind_has_names_of_its_own),
        cmocka_unit_test(the_text_names_stage_sum_and_kinds),
        cmocka_unit_test(a_text_is_cut_and_never_overrun),
        cmocka_unit_test(the_limit_itself_is_allowed_and_one_byte_more_is_not),
        cmocka_unit_test(state_is_counted_by_parameter),
        cmocka_unit_test(use_stands_beside_the_plan),
        cmocka_unit_test(the_most_that_was_resident_is_known),
    };

    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
