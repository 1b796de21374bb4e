/* crew: start, output, failures, signals and the end of the processes of a job, with shell scripts
 * in the place of stage processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "stages/agent/crew.h"
#include "stages/agent/process.h"

#define TEXT_BYTES 65536

/* Generous: only a broken test waits as long. */
#define PATIENCE_S 60

/* One crew that runs in a process of its own, as the agent does. What it writes comes back through
 * pipes; its exit code is crew_outcome_code(). */
struct agent {
    char dir[64];
    pid_t pid;
    int out;
    int err;
    char out_text[TEXT_BYTES];
    char err_text[TEXT_BYTES];
};

static _Noreturn void be_agent(const struct agent *agent, const char *script, int32_t processes,
                               double grace_s, int out, int err)
{
    char *arguments[] = {(char[]){"sh"}, (char[]){"-c"}, strdup(script), NULL};
    struct crew_config config = {
        .program = "/bin/sh",
        .arguments = arguments,
        .processes = processes,
        .log_dir = agent->dir,
        .job = "job-of-the-test",
        .master_addr = "127.0.0.1",
        .master_port = 29500,
        .grace_ns = (int64_t)(grace_s * 1e9),
        .out = out,
        .err = err,
    };
    struct crew *crew = NULL;
    struct crew_outcome outcome = {.rank = -1};
    int code = 99;

    /* A test that fails leaves no agent behind either. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (crew_create(&config, &crew) >= 0 && crew_run(crew, &outcome) >= 0) {
        code = crew_outcome_code(&outcome);
        if (outcome.rank >= 0) {
            const struct log_tail *tail = crew_tail(crew, outcome.rank);

            (void)dprintf(err, "first: rank %d\n", outcome.rank);
            for (size_t i = 0; i < log_tail_count(tail); i++) {
                (void)dprintf(err, "tail: %s\n", log_tail_line(tail, i));
            }
        }
    }
    crew_destroy(&crew);
    free(arguments[2]);
    _exit(code);
}

static void start(struct agent *agent, const char *script, int32_t processes, double grace_s)
{
    int out[2];
    int err[2];

    memset(agent, 0, sizeof(*agent));
    (void)snprintf(agent->dir, sizeof(agent->dir), "/tmp/test-crew-XXXXXX");
    assert_non_null(mkdtemp(agent->dir));
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(err), 0);
    agent->pid = fork();
    assert_true(agent->pid >= 0);
    if (agent->pid == 0) {
        (void)close(out[0]);
        (void)close(err[0]);
        be_agent(agent, script, processes, grace_s, out[1], err[1]);
    }
    (void)close(out[1]);
    (void)close(err[1]);
    agent->out = out[0];
    agent->err = err[0];
}

/* False at the end of the stream. */
static bool read_some(int fd, char *text)
{
    size_t used = strlen(text);
    ssize_t got = 0;

    assert_true(used < TEXT_BYTES - 1);
    got = read(fd, text + used, TEXT_BYTES - 1 - used);
    if (got > 0) {
        text[used + (size_t)got] = '\0';
    }
    return got > 0;
}

static int count_of(const char *text, const char *part)
{
    int count = 0;

    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

/* Reads stderr until `count` lines hold `part`. */
static void wait_for(struct agent *agent, const char *part, int count)
{
    int64_t deadline = clock_deadline(PATIENCE_S);

    while (count_of(agent->err_text, part) < count) {
        struct pollfd wanted = {.fd = agent->err, .events = POLLIN};

        assert_true(clock_now_ns() < deadline);
        if (poll(&wanted, 1, 1000) > 0) {
            assert_true(read_some(agent->err, agent->err_text));
        }
    }
}

/* Reads both streams to their ends, then the exit code; a signal counts as 1000 + its number. */
static int finish(struct agent *agent)
{
    int wait_status = 0;
    bool out_open = true;
    bool err_open = true;

    while (out_open || err_open) {
        struct pollfd wanted[] = {{.fd = out_open ? agent->out : -1, .events = POLLIN},
                                  {.fd = err_open ? agent->err : -1, .events = POLLIN}};

        assert_true(poll(wanted, 2, PATIENCE_S * 1000) > 0);
        if (wanted[0].revents != 0) {
            out_open = read_some(agent->out, agent->out_text);
        }
        if (wanted[1].revents != 0) {
            err_open = read_some(agent->err, agent->err_text);
        }
    }
    (void)close(agent->out);
    (void)close(agent->err);
    assert_int_equal(waitpid(agent->pid, &wait_status, 0), agent->pid);
    return WIFSIGNALED(wait_status) ? 1000 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static void read_log(const struct agent *agent, int rank, char *text)
{
    char path[128];
    FILE *file = NULL;
    size_t got = 0;

    (void)snprintf(path, sizeof(path), "%s/rank-%d.log", agent->dir, rank);
    file = fopen(path, "r");
    assert_non_null(file);
    got = fread(text, 1, TEXT_BYTES - 1, file);
    text[got] = '\0';
    (void)fclose(file);
    assert_int_equal(unlink(path), 0);
}

static void remove_dir(const struct agent *agent, int32_t processes)
{
    char path[128];

    for (int32_t rank = 0; rank < processes; rank++) {
        (void)snprintf(path, sizeof(path), "%s/rank-%d.log", agent->dir, rank);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(agent->dir), 0);
}

/* Orphans of the agent become children of this process (see main), so that none is left exactly
 * when there is nobody to wait for. */
static void assert_nothing_left(void)
{
    int64_t deadline = clock_deadline(PATIENCE_S);

    while (waitpid(-1, NULL, WNOHANG) >= 0) {
        assert_true(clock_now_ns() < deadline);
        (void)usleep(1000);
    }
    assert_int_equal(errno, ECHILD);
}

static void all_processes_get_torchruns_environment_and_the_job(void **state)
{
    struct agent agent;

    (void)state;
    start(&agent,
          "echo \"<$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
          "$MASTER_PORT $TORCHELASTIC_RESTART_COUNT $OMP_NUM_THREADS $WEIR_JOB>\" >&2",
          3, 10.0);
    assert_int_equal(finish(&agent), 0);
    assert_non_null(strstr(agent.err_text, "[rank 0] <0 0 3 3 0 127.0.0.1 29500 0 1 job-of-the-"));
    assert_non_null(strstr(agent.err_text, "[rank 1] <1 1 3 3 0 127.0.0.1 29500 0 1 job-of-the-"));
    assert_non_null(strstr(agent.err_text, "[rank 2] <2 2 3 3 0 127.0.0.1 29500 0 1 job-of-the-"));
    remove_dir(&agent, 3);
    assert_nothing_left();
}

static void stdout_of_rank_0_is_passed_on_as_it_is_and_the_rest_gets_a_prefix(void **state)
{
    struct agent agent;
    char text[TEXT_BYTES];

    (void)state;
    start(&agent,
          "echo result $RANK; echo talk $RANK >&2; echo \"[rank $RANK] named\" >&2;"
          "printf 'no newline' >&2",
          2, 10.0);
    assert_int_equal(finish(&agent), 0);
    assert_string_equal(agent.out_text, "result 0\n");
    assert_int_equal(count_of(agent.err_text, "[rank 1] result 1\n"), 1);
    assert_int_equal(count_of(agent.err_text, "[rank 0] talk 0\n"), 1);
    assert_int_equal(count_of(agent.err_text, "[rank 1] talk 1\n"), 1);
    assert_int_equal(count_of(agent.err_text, "[rank 1] named\n"), 1);
    assert_null(strstr(agent.err_text, "] [rank"));
    assert_int_equal(count_of(agent.err_text, "[rank 0] no newline\n"), 1);
    read_log(&agent, 0, text);
    assert_int_equal(count_of(text, "\nresult 0\n"), 1);
    assert_int_equal(count_of(text, "\ntalk 0\n"), 1);
    assert_int_equal(count_of(text, "job job-of-the-test rank 0 of 2\n"), 1);
    remove_dir(&agent, 2);
    assert_nothing_left();
}

static void one_process_alone_gets_no_prefix(void **state)
{
    struct agent agent;

    (void)state;
    start(&agent, "echo talk >&2", 1, 10.0);
    assert_int_equal(finish(&agent), 0);
    assert_string_equal(agent.err_text, "talk\n");
    remove_dir(&agent, 1);
    assert_nothing_left();
}

static void lines_of_several_processes_never_mix(void **state)
{
    static struct agent agent;
    char *at = NULL;
    int lines = 0;

    (void)state;
    start(&agent,
          "i=0; while [ $i -lt 100 ]; do printf '<begin-%s' $RANK >&2; printf -- '-end-%s>\\n' "
          "$RANK >&2; i=$((i + 1)); done",
          4, 10.0);
    assert_int_equal(finish(&agent), 0);
    for (at = strtok(agent.err_text, "\n"); at != NULL; at = strtok(NULL, "\n")) {
        char expected[64];

        assert_true(at[6] >= '0' && at[6] <= '3');
        (void)snprintf(expected, sizeof(expected), "[rank %c] <begin-%c-end-%c>", at[6], at[6],
                       at[6]);
        assert_string_equal(at, expected);
        lines++;
    }
    assert_int_equal(lines, 400);
    remove_dir(&agent, 4);
    assert_nothing_left();
}

static void the_first_failing_rank_gives_the_exit_code_and_ends_the_others(void **state)
{
    struct agent agent;

    (void)state;
    start(&agent, "if [ $RANK = 1 ]; then echo the cause >&2; exit 7; fi; exec sleep 600", 3, 50.0);
    assert_int_equal(finish(&agent), 7);
    assert_non_null(strstr(agent.err_text, "first: rank 1\ntail: the cause\n"));
    remove_dir(&agent, 3);
    assert_nothing_left();
}

static void a_rank_killed_by_a_signal_gives_128_plus_the_signal(void **state)
{
    struct agent agent;

    (void)state;
    start(&agent, "if [ $RANK = 2 ]; then kill -9 $$; fi; exec sleep 600", 3, 50.0);
    assert_int_equal(finish(&agent), 137);
    assert_non_null(strstr(agent.err_text, "first: rank 2\n"));
    remove_dir(&agent, 3);
    assert_nothing_left();
}

static void a_rank_that_ignores_term_is_killed_after_the_grace(void **state)
{
    struct agent agent;

    (void)state;
    start(&agent,
          "if [ $RANK = 0 ]; then trap '' TERM; echo deaf >&2; while :; do sleep 0.05; done; fi;"
          "exec sleep 600",
          2, 0.2);
    wait_for(&agent, "deaf", 1);
    assert_int_equal(kill(agent.pid, SIGTERM), 0);
    assert_int_equal(finish(&agent), 143);
    assert_null(strstr(agent.err_text, "first: rank"));
    remove_dir(&agent, 2);
    assert_nothing_left();
}

static void the_last_20_lines_of_stderr_are_kept_for_the_report(void **state)
{
    struct agent agent;

    (void)state;
    start(&agent, "i=1; while [ $i -le 30 ]; do echo line $i. >&2; i=$((i + 1)); done; exit 2", 1,
          10.0);
    assert_int_equal(finish(&agent), 2);
    assert_int_equal(count_of(agent.err_text, "tail: line "), 20);
    assert_non_null(strstr(agent.err_text, "first: rank 0\ntail: line 11.\n"));
    assert_non_null(strstr(agent.err_text, "tail: line 30.\n"));
    remove_dir(&agent, 1);
    assert_nothing_left();
}

static void a_signal_reaches_every_process_and_their_orderly_end_is_no_failure(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct agent agent;

        start(&agent,
              "trap 'echo stopped >&2; exit 143' TERM; trap 'echo stopped >&2; exit 130' INT;"
              "echo ready >&2; while :; do sleep 0.05; done",
              3, 50.0);
        wait_for(&agent, "ready", 3);
        assert_int_equal(kill(agent.pid, signals[i]), 0);
        assert_int_equal(finish(&agent), 128 + signals[i]);
        assert_int_equal(count_of(agent.err_text, "] stopped\n"), 3);
        assert_null(strstr(agent.err_text, "first: rank"));
        remove_dir(&agent, 3);
        assert_nothing_left();
    }
}

static void a_second_signal_kills_at_once(void **state)
{
    struct agent agent;

    (void)state;
    start(&agent, "trap 'echo heard >&2' INT; echo ready >&2; while :; do sleep 0.05; done", 2,
          500.0);
    wait_for(&agent, "ready", 2);
    assert_int_equal(kill(agent.pid, SIGINT), 0);
    wait_for(&agent, "] heard", 2);
    assert_int_equal(kill(agent.pid, SIGINT), 0);
    assert_int_equal(finish(&agent), 130);
    remove_dir(&agent, 2);
    assert_nothing_left();
}

static void a_failure_after_a_signal_is_still_reported(void **state)
{
    struct agent agent;

    (void)state;
    start(&agent,
          "trap 'test $RANK = 1 && exit 5; exit 143' TERM; echo ready >&2; while :; do sleep "
          "0.05; done",
          2, 50.0);
    wait_for(&agent, "ready", 2);
    assert_int_equal(kill(agent.pid, SIGTERM), 0);
    assert_int_equal(finish(&agent), 5);
    assert_non_null(strstr(agent.err_text, "first: rank 1\n"));
    remove_dir(&agent, 2);
    assert_nothing_left();
}

static void a_killed_agent_leaves_neither_processes_nor_their_children(void **state)
{
    struct agent agent;

    (void)state;
    start(&agent, "trap '' TERM HUP; sleep 600 & echo ready >&2; wait; sleep 600", 3, 10.0);
    wait_for(&agent, "ready", 3);
    assert_int_equal(kill(agent.pid, SIGKILL), 0);
    assert_int_equal(finish(&agent), 1000 + SIGKILL);
    assert_nothing_left();
    remove_dir(&agent, 3);
}

static void the_kernel_kills_a_process_whose_starter_dies(void **state)
{
    char *arguments[] = {(char[]){"sleep"}, (char[]){"600"}, NULL};
    const struct process_config config = {.program = "/bin/sleep", .arguments = arguments};
    pid_t starter = fork();

    (void)state;
    assert_true(starter >= 0);
    if (starter == 0) {
        struct process process;

        _exit(process_start(&config, &process) >= 0 ? 0 : 1);
    }
    assert_nothing_left();
}

static void a_process_that_ends_leaves_no_children(void **state)
{
    struct agent agent;

    (void)state;
    start(&agent, "sleep 600 & sleep 600 & exit 0", 2, 10.0);
    assert_int_equal(finish(&agent), 0);
    assert_nothing_left();
    remove_dir(&agent, 2);
}

static void a_program_that_cannot_be_started_is_an_error_that_leaves_nothing(void **state)
{
    char *arguments[] = {(char[]){"nothing"}, NULL};
    char dir[] = "/tmp/test-crew-XXXXXX";
    struct crew_config config = {
        .program = "/nonexistent/program",
        .arguments = arguments,
        .processes = 2,
        .log_dir = dir,
        .job = "job",
        .master_addr = "127.0.0.1",
        .master_port = 1,
        .grace_ns = CLOCK_SECOND,
        .out = STDOUT_FILENO,
        .err = STDERR_FILENO,
    };
    struct crew *crew = NULL;
    struct crew_outcome outcome;
    char path[128];

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(crew_create(&config, &crew), STATUS_OK);
    assert_int_equal(crew_run(crew, &outcome), STATUS_ERR_IO);
    assert_non_null(strstr(status_last()->message, "/nonexistent/program"));
    assert_non_null(strstr(status_last()->message, "No such file"));
    crew_destroy(&crew);
    (void)snprintf(path, sizeof(path), "%s/rank-0.log", dir);
    (void)unlink(path);
    assert_int_equal(rmdir(dir), 0);
    assert_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_processes_get_torchruns_environment_and_the_job),
        cmocka_unit_test(stdout_of_rank_0_is_passed_on_as_it_is_and_the_rest_gets_a_prefix),
        cmocka_unit_test(one_process_alone_gets_no_prefix),
        cmocka_unit_test(lines_of_several_processes_never_mix),
        cmocka_unit_test(the_first_failing_rank_gives_the_exit_code_and_ends_the_others),
        cmocka_unit_test(a_rank_killed_by_a_signal_gives_128_plus_the_signal),
        cmocka_unit_test(a_rank_that_ignores_term_is_killed_after_the_grace),
        cmocka_unit_test(the_last_20_lines_of_stderr_are_kept_for_the_report),
        cmocka_unit_test(a_signal_reaches_every_process_and_their_orderly_end_is_no_failure),
        cmocka_unit_test(a_second_signal_kills_at_once),
        cmocka_unit_test(a_failure_after_a_signal_is_still_reported),
        cmocka_unit_test(a_killed_agent_leaves_neither_processes_nor_their_children),
        cmocka_unit_test(the_kernel_kills_a_process_whose_starter_dies),
        cmocka_unit_test(a_process_that_ends_leaves_no_children),
        cmocka_unit_test(a_program_that_cannot_be_started_is_an_error_that_leaves_nothing),
    };

    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        return EXIT_FAILURE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
