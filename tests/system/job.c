#include "tests/system/job.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define COMMAND_BYTES 4096
#define PATH_BYTES    512

static double now_s(void)
{
    return (double)clock_now_ns() * 1e-9;
}

static void path_of(const struct job *job, const char *name, char *path)
{
    (void)snprintf(path, PATH_BYTES, "%s/%s", job->directory, name);
}

static int make_directory(const struct job *job, const char *name)
{
    char path[PATH_BYTES];

    path_of(job, name, path);
    return mkdir(path, 0700);
}

static void write_file(const struct job *job, const char *name, const char *text)
{
    char path[PATH_BYTES];
    FILE *file = NULL;

    path_of(job, name, path);
    file = fopen(path, "w");
    if (file != NULL) {
        (void)fputs(text, file);
        (void)fclose(file);
    }
}

static void write_text(const struct job *job)
{
    char text[4001];
    uint32_t word = 99;

    for (int i = 0; i < 4000; i++) {
        word = word * 1664525U + 1013904223U;
        text[i] = (char)('a' + (int)((word >> 24) % 26U));
    }
    text[4000] = '\0';
    write_file(job, "text.txt", text);
}

static void write_config(const struct job *job)
{
    char text[1024];

    (void)snprintf(text, sizeof(text),
                   "model: {num_layers: 4, hidden_size: 32, num_heads: 2, seq_len: 16, "
                   "vocab_size: 256}\n"
                   "train: {steps: 5, micro_batch_size: 2, num_microbatches: 4, threads: 1}\n"
                   "optimizer: {lr: 0.01, warmup_steps: 1}\n"
                   "data: {train: %s/text.txt}\n",
                   job->directory);
    write_file(job, "config.yaml", text);
}

static void write_script(const struct job *job, const char *name, const char *binary)
{
    char path[PATH_BYTES];
    char text[256];

    (void)snprintf(text, sizeof(text),
                   "#!/bin/sh\nexec \"$%s\" train \"$CONFIG\" --train.run_dir=\"$RUN\" \"$@\"\n",
                   binary);
    write_file(job, name, text);
    path_of(job, name, path);
    (void)chmod(path, 0700);
}

static void set_environment(const struct job *job)
{
    static const char *const names[][2] = {
        {"DIR", ""},      {"TMPDIR", "tmp"}, {"TEXT", "text.txt"},
        {"RUNS", "runs"}, {"RUN", "run"},    {"CONFIG", "config.yaml"},
    };
    char path[PATH_BYTES];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        path_of(job, names[i][1], path);
        (void)setenv(names[i][0], path, 1);
    }
    (void)setenv("WEIR", TEST_WEIR_BINARY, 1);
    (void)setenv("LAUNCH", TEST_SOURCE_DIR "/launch", 1);
    (void)setenv("WEIR_LOG", "info", 1);
}

static void become(const struct job *job, const char *command)
{
    static const char *const names[] = {"out.log", "err.log"};
    char path[PATH_BYTES];

    (void)setpgid(0, 0);
    /* A test that is killed takes its job along: the shell becomes its last command, and a job's processes end
     * with the one that started them. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_environment(job);
    for (int i = 0; i < 2; i++) {
        int file = -1;

        path_of(job, names[i], path);
        file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        (void)dup2(file, i + 1);
    }
    if (chdir(job->directory) != 0) {
        _exit(126);
    }
    (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static void start(struct job *job, const char *command, va_list args)
{
    char text[COMMAND_BYTES];

    (void)vsnprintf(text, sizeof(text), command, args);
    /* What the last command said must not be taken for this one's. */
    write_file(job, "out.log", "");
    write_file(job, "err.log", "");
    job->mark_s = now_s();
    job->shell = fork();
    if (job->shell == 0) {
        become(job, text);
    }
}

void job_start(struct job *job, const char *command, ...)
{
    va_list args;

    va_start(args, command);
    start(job, command, args);
    va_end(args);
}

static void read_log(const struct job *job, const char *name, char *text)
{
    char path[PATH_BYTES];
    FILE *file = NULL;
    size_t got = 0;

    path_of(job, name, path);
    file = fopen(path, "r");
    if (file != NULL) {
        got = fread(text, 1, JOB_OUTPUT_BYTES - 1, file);
        (void)fclose(file);
    }
    text[got] = '\0';
}

static void read_logs(struct job *job)
{
    read_log(job, "out.log", job->out);
    read_log(job, "err.log", job->err);
}

