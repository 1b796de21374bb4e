#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"

static void an_unset_or_empty_variable_reads_as_its_default(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("WEIR_LOG"), 0);
    assert_false(env_is_set(ENV_LOG));
    assert_string_equal(env_text(ENV_LOG), "info");
    assert_int_equal(setenv("WEIR_LOG", "", 1), 0);
    assert_false(env_is_set(ENV_LOG));
    assert_string_equal(env_text(ENV_LOG), "info");
    assert_int_equal(unsetenv("RANK"), 0);
    assert_string_equal(env_text(ENV_RANK), "");
}

static void a_set_variable_reads_as_it_is(void **state)
{
    (void)state;
    assert_int_equal(setenv("WEIR_LOG", "debug", 1), 0);
    assert_true(env_is_set(ENV_LOG));
    assert_string_equal(env_text(ENV_LOG), "debug");
}

static void names_are_those_of_the_launchers(void **state)
{
    (void)state;
    assert_string_equal(env_name(ENV_LOG), "WEIR_LOG");
    assert_string_equal(env_name(ENV_RANK), "RANK");
    assert_string_equal(env_name(ENV_OMPI_RANK), "OMPI_COMM_WORLD_RANK");
    assert_string_equal(env_name(ENV_SLURM_NTASKS), "SLURM_NTASKS");
}

static void help_lists_own_variables_and_no_launchers(void **state)
{
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *stream = open_memstream(&text, &text_bytes);

    (void)state;
    assert_non_null(stream);
    env_print_help(stream);
    assert_int_equal(fclose(stream), 0);
    assert_non_null(strstr(text, "WEIR_LOG"));
    assert_non_null(strstr(text, "[info]"));
    assert_non_null(strstr(text, "WEIR_JOB"));
    assert_null(strstr(text, "MASTER_ADDR"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unset_or_empty_variable_reads_as_its_default),
        cmocka_unit_test(a_set_variable_reads_as_it_is),
        cmocka_unit_test(names_are_those_of_the_launchers),
        cmocka_unit_test(help_lists_own_variables_and_no_launchers),
    };

    return cmocka_run_group_tests_name("env", tests, NULL, NULL);
}
