/*
 * The start of a job: who is there, who agrees, who is missing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/control.h"
#include "control_rig.h"

static enum status read_welcome(struct rig_rank *self)
{
    size_t bytes = 0;
    const void *welcome = control_welcome(self->control, &bytes);
    const struct control_config *first = &self->rig->ranks[0].config;

    return rig_expect(bytes == first->welcome_bytes && memcmp(welcome, first->welcome, bytes) == 0,
                      "the welcome is rank 0's");
}

static void test_every_rank_of_any_world_gets_the_welcome(void **state)
{
    (void)state;
    for (int32_t world = 1; world <= RIG_RANKS_MOST; world++) {
        struct control_rig rig;

        rig_init(&rig, world);
        rig_run(&rig, read_welcome);
        rig_assert_all_well(&rig);
        rig_release(&rig);
    }
}

static void test_a_welcome_of_the_largest_size_arrives(void **state)
{
    static unsigned char plan[CONTROL_WELCOME_MOST_BYTES];
    struct control_rig rig;

    (void)state;
    for (size_t i = 0; i < sizeof(plan); i++) {
        plan[i] = (unsigned char)(i * 31U >> 3);
    }
    rig_init(&rig, 3);
    rig.ranks[0].config.welcome = plan;
    rig.ranks[0].config.welcome_bytes = sizeof(plan);
    rig_run(&rig, read_welcome);
    rig_assert_all_well(&rig);
    rig_release(&rig);
}

static void test_a_rank_with_another_configuration_is_refused_everywhere_by_name(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 4);
    rig.ranks[2].config.config_hash = 0xabcd;
    rig_run(&rig, NULL);
    for (int32_t rank = 0; rank < 4; rank++) {
        const struct rig_rank *self = &rig.ranks[rank];

        assert_int_equal(self->opened, STATUS_ERR_REFUSED);
        assert_non_null(strstr(self->opened_text, "rank 2"));
        assert_non_null(strstr(self->opened_text, "configuration"));
        assert_non_null(strstr(self->opened_text, "000000000000abcd"));
        assert_non_null(strstr(self->opened_text, "0000000000001234"));
        assert_int_equal(self->aborts, 1);
        assert_true(cancel_requested(&self->cancel));
    }
    rig_release(&rig);
}

static void test_a_rank_with_another_kernel_variant_is_refused_by_both_names(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 2);
    rig.ranks[1].config.variant = "wide";
    rig_run(&rig, NULL);
    for (int32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig.ranks[rank].opened, STATUS_ERR_REFUSED);
        assert_non_null(strstr(rig.ranks[rank].opened_text, "'wide'"));
        assert_non_null(strstr(rig.ranks[rank].opened_text, "'plain'"));
    }
    rig_release(&rig);
}

static void test_a_rank_of_another_world_is_refused(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 2);
    rig.ranks[1].config.world = 5;
    rig_run(&rig, NULL);
    assert_int_equal(rig.ranks[0].opened, STATUS_ERR_REFUSED);
    assert_int_equal(rig.ranks[1].opened, STATUS_ERR_REFUSED);
    assert_non_null(strstr(rig.ranks[0].opened_text, "rank 1 of 5"));
    rig_release(&rig);
}

static void test_ranks_that_do_not_come_are_named(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 5);
    rig.ranks[1].absent = true;
    rig.ranks[3].absent = true;
    /* For the others to come in on a machine that has much else to do. */
    rig.ranks[0].config.start_timeout_s = 2.0;
    rig_run(&rig, NULL);
    for (int32_t rank = 0; rank < 5; rank += 2) {
        assert_int_equal(rig.ranks[rank].opened, STATUS_ERR_TIMEOUT);
        assert_non_null(strstr(rig.ranks[rank].opened_text, "ranks 1, 3 of 5"));
    }
    rig_release(&rig);
}

static void test_a_rank_whose_rank_0_never_comes_says_where_it_looked(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 2);
    rig.ranks[0].absent = true;
    rig.ranks[1].config.start_timeout_s = 0.3;
    rig_run(&rig, NULL);
    assert_int_equal(rig.ranks[1].opened, STATUS_ERR_TIMEOUT);
    assert_non_null(strstr(rig.ranks[1].opened_text, rig.directory));
    rig_release(&rig);
}

static void test_beats_that_cannot_tell_a_death_are_refused(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 1);
    rig.ranks[0].config.dead_after_s = 0.06;
    rig_run(&rig, NULL);
    assert_int_equal(rig.ranks[0].opened, STATUS_ERR_REFUSED);
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rank_of_any_world_gets_the_welcome),
        cmocka_unit_test(test_a_welcome_of_the_largest_size_arrives),
        cmocka_unit_test(test_a_rank_with_another_configuration_is_refused_everywhere_by_name),
        cmocka_unit_test(test_a_rank_with_another_kernel_variant_is_refused_by_both_names),
        cmocka_unit_test(test_a_rank_of_another_world_is_refused),
        cmocka_unit_test(test_ranks_that_do_not_come_are_named),
        cmocka_unit_test(test_a_rank_whose_rank_0_never_comes_says_where_it_looked),
        cmocka_unit_test(test_beats_that_cannot_tell_a_death_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
