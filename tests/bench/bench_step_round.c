/*
 * What a STEP round costs: 8 local processes, 40 keys, each given by one rank, as at the end of a
 * training step. Prints the median, and the ninth decile, over many rounds as rank 0 sees them.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/status.h"
#include "collectives/control.h"

enum {
    WORLD = 8,
    KEYS = 40,
    WARM_ROUNDS = 200,
    ROUNDS = 2000
};

static int compare(const void *a, const void *b)
{
    int64_t first = *(const int64_t *)a;
    int64_t second = *(const int64_t *)b;

    return (first > second) - (first < second);
}

static enum status run_rounds(struct control *control, int32_t rank, int64_t *times_ns)
{
    struct control_key keys[KEYS];
    struct control_value values[KEYS];
    double numbers[KEYS];
    int32_t value_count = 0;

    for (int32_t key = 0; key < KEYS; key++) {
        keys[key] = (struct control_key){.name = "sum of squares of a layer", .op = CONTROL_SUM};
        if (key % WORLD == rank) {
            values[value_count++] = (struct control_value){.key = key, .number = key};
        }
    }
    for (int32_t i = 0; i < WARM_ROUNDS + ROUNDS; i++) {
        const struct control_round round = {.name = "STEP",
                                            .number = (uint64_t)i,
                                            .keys = keys,
                                            .key_count = KEYS,
                                            .values = values,
                                            .value_count = value_count,
                                            .note = ""};
        struct control_answer answer = {.numbers = numbers};
        int64_t begin_ns = clock_now_ns();

        TRY(control_reduce(control, &round, &answer, clock_deadline(30.0)));
        if (i >= WARM_ROUNDS) {
            times_ns[i - WARM_ROUNDS] = clock_now_ns() - begin_ns;
        }
        if (numbers[KEYS - 1] != KEYS - 1) {
            return status_fail(STATUS_ERR_NUMERIC, "a sum is %g", numbers[KEYS - 1]);
        }
    }
    return STATUS_OK;
}

static enum status run_rank(const char *directory, int32_t rank)
{
    static int64_t times_ns[ROUNDS];
    struct cancel cancel = {0};
    struct control *control = NULL;
    const struct control_config config = {.job_directory = directory,
                                          .rank = rank,
                                          .world = WORLD,
                                          .variant = "bench",
                                          .device = "cpu",
                                          .welcome = "",
                                          .heartbeat_s = 2.0,
                                          .dead_after_s = 10.0,
                                          .stall_after_s = -1.0,
                                          .start_timeout_s = 20.0,
                                          .cancel = &cancel};

    TRY(control_open(&config, &control));
    enum status status = run_rounds(control, rank, times_ns);

    if (rank == 0 && status == STATUS_OK) {
        qsort(times_ns, ROUNDS, sizeof(times_ns[0]), compare);
        int64_t median_ns = times_ns[ROUNDS / 2];
        int64_t decile_ns = times_ns[(size_t)ROUNDS * 9 / 10];

        (void)printf("step_round_median\t%d ranks, %d keys\t%.3f\tms\n", WORLD, KEYS,
                     (double)median_ns / 1e6);
        (void)printf("step_round_p90\t%d ranks, %d keys\t%.3f\tms\n", WORLD, KEYS,
                     (double)decile_ns / 1e6);
    }
    enum status closed = control_close(&control);

    return status < 0 ? status : closed;
}

int main(void)
{
    char directory[] = "/tmp/weir-bench-XXXXXX";
    char path[64];
    int failures = 0;

    if (mkdtemp(directory) == NULL) {
        return EXIT_FAILURE;
    }
    for (int32_t rank = 1; rank < WORLD; rank++) {
        if (fork() == 0) {
            _exit(run_rank(directory, rank) == STATUS_OK ? EXIT_SUCCESS : EXIT_FAILURE);
        }
    }
    failures += run_rank(directory, 0) == STATUS_OK ? 0 : 1;
    for (int32_t rank = 1; rank < WORLD; rank++) {
        int how = 0;

        failures += wait(&how) > 0 && how == 0 ? 0 : 1;
    }
    (void)snprintf(path, sizeof(path), "%s/control", directory);
    (void)unlink(path);
    (void)rmdir(directory);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
