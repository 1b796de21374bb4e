/*
 * bench_predict -- the simulator's step from calibrated costs beside the measured step.
 *
 *     bench_predict WEIR [--rounds 3 --steps 12 --layers 8 --hidden 128 --heads 4 --seq-len 128
 *                         --micro-batch-size 4 --num-microbatches 8 --vocab 256]
 *
 * Trains each of several schedules on two ranks × 1 thread for a few steps, traced, in turns, so that
 * whatever else the machine does meets all of them. Of each it prints the measured median of its steps
 * over all rounds, the prediction from its own costs, and from the costs of the first schedule with as
 * many virtual stages; then, of the pairs whose predictions differ by more than 3 %, how many were measured
 * in that order. Prints name, shape, value and unit, tab separated.
 */
#include <getopt.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "scheduler/costs.h"
#include "scheduler/prove.h"
#include "scheduler/simulate.h"
#include "stages/calibrate.h"
#include "stages/config.h"

#define MOST_ROUNDS 9
#define TEXT_BYTES  ((size_t)1 << 20)
#define DIFFERENT   0.03

extern char **environ;

/* Schedules, what makes them, and their virtual stages a rank. */
static const struct bench_case {
    const char *name;
    const char *schedule;
    const char *early_send;
    int chunks;
} cases[] = {
    {"1f1b", "1f1b", "true", 1},
    {"1f1b_late_send", "1f1b", "false", 1},
    {"gpipe", "gpipe", "true", 1},
    {"zb_h1", "zb_h1", "true", 1},
    {"interleaved_v2", "interleaved_1f1b", "true", 2},
    {"bfs_v2", "bfs", "true", 2},
    {"izb_v2", "izb", "true", 2},
    {"zb_v", "zb_v", "true", 2},
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

struct bench {
    const char *weir;
    long rounds;
    long steps;
    long layers;
    long hidden;
    long heads;
    long seq_len;
    long micro_batch_size;
    long microbatches;
    long vocab;
    char folder[64];
    char config[96];
    double measured[CASES][MOST_ROUNDS];
    double own[CASES][MOST_ROUNDS];
    double other[CASES][MOST_ROUNDS];
};

static double median(const double *values, long count)
{
    double sorted[MOST_ROUNDS];

    memcpy(sorted, values, (size_t)count * sizeof(*sorted));
    for (long i = 1; i < count; i++) {
        for (long j = i; j > 0 && sorted[j] < sorted[j - 1]; j--) {
            double swapped = sorted[j];

            sorted[j] = sorted[j - 1];
            sorted[j - 1] = swapped;
        }
    }
    return count % 2 == 1 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0;
}

/* A configuration, and a text for it. */
static enum status write_inputs(struct bench *bench)
{
    char path[96];
    char yaml[1024];
    char *text = malloc(TEXT_BYTES);
    uint32_t seed = 1;
    enum status status;

    if (text == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "bench_predict: %zu bytes of text", TEXT_BYTES);
    }
    for (size_t i = 0; i < TEXT_BYTES; i++) {
        seed = seed * 1664525U + 1013904223U;
        text[i] = (char)('a' + (seed >> 24) % 26);
    }
    (void)snprintf(path, sizeof(path), "%s/text.txt", bench->folder);
    status = file_write(path, text, TEXT_BYTES);
    free(text);
    if (status < 0) {
        return status;
    }
    (void)snprintf(yaml, sizeof(yaml),
                   "model: {num_layers: %ld, hidden_size: %ld, num_heads: %ld, seq_len: %ld, "
                   "vocab_size: %ld}\n"
                   "parallel: {pp: 2}\n"
                   "train: {steps: %ld, micro_batch_size: %ld, num_microbatches: %ld, threads: 1}\n"
                   "optimizer: {lr: 1.0e-4}\n"
                   "data: {train: %s, split: [1, 0, 0]}\n"
                   "trace: {enabled: true}\n",
                   bench->layers, bench->hidden, bench->heads, bench->seq_len, bench->vocab,
                   bench->steps, bench->micro_batch_size, bench->microbatches, path);
    (void)snprintf(bench->config, sizeof(bench->config), "%s/job.yaml", bench->folder);
    return file_write(bench->config, yaml, strlen(yaml));
}

/* Runs one job to its end, its words thrown away. */
static enum status run_job(const struct bench *bench, const struct bench_case *one,
                           const char *run_dir)
{
    char words[7][160] = {"weir", "agent", "train"};
    char *arguments[] = {words[0], words[1], words[2], (char *)bench->config, words[3], words[4],
                         words[5], words[6], NULL};
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    int code = 0;
    int error;

    (void)snprintf(words[3], sizeof(words[3]), "--parallel.schedule=%s", one->schedule);
    (void)snprintf(words[4], sizeof(words[4]), "--parallel.early_send=%s", one->early_send);
    (void)snprintf(words[5], sizeof(words[5]), "--parallel.virtual_stages=%d", one->chunks);
    (void)snprintf(words[6], sizeof(words[6]), "--train.run_dir=%s", run_dir);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", 1, 0);
    error = posix_spawn(&child, bench->weir, &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        return status_fail(STATUS_ERR_IO, "bench_predict: %s: %s", bench->weir, strerror(error));
    }
    if (waitpid(child, &code, 0) != child || !WIFEXITED(code) || WEXITSTATUS(code) != 0) {
        return status_fail(STATUS_ERR_IO, "bench_predict: the job of %s ended badly", one->name);
    }
    return STATUS_OK;
}

