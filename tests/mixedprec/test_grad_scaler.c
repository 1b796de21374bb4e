/* The loss scale, against sequences written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "mixedprec/grad_scaler.h"

static const struct grad_scaler_config usual = {
    .dynamic = true,
    .initial_scale = 65536.0,
    .growth_factor = 2.0,
    .backoff_factor = 0.5,
    .growth_interval = 4,
    .hysteresis = 2,
    .min_scale = 1.0,
};

/* H07: the scale that each of the attempts uses, and what each one's overflow does to it. */
static void every_step_overflows_as_in_the_case_h07(void **state)
{
    struct grad_scaler_config config = usual;
    struct grad_scaler scaler;
    double attempted[22];
    enum grad_scaler_change changes[22];

    (void)state;
    config.hysteresis = 3;
    grad_scaler_init(&scaler, &config);
    for (int i = 0; i < 22; i++) {
        attempted[i] = scaler.state.scale;
        changes[i] = grad_scaler_update(&scaler, true);
    }
    assert_true(attempted[0] == 65536.0 && attempted[1] == 65536.0 && attempted[2] == 65536.0);
    assert_int_equal(changes[0], GRAD_SCALER_PATIENT);
    assert_int_equal(changes[1], GRAD_SCALER_PATIENT);
    for (int i = 3; i < 19; i++) {
        assert_true(attempted[i] == ldexp(1.0, 18 - i));
        assert_int_equal(changes[i - 1], GRAD_SCALER_SHRANK);
    }
    for (int i = 18; i < 22; i++) {
        assert_true(attempted[i] == 1.0);
        assert_int_equal(changes[i], GRAD_SCALER_AT_MINIMUM);
    }
    assert_int_equal(scaler.state.hysteresis_left, 0);
}

static void steps_that_go_well_make_it_grow_once_an_interval(void **state)
{
    struct grad_scaler scaler;

    (void)state;
    grad_scaler_init(&scaler, &usual);
    for (int step = 1; step <= 12; step++) {
        enum grad_scaler_change change = grad_scaler_update(&scaler, false);

        assert_int_equal(change, step % 4 == 0 ? GRAD_SCALER_GREW : GRAD_SCALER_KEPT);
        assert_true(scaler.state.scale == 65536.0 * ldexp(1.0, step / 4));
    }
}

/* g: goes well, o: overflows. The scale after each step, in units of 2^16. */
static void assert_story(const char *steps, const double *scales)
{
    struct grad_scaler scaler;

    grad_scaler_init(&scaler, &usual);
    for (size_t i = 0; i < strlen(steps); i++) {
        (void)grad_scaler_update(&scaler, steps[i] == 'o');
        if (scaler.state.scale != 65536.0 * scales[i]) {
            fail_msg("%s: %g after step %zu", steps, scaler.state.scale / 65536.0, i + 1);
        }
    }
}

static void an_overflow_starts_the_interval_again(void **state)
{
    static const double scales[] = {1, 1, 1, 1, 1, 1, 1, 2, 2};

    (void)state;
    assert_story("gggoggggg", scales);
}

/* Two overflows use the hysteresis up, whatever lies between; then each one shrinks the scale, until
 * a whole interval goes well. */
static void hysteresis_is_filled_by_growth_only(void **state)
{
    static const double scales[] = {1,    1,    1,   0.5, 0.5, 0.5, 0.25, 0.25,
                                    0.25, 0.25, 0.5, 0.5, 0.5, 0.5, 0.25};

    (void)state;
    assert_story("ogg"
                 "o"
                 "gg"
                 "o"
                 "gggg"
                 "ogg"
                 "o",
                 scales);
}

static void a_backoff_ends_at_the_minimum_itself(void **state)
{
    struct grad_scaler_config config = usual;
    struct grad_scaler scaler;

    (void)state;
    config.hysteresis = 1;
    config.initial_scale = 100.0;
    config.min_scale = 30.0;
    grad_scaler_init(&scaler, &config);
    assert_int_equal(grad_scaler_update(&scaler, true), GRAD_SCALER_SHRANK);
    assert_true(scaler.state.scale == 50.0);
    assert_int_equal(grad_scaler_update(&scaler, true), GRAD_SCALER_SHRANK);
    assert_true(scaler.state.scale == 30.0);
    assert_int_equal(grad_scaler_update(&scaler, true), GRAD_SCALER_AT_MINIMUM);
    assert_true(scaler.state.scale == 30.0);
}

/* What it is multiplied by, and what gradients are, stay normal numbers of fp32. */
static void growth_ends_before_the_scale_or_its_inverse_leaves_fp32(void **state)
{
    struct grad_scaler_config config = usual;
    struct grad_scaler scaler;

    (void)state;
    config.growth_interval = 1;
    grad_scaler_init(&scaler, &config);
    (void)grad_scaler_update(&scaler, true);
    for (int step = 0; step < 300; step++) {
        enum grad_scaler_change change = grad_scaler_update(&scaler, false);

        assert_int_equal(change, step < 47 ? GRAD_SCALER_GREW : GRAD_SCALER_KEPT);
        assert_int_equal(fpclassify((float)scaler.state.scale), FP_NORMAL);
        assert_int_equal(fpclassify((float)(1.0 / scaler.state.scale)), FP_NORMAL);
    }
    assert_true(scaler.state.scale == ldexp(1.0, 63));
    /* Steps at the end of growth fill no hysteresis either: two are left from the last growth. */
    assert_int_equal(grad_scaler_update(&scaler, true), GRAD_SCALER_PATIENT);
    assert_int_equal(grad_scaler_update(&scaler, false), GRAD_SCALER_KEPT);
    assert_int_equal(grad_scaler_update(&scaler, true), GRAD_SCALER_SHRANK);
}