/* Whether the command has ended; then its exit code is there. */
static int has_ended(struct job *job)
{
    int status = 0;
    pid_t ended = 0;

    if (job->shell == 0) {
        return 1;
    }
    ended = waitpid(job->shell, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) {
        return 0;
    }
    job->code = -1;
    if (ended == job->shell) {
        job->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    job->shell = 0;
    return 1;
}

static void end_within(struct job *job, double deadline_s)
{
    double begin_s = now_s();

    while (!has_ended(job)) {
        if (now_s() - begin_s > deadline_s) {
            (void)kill(-job->shell, SIGKILL);
            (void)waitpid(job->shell, NULL, 0);
            job->shell = 0;
            job->code = -1;
            break;
        }
        clock_sleep_ns(10 * CLOCK_MS);
    }
    job->seconds = now_s() - job->mark_s;
    read_logs(job);
}

void job_end(struct job *job)
{
    end_within(job, JOB_DEADLINE_S);
}

void job_run(struct job *job, const char *command, ...)
{
    va_list args;

    va_start(args, command);
    start(job, command, args);
    va_end(args);
    job_end(job);
}

int job_set_up(void **state)
{
    struct job *job = (struct job *)*state;

    memset(job, 0, sizeof(*job));
    (void)snprintf(job->directory, sizeof(job->directory), "/tmp/weir-job-XXXXXX");
    if (mkdtemp(job->directory) == NULL || make_directory(job, "tmp") != 0) {
        return -1;
    }
    write_text(job);
    write_config(job);
    write_script(job, "train", "LAUNCH");
    write_script(job, "rank", "WEIR");
    return 0;
}

int job_tear_down(void **state)
{
    struct job *job = (struct job *)*state;

    if (job->shell > 0) {
        end_within(job, 0.0);
    }
    job_run(job, "cd / && rm -rf \"$DIR\"");
    return job->code;
}

/* One look of a wait that began at `begin_s`. What the command said before its end is read after it. */
static void pause_waiting(struct job *job, const char *what, double begin_s)
{
    if (job->shell == 0 || now_s() - begin_s > JOB_DEADLINE_S) {
        fail_msg("no %s after %.1f s, exit code %d:\n%s%s", what, now_s() - begin_s, job->code,
                 job->out, job->err);
    }
    clock_sleep_ns(5 * CLOCK_MS);
    (void)has_ended(job);
    read_logs(job);
}

void job_await(struct job *job, const char *text)
{
    double begin_s = now_s();

    read_logs(job);
    while (strstr(job->out, text) == NULL && strstr(job->err, text) == NULL) {
        pause_waiting(job, text, begin_s);
    }
    job->mark_s = now_s();
}

static unsigned long long blocked_signals(pid_t process)
{
    static const char key[] = "SigBlk:";
    char path[64];
    char line[256];
    unsigned long long mask = 0;
    FILE *file = NULL;

    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)process);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            mask = strtoull(line + strlen(key), NULL, 16);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return mask;
}

void job_await_blocked(struct job *job, int signal)
{
    double begin_s = now_s();

    while ((blocked_signals(job->shell) >> (signal - 1) & 1U) == 0) {
        pause_waiting(job, "blocked signal", begin_s);
    }
    job->mark_s = now_s();
}

void job_signal(struct job *job, pid_t process, int signal)
{
    assert_true(process > 0);
    job->mark_s = now_s();
    assert_int_equal(kill(process, signal), 0);
}

struct search {
    char mark[PATH_BYTES]; /* an entry of the environment that the job's processes have */
    char rank[32];         /* another one; empty for any */
    pid_t last;            /* found */
    int count;
};

/* Whether the block of zero-ended texts has `entry`. */
static int has_entry(const char *block, size_t bytes, const char *entry)
{
    for (size_t at = 0; at < bytes; at += strlen(block + at) + 1) {
        if (strcmp(block + at, entry) == 0) {
            return 1;
        }
    }
    return 0;
}

static void look_at(const char *pid, struct search *search)
{
    static char environment[1 << 16];
    char path[PATH_BYTES];
    FILE *file = NULL;
    size_t got = 0;

    (void)snprintf(path, sizeof(path), "/proc/%s/environ", pid);
    file = fopen(path, "r");
    if (file == NULL) {
        return;
    }
    got = fread(environment, 1, sizeof(environment) - 1, file);
    environment[got] = '\0';
    (void)fclose(file);
    if (has_entry(environment, got, search->mark) &&
        (search->rank[0] == '\0' || has_entry(environment, got, search->rank))) {
        search->last = (pid_t)strtol(pid, NULL, 10);
        search->count++;
    }
}

static void look(const struct job *job, struct search *search)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry = NULL;

    search->count = 0;
    search->last = 0;
    (void)snprintf(search->mark, sizeof(search->mark), "TMPDIR=%s/tmp", job->directory);
    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') {
            look_at(entry->d_name, search);
        }
    }
    if (proc != NULL) {
        (void)closedir(proc);
    }
}

pid_t job_rank(const struct job *job, int rank)
{
    struct search search;

    (void)snprintf(search.rank, sizeof(search.rank), "RANK=%d", rank);
    look(job, &search);
    return search.last;
}

int job_processes(const struct job *job, double grace_s)
{
    double begin_s = now_s();
    struct search search = {.rank = ""};

    look(job, &search);
    while (search.count > 0 && now_s() - begin_s < grace_s) {
        clock_sleep_ns(50 * CLOCK_MS);
        look(job, &search);
    }
    return search.count;
}

static int count_names(const char *path, const char *uncounted)
{
    DIR *directory = opendir(path);
    const struct dirent *entry = NULL;
    int count = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 strcmp(entry->d_name, uncounted) != 0;
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return count;
}

int job_names(const struct job *job)
{
    char jobs[32];
    char path[PATH_BYTES];
    int count = 0;

    (void)snprintf(jobs, sizeof(jobs), "weir-%u", (unsigned)geteuid());
    path_of(job, "tmp", path);
    count = count_names(path, jobs);
    (void)snprintf(path, sizeof(path), "%s/tmp/%s", job->directory, jobs);
    return count + count_names(path, "");
}

int job_has(const struct job *job, const char *name)
{
    char path[PATH_BYTES];

    path_of(job, name, path);
    return access(path, F_OK) == 0;
}

int job_touch(const struct job *job, const char *name)
{
    write_file(job, name, "");
    return job_has(job, name) ? 0 : -1;
}
