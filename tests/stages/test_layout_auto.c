/* A plan that was found trains what one process trains, to the last bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/stages/base_run.h"

static void check(const struct base_run *layout)
{
    static struct rig_result want;
    static struct rig_result run;
    struct base_run one = *layout;

    one.pp = 1;
    one.schedule = "1f1b";
    one.virtual_stages = 1;
    base_train(&one, &want);
    base_train(layout, &run);
    base_assert_same(layout, &run, &want);
    assert_memory_equal(run.valid_loss, want.valid_loss, sizeof(run.valid_loss));
    rig_release(&run);
    rig_release(&want);
}

static void found_plans_have_the_bits_of_one_process(void **state)
{
    static const struct base_run layouts[] = {
        {.pp = 2, .steps = 3, .schedule = "auto"},
        {.pp = 4, .steps = 3, .schedule = "auto"},
        {.pp = 2, .steps = 3, .schedule = "auto", .virtual_stages = 2},
        {.pp = 4, .steps = 3, .schedule = "auto", .virtual_stages = 2, .batch = 5},
        {.pp = 2, .steps = 3, .schedule = "auto", .dp = 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        check(&layouts[i]);
    }
}

/* An uneven split: the last stage has a layer less, and evaluations in between. */
static void uneven_stages_and_evaluations_change_nothing(void **state)
{
    const struct base_run base = {.pp = 2,
                                  .steps = 3,
                                  .schedule = "auto",
                                  .more = {"train.eval_every=1", "train.eval_steps=2"}};
    struct base_run layout = base_with(&base, "parallel.layers_per_stage=[3, 1]");
    static struct rig_result want;
    static struct rig_result run;
    struct base_run one = base;

    (void)state;
    one.pp = 1;
    one.schedule = "1f1b";
    base_train(&one, &want);
    base_train(&layout, &run);
    base_assert_same(&layout, &run, &want);
    assert_memory_equal(run.valid_loss, want.valid_loss, sizeof(run.valid_loss));
    rig_release(&run);
    rig_release(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_plans_have_the_bits_of_one_process),
        cmocka_unit_test(uneven_stages_and_evaluations_change_nothing),
    };

    return cmocka_run_group_tests(tests, base_make, base_remove);
}
