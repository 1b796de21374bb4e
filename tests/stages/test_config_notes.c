/* What a configuration asks for in vain is legal, and said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "config_rig.h"

static struct config *load(const char *first, const char *second)
{
    struct config *config = NULL;

    if (config_rig_load(config_rig_legal(), first, second, &config) != STATUS_OK) {
        fail_msg("%s %s: %s", first, second, status_last()->message);
    }
    return config;
}

/* The only note, or none where `says` is NULL. */
static void expect(struct config *config, const char *says)
{
    char text[512] = "";

    if (says == NULL) {
        assert_false(config_note(config, 0, text, sizeof(text)));
        return;
    }
    assert_true(config_note(config, 0, text, sizeof(text)));
    if (strstr(text, says) == NULL) {
        fail_msg("expected \"%s\" in: %s", says, text);
    }
    assert_false(config_note(config, 1, text, sizeof(text)));
}

static void each_is_said_once(void **state)
{
    struct config *config = load("--parallel.zero_stage=2", "--optimizer.end_weight_decay=0.2");
    char text[512];

    (void)state;
    assert_int_equal(config->parallel.zero_stage, 2);
    assert_true(config_note(config, 0, text, sizeof(text)));
    assert_non_null(strstr(text, "parallel.zero_stage 2 does nothing: with parallel.dp 1"));
    assert_true(config_note(config, 1, text, sizeof(text)));
    assert_non_null(strstr(text, "optimizer.end_weight_decay 0.2 does nothing"));
    assert_false(config_note(config, 2, text, sizeof(text)));
    config_destroy(&config);
}

/* With several micro-batches; with one they are shared out. */
static void gradients_that_stay_whole_are_said(void **state)
{
    static const char *const stages[][2] = {
        {"--parallel.zero_stage=1", NULL},
        {"--parallel.zero_stage=2", "zero_stage 2 shares out what stage 1 does, and no gradients"},
        {"--parallel.zero_stage=3", "zero_stage 3 shares out the weights of layers too, and no"}};

    (void)state;
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        struct config *config = load(stages[i][0], "--parallel.dp=2");

        assert_true(config->train.num_microbatches > 1);
        expect(config, stages[i][1]);
        config->train.num_microbatches = 1;
        expect(config, NULL);
        config_destroy(&config);
    }
    config_rig_refuses(config_rig_legal(), "--parallel.zero_stage=4",
                       "an integer from 0 to 3; found 4");
}

static void an_overlap_without_slices_is_said(void **state)
{
    static const char says[] = "parallel.overlap_grad_reduce true does nothing";
    struct config *config = load("--parallel.overlap_grad_reduce=true", "--parallel.dp=2");

    (void)state;
    expect(config, says);
    config->parallel.zero_stage = 1;
    expect(config, NULL);
    config->parallel.overlap_grad_reduce = CONFIG_AUTO;
    config->parallel.zero_stage = 0;
    expect(config, NULL);
    config_destroy(&config);
    config = load("--parallel.overlap_grad_reduce=true", "--parallel.zero_stage=0");
    expect(config, says);
    config_destroy(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_said_once),
        cmocka_unit_test(gradients_that_stay_whole_are_said),
        cmocka_unit_test(an_overlap_without_slices_is_said),
    };

    return cmocka_run_group_tests_name("config_notes", tests, config_rig_open, config_rig_close);
}
