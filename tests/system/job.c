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

void job_make(struct job *job)
{
    char path[PATH_BYTES];

    memset(job, 0, sizeof(*job));
    (void)snprintf(job->directory, sizeof(job->directory), "/tmp/weir-job-XXXXXX");
    if (mkdtemp(job->directory) == NULL) {
        return;
    }
    path_of(job, "tmp", path);
    (void)mkdir(path, 0700);
    write_text(job);
    (void)snprintf(path, sizeof(path), "data: {train: %s/text.txt}\n", job->directory);
    write_file(job, "data.part", path);
    write_file(job, "model.part",
               "model: {num_layers: 4, hidden_size: 32, num_heads: 2, seq_len: 16, "
               "vocab_size: 256}\n"
               "train: {steps: 5, micro_batch_size: 2, num_microbatches: 4, threads: 1}\n"
               "optimizer: {lr: 0.01, warmup_steps: 1}\n");
    job_run(job, 10.0, "cat \"$DIR/model.part\" \"$DIR/data.part\" > \"$CONFIG\"");
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

static void start(struct job *job, const char *command)
{
    /* What the last command said must not be taken for this one's. */
    write_file(job, "out.log", "");
    write_file(job, "err.log", "");
    job->begin_s = now_s();
    job->shell = fork();
    if (job->shell == 0) {
        become(job, command);
    }
}

void job_start(struct job *job, const char *command, ...)
{
    char text[COMMAND_BYTES];
    va_list args;

    va_start(args, command);
    (void)vsnprintf(text, sizeof(text), command, args);
    va_end(args);
    start(job, text);
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

void job_end(struct job *job, double deadline_s)
{
    int status = 0;

    job->code = -1;
    for (;;) {
        pid_t ended = waitpid(job->shell, &status, WNOHANG);

        if (ended == job->shell) {
            job->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            break;
        }
        if (now_s() - job->begin_s > deadline_s || (ended < 0 && errno != EINTR)) {
            (void)kill(-job->shell, SIGKILL);
            (void)waitpid(job->shell, &status, 0);
            break;
        }
        clock_sleep_ns(10 * CLOCK_MS);
    }
    job->seconds = now_s() - job->begin_s;
    read_log(job, "out.log", job->out);
    read_log(job, "err.log", job->err);
}

void job_run(struct job *job, double deadline_s, const char *command, ...)
{
    char text[COMMAND_BYTES];
    va_list args;

    va_start(args, command);
    (void)vsnprintf(text, sizeof(text), command, args);
    va_end(args);
    start(job, text);
    job_end(job, deadline_s);
}

int job_await(struct job *job, const char *text, double deadline_s)
{
    double begin_s = now_s();

    while (now_s() - begin_s < deadline_s) {
        read_log(job, "out.log", job->out);
        read_log(job, "err.log", job->err);
        if (strstr(job->out, text) != NULL || strstr(job->err, text) != NULL) {
            return 1;
        }
        clock_sleep_ns(10 * CLOCK_MS);
    }
    return 0;
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

int job_await_blocked(const struct job *job, int signal, double deadline_s)
{
    double begin_s = now_s();

    while (now_s() - begin_s < deadline_s) {
        if ((blocked_signals(job->shell) >> (signal - 1) & 1U) != 0) {
            return 1;
        }
        clock_sleep_ns(10 * CLOCK_MS);
    }
    return 0;
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

double job_age_s(const struct job *job)
{
    return now_s() - job->begin_s;
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

void job_assert_nothing_left(const struct job *job)
{
    assert_int_equal(job_processes(job, 3.0), 0);
    assert_int_equal(job_names(job), 0);
}

void job_assert_says(const struct job *job, const char *text)
{
    if (strstr(job->err, text) == NULL) {
        fail_msg("expected \"%s\" in:\n%s", text, job->err);
    }
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

void job_remove(struct job *job)
{
    job_run(job, 20.0, "cd / && rm -rf \"$DIR\"");
}
