#include "stages/tune/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "stages/agent/process.h"
#include "stages/exit_code.h"

/* How long a job that was told to end may take: its agent kills its ranks at the second signal. */
#define END_NS (15 * CLOCK_SECOND)

#define LOOK_AGAIN_MS  20 /* a child's end is no event of a descriptor */
#define PIECE_BYTES    4096
#define LOG_BYTES_MOST ((size_t)64 << 20)
#define ERROR_BYTES    400

/* The running program itself, whatever happens to its file meanwhile. */
static const char this_program[] = "/proc/self/exe";

enum status tune_jobs_open(const struct tune_base *base, struct tune_interrupt *interrupt,
                           struct tune_jobs *jobs_out)
{
    const char *run_dir = base->config->train.run_dir;
    char *slash = NULL;
    int wrote = 0;

    *jobs_out = (struct tune_jobs){.base = base, .interrupt = interrupt, .program = this_program};
    wrote = snprintf(jobs_out->folder, sizeof(jobs_out->folder), "%s", run_dir);
    while (wrote > 1 && jobs_out->folder[wrote - 1] == '/') {
        jobs_out->folder[--wrote] = '\0';
    }
    if ((size_t)wrote + sizeof("-tune-XXXXXX") > sizeof(jobs_out->folder)) {
        jobs_out->folder[0] = '\0';
        return status_fail(STATUS_ERR_REFUSED,
                           "weir tune: train.run_dir: the name has %zu bytes, at most %zu are "
                           "possible for jobs beside it",
                           strlen(run_dir), sizeof(jobs_out->folder) - sizeof("-tune-XXXXXX"));
    }
    slash = strrchr(jobs_out->folder, '/');
    if (slash != NULL && slash != jobs_out->folder) {
        enum status status = STATUS_OK;

        *slash = '\0';
        status = file_make_directories(jobs_out->folder);
        *slash = '/';
        if (status < 0) {
            jobs_out->folder[0] = '\0';
            return status;
        }
    }
    (void)memcpy(jobs_out->folder + wrote, "-tune-XXXXXX", sizeof("-tune-XXXXXX"));
    if (mkdtemp(jobs_out->folder) == NULL) {
        enum status status =
            status_fail(STATUS_ERR_IO, "weir tune: cannot make a folder for jobs, %s: %s",
                        jobs_out->folder, strerror(errno));

        jobs_out->folder[0] = '\0';
        return status;
    }
    return STATUS_OK;
}

/* What a job does without: everything that is not a step. The schedules of learning rate and weight
 * decay stay those of the whole run, of which the job is the beginning. */
static void add_settings(const struct tune_jobs *jobs, const struct tune_job *job,
                         const char *run_dir, struct tune_arguments *arguments)
{
    const struct config *config = jobs->base->config;
    const double *split = config->data.split;

    tune_arguments_add(arguments, "--train.run_dir=%s", run_dir);
    tune_arguments_add(arguments, "--checkpoint.dir=%s/checkpoints", run_dir);
    tune_arguments_add(arguments, "--checkpoint.every=0");
    tune_arguments_add(arguments, "--checkpoint.resume=never");
    tune_arguments_add(arguments, "--train.steps=%" PRId64, job->steps);
    tune_arguments_add(arguments, "--train.eval_every=0");
    tune_arguments_add(arguments, "--data.test=");
    tune_arguments_add(arguments, "--data.split=[%.17g,%.17g,0]", 1.0 - split[1], split[1]);
    tune_arguments_add(arguments, "--optimizer.decay_steps=%" PRId64,
                       config->optimizer.decay_steps);
    tune_arguments_add(arguments, "--optimizer.wsd_decay_steps=%" PRId64,
                       config->optimizer.wsd_decay_steps);
    tune_arguments_add(arguments, "--optimizer.weight_decay_steps=%" PRId64,
                       config->optimizer.weight_decay_steps);
    tune_arguments_add(arguments, "--trace.enabled=%s", job->traced ? "true" : "false");
    tune_arguments_add(arguments, "--trace.first_step=1");
    tune_arguments_add(arguments, "--trace.last_step=all");
}

static enum status make_arguments(const struct tune_jobs *jobs, const struct tune_job *job,
                                  const char *run_dir, struct tune_arguments *arguments)
{
    tune_arguments_add(arguments, "weir");
    tune_arguments_add(arguments, "agent");
    tune_arguments_add(arguments, "train");
    tune_arguments_add(arguments, "%s", jobs->base->path);
    tune_arguments_add_all(arguments, jobs->base->overrides.words, jobs->base->overrides.count);
    TRY(tune_candidate_words(job->candidate, arguments));
    add_settings(jobs, job, run_dir, arguments);
    return tune_arguments_check(arguments);
}

/* Moves what lies ready; closes at the end of the stream. */
static void move_output(int *in, int log)
{
    char piece[PIECE_BYTES];
    ssize_t got = 0;

    while (*in >= 0 && (got = read(*in, piece, sizeof(piece))) != 0) {
        if (got < 0) {
            return; /* nothing there now, or interrupted */
        }
        /* A log that takes no more is no reason to stop a job. */
        ssize_t wrote = write(log, piece, (size_t)got);
        (void)wrote;
    }
    if (*in >= 0) {
        (void)close(*in);
        *in = -1;
    }
}

/* A second signal ends a job at once, and an agent reads both before it looks at its ranks. */
static void tell_to_end(const struct process *process)
{
    process_signal(process, SIGINT);
    process_signal(process, SIGTERM);
}

