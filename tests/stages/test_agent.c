/* The agent's small parts: options, blame, the tail of a log, ends, and the nearest name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "stages/agent/blame.h"
#include "stages/agent/log_tail.h"
#include "stages/agent/options.h"
#include "stages/agent/process.h"
#include "stages/nearest.h"

#define ARGUMENTS_MOST 16

static enum status parse(const char *line, struct agent_options *options)
{
    static char text[256];
    char *argv[ARGUMENTS_MOST] = {NULL};
    int argc = 0;

    (void)snprintf(text, sizeof(text), "agent %s", line);
    for (char *at = strtok(text, " "); at != NULL; at = strtok(NULL, " ")) {
        argv[argc++] = at;
    }
    return agent_options_parse(argc, argv, options);
}

static void options_are_read_with_dashes_underscores_equals_signs_and_spaces(void **state)
{
    struct agent_options options;

    (void)state;
    assert_int_equal(parse("--nproc-per-node 4 --master_port=1234 --log-dir=logs --nnodes=1 "
                           "--max_restarts 0 --node-rank=0 train c.yaml --train.steps=3",
                           &options),
                     STATUS_OK);
    assert_int_equal(options.processes, 4);
    assert_int_equal(options.master_port, 1234);
    assert_string_equal(options.master_addr, "127.0.0.1");
    assert_string_equal(options.log_dir, "logs");
    assert_int_equal(options.command, 9);
    assert_false(options.help);
}

static void without_options_the_defaults_stand(void **state)
{
    struct agent_options options;

    (void)state;
    assert_int_equal(parse("train c.yaml", &options), STATUS_OK);
    assert_int_equal(options.processes, 0);
    assert_int_equal(options.master_port, 29500);
    assert_null(options.log_dir);
    assert_int_equal(options.command, 1);
    assert_int_equal(parse("--help", &options), STATUS_OK);
    assert_true(options.help);
}

static void what_cannot_be_done_is_refused_by_name(void **state)
{
    static const struct {
        const char *line;
        const char *named;
    } cases[] = {
        {"--nnodes 2 train c", "--nnodes 2: several hosts come later"},
        {"--node_rank=1 train c", "--node-rank 1: several hosts come later"},
        {"--hostfile hosts train c", "--hostfile hosts: several hosts come later"},
        {"--max-restarts=-1 train c", "--max-restarts: expected a number from 0"},
        {"--nproc-per-node 0 train c", "--nproc-per-node: expected a number from 1"},
        {"--nproc-per-node two train c", "found \"two\""},
        {"--nproc-per-node 4x train c", "found \"4x\""},
        {"--master-port 65536 train c", "from 1 to 65535"},
        {"--master-port 99999999999999999999 train c", "from 1 to 65535"},
        {"--nproc-per-nod 4 train c", "did you mean --nproc-per-node?"},
        {"--log-dir= train c", "--log-dir needs a value"},
        {"--log-dir", "--log-dir needs a value"},
        {"--train.steps=3 train c", "belongs behind the configuration"},
        {"-n 4 train c", "no option -n"},
        {"sample c", "cannot start \"sample\""},
        {"", "expected train CONFIG"},
    };
    struct agent_options options;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].line, &options), STATUS_ERR_REFUSED);
        assert_non_null(strstr(status_last()->message, cases[i].named));
    }
}

static struct blame_case failure(bool signalled, int code, int64_t ended_ms, int32_t order,
                                 int64_t error_ms)
{
    return (struct blame_case){
        .failed = true,
        .end = {.signalled = signalled, .code = code},
        .ended_ns = ended_ms * 1000000,
        .order = order,
        .first_error_ns = error_ms < 0 ? INT64_MAX : error_ms * 1000000,
    };
}

static void nobody_is_blamed_where_nothing_failed(void **state)
{
    struct blame_case cases[2] = {{.failed = false}, {.failed = false}};

    (void)state;
    assert_int_equal(blame_first(cases, 2), -1);
}

static void a_signal_is_the_cause_though_a_peer_was_seen_to_die_before(void **state)
{
    struct blame_case cases[] = {failure(false, 2, 100, 0, 99), failure(true, SIGKILL, 101, 1, -1)};

    (void)state;
    assert_int_equal(blame_first(cases, 2), 1);
}

static void a_crash_long_after_the_first_failure_is_its_consequence(void **state)
{
    struct blame_case cases[] = {failure(true, SIGSEGV, 5000, 1, -1),
                                 failure(false, 2, 100, 0, 99)};

    (void)state;
    assert_int_equal(blame_first(cases, 2), 1);
}

static void the_rank_whose_error_came_first_is_blamed_though_its_peer_died_before(void **state)
{
    struct blame_case cases[] = {failure(false, 2, 100, 0, 98), failure(false, 2, 101, 1, 97),
                                 failure(false, 2, 99, 2, -1)};

    (void)state;
    assert_int_equal(blame_first(cases, 3), 1);
}

static void without_errors_the_order_of_deaths_decides(void **state)
{
    struct blame_case cases[] = {failure(false, 2, 100, 2, -1), failure(false, 3, 100, 1, -1),
                                 failure(false, 2, 100, 3, -1)};

    (void)state;
    assert_int_equal(blame_first(cases, 3), 1);
}

static void a_tail_keeps_the_last_lines_and_cuts_long_ones(void **state)
{
    static struct log_tail tail;
    char line[2 * LOG_TAIL_LINE_BYTES];

    (void)state;
    memset(line, 'x', sizeof(line));
    for (int i = 0; i < LOG_TAIL_LINES + 3; i++) {
        line[0] = (char)('a' + i);
        log_tail_add(&tail, line, i % 2 == 0 ? 1 : sizeof(line));
    }
    assert_int_equal(log_tail_count(&tail), LOG_TAIL_LINES);
    assert_int_equal(log_tail_line(&tail, 0)[0], 'd');
    assert_int_equal(strlen(log_tail_line(&tail, 0)), LOG_TAIL_LINE_BYTES - 1);
    assert_string_equal(log_tail_line(&tail, LOG_TAIL_LINES - 1), "w");
}

static void an_end_is_described_and_has_an_exit_code(void **state)
{
    struct process_end exited = {.signalled = false, .code = 2};
    struct process_end killed = {.signalled = true, .code = SIGKILL};
    char text[64];

    (void)state;
    assert_int_equal(process_end_code(&exited), 2);
    assert_int_equal(process_end_code(&killed), 137);
    process_end_describe(&exited, text, sizeof(text));
    assert_string_equal(text, "exit code 2");
    process_end_describe(&killed, text, sizeof(text));
    assert_string_equal(text, "killed by signal 9 (Killed)");
}

static void the_nearest_name_is_found_and_a_far_one_is_not(void **state)
{
    static const char *const names[] = {"agent", "train", "plan", "trace", "config"};

    (void)state;
    assert_int_equal(nearest_edits("kitten", "sitting"), 3);
    assert_int_equal(nearest_edits("", "abc"), 3);
    assert_int_equal(nearest_edits("flaw", "lawn"), 2);
    assert_string_equal(nearest_name("trian", names, 5), "train");
    assert_string_equal(nearest_name("plann", names, 5), "plan");
    assert_string_equal(nearest_name("confg", names, 5), "config");
    assert_null(nearest_name("serve", names, 5));
    assert_null(nearest_name("", names, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_read_with_dashes_underscores_equals_signs_and_spaces),
        cmocka_unit_test(without_options_the_defaults_stand),
        cmocka_unit_test(what_cannot_be_done_is_refused_by_name),
        cmocka_unit_test(nobody_is_blamed_where_nothing_failed),
        cmocka_unit_test(a_signal_is_the_cause_though_a_peer_was_seen_to_die_before),
        cmocka_unit_test(a_crash_long_after_the_first_failure_is_its_consequence),
        cmocka_unit_test(the_rank_whose_error_came_first_is_blamed_though_its_peer_died_before),
        cmocka_unit_test(without_errors_the_order_of_deaths_decides),
        cmocka_unit_test(a_tail_keeps_the_last_lines_and_cuts_long_ones),
        cmocka_unit_test(an_end_is_described_and_has_an_exit_code),
        cmocka_unit_test(the_nearest_name_is_found_and_a_far_one_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
