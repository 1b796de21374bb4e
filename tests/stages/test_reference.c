/*
 * The oracle: trajectories of an independent float64 implementation (tests/reference/README.md).
 * Loss, norm and learning rate of every step, and the gradients of the first one, within the
 * tolerances that its README states, for every pipeline depth, micro-batch size and schedule.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "tests/stages/oracle.h"

static void check_case(const struct oracle *oracle, int pp, int micro_batch, const char *schedule)
{
    static struct rig_result run;
    char stages[48];
    char size[48];
    char order[48];
    char what[96];
    const char *overrides[] = {stages, size, order};

    (void)snprintf(stages, sizeof(stages), "parallel.pp=%d", pp);
    (void)snprintf(size, sizeof(size), "train.micro_batch_size=%d", micro_batch);
    (void)snprintf(order, sizeof(order), "parallel.schedule=%s", schedule);
    rig_run(oracle->yaml, overrides, 3, &run);
    if (run.status < 0) {
        fail_msg("pp %d, micro-batch %d, %s: %s", pp, micro_batch, schedule, run.message);
    }
    assert_int_equal(run.ranks_disagree, 0);
    (void)snprintf(what, sizeof(what), "pp %d, micro-batch %d, %s", pp, micro_batch, schedule);
    oracle_check(oracle, &run, what);
    rig_release(&run);
}

static void check_schedule(const struct oracle *oracle, const char *schedule)
{
    for (int pp = 1; pp <= 3; pp++) {
        for (int micro_batch = 1; micro_batch <= 4; micro_batch *= 2) {
            check_case(oracle, pp, micro_batch, schedule);
        }
    }
}

static void test_plain_case_follows_the_oracle_under_1f1b(void **state)
{
    (void)state;
    check_schedule(&oracle_plain, "1f1b");
}

static void test_plain_case_follows_the_oracle_under_gpipe(void **state)
{
    (void)state;
    check_schedule(&oracle_plain, "gpipe");
}

static void test_masked_case_follows_the_oracle_under_1f1b(void **state)
{
    (void)state;
    check_schedule(&oracle_masked, "1f1b");
}

static void test_masked_case_follows_the_oracle_under_gpipe(void **state)
{
    (void)state;
    check_schedule(&oracle_masked, "gpipe");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_case_follows_the_oracle_under_1f1b),
        cmocka_unit_test(test_plain_case_follows_the_oracle_under_gpipe),
        cmocka_unit_test(test_masked_case_follows_the_oracle_under_1f1b),
        cmocka_unit_test(test_masked_case_follows_the_oracle_under_gpipe),
    };

    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
