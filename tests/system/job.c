#include "tests/system/job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
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
        if (strstr(job->out, text) != NULL) {
            return 1;
        }
        clock_sleep_ns(10 * CLOCK_MS);
    }
    return 0;
}

/* Whether the process has this job's TMPDIR in its environment. */
static int belongs(const struct job *job, const char *pid)
{
    char path[PATH_BYTES];
    char mark[PATH_BYTES];
    static char environment[1 << 16];
    FILE *file = NULL;
    size_t got = 0;

    (void)snprintf(path, sizeof(path), "/proc/%s/environ", pid);
    (void)snprintf(mark, sizeof(mark), "TMPDIR=%s/tmp", job->directory);
    file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    got = fread(environment, 1, sizeof(environment), file);
    (void)fclose(file);
    return memmem(environment, got, mark, strlen(mark)) != NULL;
}

static int count_processes(const struct job *job)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry = NULL;
    int count = 0;

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') {
            count += belongs(job, entry->d_name);
        }
    }
    if (proc != NULL) {
        (void)closedir(proc);
    }
    return count;
}

int job_processes(const struct job *job, double grace_s)
{
    double begin_s = now_s();
    int count = count_processes(job);

    while (count > 0 && now_s() - begin_s < grace_s) {
        clock_sleep_ns(50 * CLOCK_MS);
        count = count_processes(job);
    }
    return count;
}

int job_names(const struct job *job)
{
    char path[PATH_BYTES];
    DIR *directory = NULL;
    const struct dirent *entry = NULL;
    int count = 0;

    (void)snprintf(path, sizeof(path), "%s/tmp/weir-%u", job->directory, (unsigned)getuid());
    directory = opendir(path);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return count;
}

int job_has(const struct job *job, const char *name)
{
    char path[PATH_BYTES];

    path_of(job, name, path);
    return access(path, F_OK) == 0;
}

void job_remove(struct job *job)
{
    job_run(job, 20.0, "cd / && rm -rf \"$DIR\"");
}
