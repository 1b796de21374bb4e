/*
 * bench_plan -- how long it takes to make, lower, prove and simulate a plan.
 *
 *   bench_plan [pp num_microbatches [virtual_stages]]
 *
 * Prints name, shape, value and unit, tab separated; 1F1B of 1,024 ranks and 4,096 micro-batches
 * unless told otherwise, interleaved where there are several chunks a rank. plan_all is what DESIGN
 * promises: generated, lowered and proved, line by line as a job does it, by as many cores as it takes
 * (plan_cores: what all of them were busy). The rows behind it have the plan in memory as a whole, and are
 * the time of one core.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "scheduler/depth.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/prove.h"
#include "scheduler/simulate.h"
#include "scheduler/validate.h"

#define NS_PER_S ((int64_t)1000000000)

/* Time of this thread's core, so that what else the machine does counts less. */
static int64_t now_ns_of_core(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static double seconds_of(clockid_t clock)
{
    struct timespec now = {0};

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void print_seconds(const char *name, const struct plan_shape *shape, double seconds)
{
    (void)printf("%s\tpp=%d m=%d v=%d\t%.3f\ts\n", name, shape->ranks, shape->microbatches,
                 shape->virtual_stages, seconds);
}

static int64_t report(const char *name, const struct plan_shape *shape, int64_t since_ns)
{
    int64_t now_ns = now_ns_of_core();

    print_seconds(name, shape, (double)(now_ns - since_ns) / (double)NS_PER_S);
    return now_ns_of_core();
}

static void report_memory(const char *name, const struct plan_shape *shape)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        (void)printf("%s\tpp=%d m=%d v=%d\t%.3f\tGiB\n", name, shape->ranks, shape->microbatches,
                     shape->virtual_stages, (double)usage.ru_maxrss / 1048576.0);
    }
}

/* What a job waits for: all lines generated, lowered and proved, and one of them kept; and what the ranks
 * beyond the first do, which are told the hash of theirs. */
static enum status measure_start(const struct plan_shape *shape)
{
    struct plan *plan = NULL;
    double wall_s = seconds_of(CLOCK_MONOTONIC);
    double cores_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    int64_t since_ns = 0;

    TRY(plan_prove_keeping(shape, NULL, shape->ranks / 2, &plan));
    print_seconds("plan_all", shape, seconds_of(CLOCK_MONOTONIC) - wall_s);
    print_seconds("plan_cores", shape, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cores_s);
    report_memory("plan_memory", shape);
    plan_destroy(&plan);
    since_ns = now_ns_of_core();
    TRY(plan_make_line(shape, NULL, shape->ranks / 2, &plan));
    (void)report("plan_line", shape, since_ns);
    plan_destroy(&plan);
    return STATUS_OK;
}

/* The same with all lines there at once, as for a picture. */
static enum status measure_whole(const struct plan_shape *shape, struct plan **compute,
                                 struct plan **lowered)
{
    struct plan_costs costs;
    struct simulation simulation;
    enum status status;
    int32_t depth;
    int64_t since_ns = now_ns_of_core();
    int64_t first_ns = since_ns;

    TRY(plan_generate(shape, compute));
    since_ns = report("plan_generate", shape, since_ns);
    TRY(plan_lower(*compute, lowered));
    plan_destroy(compute);
    since_ns = report("plan_lower", shape, since_ns);
    TRY(plan_validate(*lowered));
    (void)report("plan_validate", shape, since_ns);
    (void)report("plan_whole", shape, first_ns);
    report_memory("plan_whole_memory", shape);
    since_ns = now_ns_of_core();
    TRY(plan_min_depth(*lowered, &depth));
    since_ns = report("plan_min_depth", shape, since_ns);
    TRY(plan_costs_uniform(*lowered, 1.0, 1.0, 1.0, 0.0, &costs));
    status = plan_simulate(*lowered, &costs, &simulation);
    plan_costs_release(&costs);
    if (status < 0) {
        return status;
    }
    (void)report("plan_simulate", shape, since_ns);
    simulation_release(&simulation);
    return STATUS_OK;
}

int main(int argc, char **argv)
{
    struct plan_shape shape = {.schedule = SCHEDULE_1F1B,
                               .ranks = 1024,
                               .microbatches = 4096,
                               .virtual_stages = 1,
                               .lane_depth = 2,
                               .early_send = true,
                               .embedding_sync = true};
    struct plan *compute = NULL;
    struct plan *lowered = NULL;
    enum status status;

    if (argc >= 3) {
        shape.ranks = (int32_t)strtol(argv[1], NULL, 10);
        shape.microbatches = (int32_t)strtol(argv[2], NULL, 10);
    }
    if (argc == 4) {
        shape.virtual_stages = (int32_t)strtol(argv[3], NULL, 10);
        shape.schedule = shape.virtual_stages > 1 ? SCHEDULE_INTERLEAVED_1F1B : shape.schedule;
    }
    status = measure_start(&shape);
    if (status == STATUS_OK) {
        status = measure_whole(&shape, &compute, &lowered);
    }
    plan_destroy(&lowered);
    plan_destroy(&compute);
    return status < 0 ? 1 : 0;
}
