#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/base/capture.h"

static void a_true_condition_changes_nothing(void **state)
{
    int evaluated = 0;

    (void)state;
    ENSURE(++evaluated == 1, "evaluated %d times", evaluated);
    assert_int_equal(evaluated, 1);
}

static void a_false_condition_aborts_and_says_where_and_why(void **state)
{
    struct capture capture;
    char text[512];
    int result = 0;

    (void)state;
    capture_begin(&capture);
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        int stages = 3;
        ENSURE(stages == 4, "stages %d of plan %s", stages, "x");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    capture_end(&capture, text, sizeof(text));
    assert_true(WIFSIGNALED(result));
    assert_int_equal(WTERMSIG(result), SIGABRT);
    assert_non_null(strstr(text, "test_check.c:"));
    assert_non_null(strstr(text, "stages == 4"));
    assert_non_null(strstr(text, "stages 3 of plan x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_true_condition_changes_nothing),
        cmocka_unit_test(a_false_condition_aborts_and_says_where_and_why),
    };

    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