static void a_constant_scale_stays(void **state)
{
    const struct grad_scaler_config config = {.initial_scale = 3.0};
    struct grad_scaler scaler;

    (void)state;
    grad_scaler_init(&scaler, &config);
    for (int step = 0; step < 5000; step++) {
        assert_int_equal(grad_scaler_update(&scaler, step % 2 == 0), GRAD_SCALER_KEPT);
        assert_true(scaler.state.scale == 3.0);
    }
}

static void one_that_goes_on_from_a_kept_state_is_the_unbroken_one(void **state)
{
    static const char steps[] = "gogggggogoogggggggogggogogggggggg";
    struct grad_scaler unbroken;

    (void)state;
    grad_scaler_init(&unbroken, &usual);
    for (size_t i = 0; i < strlen(steps); i++) {
        struct grad_scaler resumed;
        struct grad_scaler copy = unbroken;

        grad_scaler_init(&resumed, &usual);
        assert_int_equal(grad_scaler_restore(&resumed, &unbroken.state), STATUS_OK);
        for (size_t k = i; k < strlen(steps); k++) {
            assert_int_equal(grad_scaler_update(&resumed, steps[k] == 'o'),
                             grad_scaler_update(&copy, steps[k] == 'o'));
            assert_true(resumed.state.scale == copy.state.scale);
        }
        (void)grad_scaler_update(&unbroken, steps[i] == 'o');
    }
}

static void a_state_that_no_run_can_have_is_refused_with_its_number(void **state)
{
    static const struct {
        struct grad_scaler_state state;
        const char *says;
    } cases[] = {
        {{.scale = NAN}, "nan"},
        {{.scale = INFINITY}, "inf"},
        {{.scale = 0.0}, "loss scale 0"},
        {{.scale = -2.0}, "loss scale -2"},
        {{.scale = 0x1p64}, "1.84467e+19"},
        {{.scale = 0x1p-64}, "5.42101e-20"},
        {{.scale = 1.0, .good_steps = -1}, "-1 good steps"},
        {{.scale = 1.0, .hysteresis_left = -7}, "-7 of hysteresis"},
    };
    struct grad_scaler scaler;

    (void)state;
    grad_scaler_init(&scaler, &usual);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(grad_scaler_restore(&scaler, &cases[i].state), STATUS_ERR_REFUSED);
        if (strstr(status_last()->message, cases[i].says) == NULL) {
            fail_msg("%s: no %s", status_last()->message, cases[i].says);
        }
        assert_true(scaler.state.scale == 65536.0);
    }
}

static void what_the_config_does_not_allow_any_more_comes_to_the_nearest_that_it_does(void **state)
{
    const struct grad_scaler_state kept = {
        .dynamic = true, .scale = 8.0, .good_steps = 900, .hysteresis_left = 5};
    struct grad_scaler_config config = usual;
    struct grad_scaler scaler;

    (void)state;
    config.min_scale = 32.0;
    grad_scaler_init(&scaler, &config);
    assert_int_equal(grad_scaler_restore(&scaler, &kept), STATUS_OK);
    assert_true(scaler.state.scale == 32.0);
    assert_int_equal(scaler.state.hysteresis_left, 2);
    assert_int_equal(grad_scaler_update(&scaler, false), GRAD_SCALER_GREW);
    config.dynamic = false;
    grad_scaler_init(&scaler, &config);
    assert_int_equal(grad_scaler_restore(&scaler, &kept), STATUS_OK);
    assert_true(scaler.state.scale == 65536.0);
}

/* A constant of 1, or of 2^40, is no scale that fp16 would have come to. */
static void a_constant_scale_never_becomes_the_state_of_a_dynamic_one(void **state)
{
    static const double constants[] = {1.0, 0x1p40};

    (void)state;
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
        struct grad_scaler_config config = usual;
        struct grad_scaler constant;
        struct grad_scaler dynamic;

        config.dynamic = false;
        config.initial_scale = constants[i];
        grad_scaler_init(&constant, &config);
        assert_false(constant.state.dynamic);
        grad_scaler_init(&dynamic, &usual);
        assert_int_equal(grad_scaler_restore(&dynamic, &constant.state), STATUS_OK);
        assert_true(dynamic.state.dynamic && dynamic.state.scale == 65536.0);
        assert_int_equal(dynamic.state.good_steps, 0);
        assert_int_equal(dynamic.state.hysteresis_left, usual.hysteresis);
        /* And back. */
        assert_int_equal(grad_scaler_restore(&constant, &dynamic.state), STATUS_OK);
        assert_true(!constant.state.dynamic && constant.state.scale == constants[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_overflows_as_in_the_case_h07),
        cmocka_unit_test(steps_that_go_well_make_it_grow_once_an_interval),
        cmocka_unit_test(an_overflow_starts_the_interval_again),
        cmocka_unit_test(hysteresis_is_filled_by_growth_only),
        cmocka_unit_test(a_backoff_ends_at_the_minimum_itself),
        cmocka_unit_test(growth_ends_before_the_scale_or_its_inverse_leaves_fp32),
        cmocka_unit_test(a_constant_scale_stays),
        cmocka_unit_test(one_that_goes_on_from_a_kept_state_is_the_unbroken_one),
        cmocka_unit_test(a_state_that_no_run_can_have_is_refused_with_its_number),
        cmocka_unit_test(what_the_config_does_not_allow_any_more_comes_to_the_nearest_that_it_does),
        cmocka_unit_test(a_constant_scale_never_becomes_the_state_of_a_dynamic_one),
    };

    return cmocka_run_group_tests_name("grad_scaler", tests, NULL, NULL);
}