/* Until the job has ended. True where it did so by itself. */
static bool watch(const struct tune_jobs *jobs, struct process *process, int log, double timeout_s,
                  struct process_end *end_out)
{
    int64_t deadline_ns = clock_deadline(timeout_s);
    bool told = false;

    while (!process_reap(process, end_out)) {
        struct pollfd polls[3] = {
            {.fd = process->out, .events = POLLIN},
            {.fd = process->err, .events = POLLIN},
            {.fd = told ? -1 : jobs->interrupt->descriptor, .events = POLLIN}};

        (void)poll(polls, 3, LOOK_AGAIN_MS);
        move_output(&process->out, log);
        move_output(&process->err, log);
        if (!told && (tune_interrupted(jobs->interrupt) < 0 || clock_now_ns() > deadline_ns)) {
            told = true;
            deadline_ns = clock_now_ns() + END_NS;
            tell_to_end(process);
        } else if (told && clock_now_ns() > deadline_ns) {
            process_signal_group(process, SIGKILL);
        }
    }
    move_output(&process->out, log);
    move_output(&process->err, log);
    return !told;
}

static void close_ends(struct process *process)
{
    int *ends[] = {&process->out, &process->err};

    for (int i = 0; i < 2; i++) {
        if (*ends[i] >= 0) {
            (void)close(*ends[i]);
            *ends[i] = -1;
        }
    }
}

/* The first line with an error; where none has, nothing. */
static void find_error(const char *log_path, char *error)
{
    static const char mark[] = "error: ";
    char *bytes = NULL;
    size_t count = 0;
    const char *found = NULL;

    error[0] = '\0';
    if (file_read(log_path, LOG_BYTES_MOST, &bytes, &count) < 0) {
        return;
    }
    found = strstr(bytes, mark);
    if (found != NULL) {
        found += strlen(mark);
        (void)snprintf(
            error, ERROR_BYTES, ": %.*s",
            (int)(strcspn(found, "\n") < ERROR_BYTES ? strcspn(found, "\n") : ERROR_BYTES - 1),
            found);
    }
    free(bytes);
}

static enum status report_failure(struct tune_jobs *jobs, const struct tune_job *job,
                                  const struct process_end *end, const char *log_path)
{
    char candidate[TUNE_CANDIDATE_TEXT_BYTES];
    char error[ERROR_BYTES];
    char how[64];

    jobs->keep = true;
    tune_candidate_print(job->candidate, candidate, sizeof(candidate));
    find_error(log_path, error);
    process_end_describe(end, how, sizeof(how));
    return status_fail(process_end_code(end) == EXIT_CODE_REFUSED ? STATUS_ERR_REFUSED
                                                                  : STATUS_ERR_PEER,
                       "weir tune: job %d (%s) failed, %s%s; its log is %s", jobs->started,
                       candidate, how, error, log_path);
}

static enum status note_late(const struct tune_jobs *jobs, const struct tune_job *job)
{
    char candidate[TUNE_CANDIDATE_TEXT_BYTES];

    tune_candidate_print(job->candidate, candidate, sizeof(candidate));
    return status_note(STATUS_ERR_TIMEOUT,
                       "weir tune: job %d (%s) was ended after %.0f s, when the time was up; give "
                       "more with --time-limit",
                       jobs->started, candidate, job->timeout_s);
}

static enum status run(struct tune_jobs *jobs, const struct tune_job *job,
                       struct tune_arguments *arguments, const char *log_path)
{
    const struct process_config config = {.program = jobs->program, .arguments = arguments->words};
    struct process process = {.pid = 0, .out = -1, .err = -1};
    struct process_end end = {.code = 0};
    bool by_itself = false;
    enum status status = STATUS_OK;
    int log = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (log < 0) {
        return status_fail(STATUS_ERR_IO, "weir tune: cannot open the log %s: %s", log_path,
                           strerror(errno));
    }
    status = process_start(&config, &process);
    if (status >= 0) {
        by_itself = watch(jobs, &process, log, job->timeout_s, &end);
        close_ends(&process);
        status = tune_interrupted(jobs->interrupt);
        if (status >= 0 && !by_itself) {
            status = note_late(jobs, job);
        } else if (status >= 0 && process_end_code(&end) != 0) {
            status = report_failure(jobs, job, &end, log_path);
        }
    }
    (void)close(log);
    return status;
}

enum status tune_jobs_run(struct tune_jobs *jobs, const struct tune_job *job, char *run_dir,
                          double *seconds_out)
{
    struct tune_arguments arguments = {.words = NULL};
    char log_path[TUNE_JOB_PATH_BYTES + 32];
    int64_t begin_ns = clock_now_ns();
    enum status status = tune_interrupted(jobs->interrupt);

    if (status < 0) {
        return status;
    }
    jobs->started++;
    (void)snprintf(run_dir, TUNE_JOB_PATH_BYTES, "%.380s/job-%03d", jobs->folder, jobs->started);
    (void)snprintf(log_path, sizeof(log_path), "%s.log", run_dir);
    status = make_arguments(jobs, job, run_dir, &arguments);
    if (status >= 0) {
        status = run(jobs, job, &arguments, log_path);
    }
    tune_arguments_release(&arguments);
    *seconds_out = (double)(clock_now_ns() - begin_ns) * 1e-9;
    return status;
}

void tune_jobs_forget(struct tune_jobs *jobs, const char *run_dir)
{
    if (!jobs->keep) {
        folder_discard(run_dir);
    }
}

void tune_jobs_close(struct tune_jobs *jobs)
{
    if (jobs->folder[0] != '\0' && !jobs->keep) {
        folder_discard(jobs->folder);
    }
    jobs->folder[0] = '\0';
}