/* The step that the run's plan takes at these costs. */
static enum status predict(const char *run_dir, const struct costs *costs, double *ms_out)
{
    char path[FILE_PATH_BYTES];
    struct config *config = NULL;
    struct plan_shape shape;
    struct plan *plan = NULL;
    struct plan_costs model;
    struct simulation simulation;
    enum status status;

    TRY(folder_path(run_dir, "config.yaml", path));
    TRY(config_load(path, NULL, 0, &config));
    config_plan_shape(config, &shape);
    config_destroy(&config);
    TRY(plan_prove(&shape, NULL, &plan));
    status = costs_model(costs, plan, &model);
    if (status >= 0) {
        status = plan_simulate(plan, &model, &simulation);
        plan_costs_release(&model);
    }
    plan_destroy(&plan);
    if (status >= 0) {
        *ms_out = simulation.makespan + costs->rest.typical;
        simulation_release(&simulation);
    }
    return status;
}

/* One job of each case; the costs of the first with as many chunks predict the others too. */
static enum status run_round(struct bench *bench, long round)
{
    struct costs first[2] = {{.stages = 0}, {.stages = 0}};
    enum status status = STATUS_OK;

    for (size_t i = 0; i < CASES && status >= 0; i++) {
        struct costs *shared = &first[cases[i].chunks - 1];
        struct costs costs = {.stages = 0};
        char run_dir[128];

        (void)snprintf(run_dir, sizeof(run_dir), "%s/%s-%ld", bench->folder, cases[i].name, round);
        TRY_OR(done, status, run_job(bench, &cases[i], run_dir));
        TRY_OR(done, status, calibrate_run(run_dir, &costs));
        bench->measured[i][round] = costs.step.median;
        status = predict(run_dir, &costs, &bench->own[i][round]);
        if (shared->stages == 0) {
            *shared = costs;
        } else {
            costs_release(&costs);
        }
        if (status >= 0) {
            status = predict(run_dir, shared, &bench->other[i][round]);
        }
        (void)folder_remove(run_dir);
    }
done:
    costs_release(&first[0]);
    costs_release(&first[1]);
    return status;
}

static void print_row(const char *name, const char *shape, double value, const char *unit)
{
    (void)printf("%s\t%s\t%.2f\t%s\n", name, shape, value, unit);
}

/* Of pairs whose predictions differ by more than 3 %, how many were measured in that order. */
static void print_order(const char *whose, const double *measured, const double *predicted)
{
    int pairs = 0;
    int right = 0;

    for (size_t i = 0; i < CASES; i++) {
        for (size_t j = i + 1; j < CASES; j++) {
            if (fabs(predicted[i] / predicted[j] - 1.0) > DIFFERENT) {
                pairs++;
                right += (measured[i] < measured[j]) == (predicted[i] < predicted[j]) ? 1 : 0;
            }
        }
    }
    print_row("pairs_that_differ", whose, pairs, "pairs");
    print_row("pairs_in_order", whose, right, "pairs");
}

static void print_all(const struct bench *bench)
{
    double measured[CASES];
    double own[CASES];
    double other[CASES];

    for (size_t i = 0; i < CASES; i++) {
        measured[i] = median(bench->measured[i], bench->rounds);
        own[i] = median(bench->own[i], bench->rounds);
        other[i] = median(bench->other[i], bench->rounds);
        print_row("step_measured", cases[i].name, measured[i], "ms");
        print_row("step_predicted", cases[i].name, own[i], "ms");
        print_row("difference", cases[i].name, 100.0 * (own[i] / measured[i] - 1.0), "%");
        print_row("step_predicted_by_first", cases[i].name, other[i], "ms");
        print_row("difference_by_first", cases[i].name, 100.0 * (other[i] / measured[i] - 1.0),
                  "%");
    }
    print_order("by_own", measured, own);
    print_order("by_first", measured, other);
}

static void parse(struct bench *bench, int argc, char **argv)
{
    static const char *const names[] = {"rounds", "steps",   "layers",           "hidden",
                                        "heads",  "seq-len", "micro-batch-size", "num-microbatches",
                                        "vocab"};
    long *const values[] = {&bench->rounds,           &bench->steps,        &bench->layers,
                            &bench->hidden,           &bench->heads,        &bench->seq_len,
                            &bench->micro_batch_size, &bench->microbatches, &bench->vocab};

    bench->weir = argc > 1 ? argv[1] : "build/release/weir";
    for (int i = 2; i + 1 < argc; i += 2) {
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
            if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, names[n]) == 0) {
                *values[n] = strtol(argv[i + 1], NULL, 10);
            }
        }
    }
    bench->rounds = bench->rounds < 1             ? 1
                    : bench->rounds > MOST_ROUNDS ? MOST_ROUNDS
                                                  : bench->rounds;
}

int main(int argc, char **argv)
{
    struct bench bench = {.rounds = 3,
                          .steps = 12,
                          .layers = 8,
                          .hidden = 128,
                          .heads = 4,
                          .seq_len = 128,
                          .micro_batch_size = 4,
                          .microbatches = 8,
                          .vocab = 256,
                          .folder = "/tmp/weir-predict-XXXXXX"};
    enum status status;

    parse(&bench, argc, argv);
    if (mkdtemp(bench.folder) == NULL) {
        return 1;
    }
    status = write_inputs(&bench);
    for (long round = 0; round < bench.rounds && status >= 0; round++) {
        status = run_round(&bench, round);
    }
    if (status >= 0) {
        print_all(&bench);
    }
    (void)folder_remove(bench.folder);
    return status < 0 ? 1 : 0;
}
