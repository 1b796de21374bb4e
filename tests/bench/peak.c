#include "tests/bench/peak.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"

#define ROUNDS     8
#define ROUND_NS   (30 * CLOCK_MS)
#define BURST      4096 /* multiply-adds of each chain between two looks at the clock */
#define CHAINS     12   /* enough to fill two units of latency four; fits sixteen registers */
#define MULTIPLIER 0.999F
#define ADDEND     0.001F

/* Runs CHAINS × BURST vector multiply-adds, returns a number that depends on all of them. */
typedef float (*burst_fn)(void);

struct burst {
    burst_fn run;
    int lanes;
    const char *isa;
};

/* The same loop for each vector width. The chains converge to ADDEND / (1 - MULTIPLIER) = 1, so
 * neither overflow nor denormal numbers disturb them. */
#define DEFINE_BURST(name, lane_count)                                       \
    static float name(void)                                                  \
    {                                                                        \
        typedef float vector __attribute__((vector_size(4 * (lane_count)))); \
        vector multiplier = (vector){0.0F} + MULTIPLIER;                     \
        vector addend = (vector){0.0F} + ADDEND;                             \
        vector chains[CHAINS];                                               \
        float sum = 0.0F;                                                    \
        for (int chain = 0; chain < CHAINS; chain++) {                       \
            chains[chain] = (vector){0.0F} + (float)chain;                   \
        }                                                                    \
        for (int step = 0; step < BURST; step++) {                           \
            for (int chain = 0; chain < CHAINS; chain++) {                   \
                chains[chain] = chains[chain] * multiplier + addend;         \
            }                                                                \
        }                                                                    \
        for (int chain = 0; chain < CHAINS; chain++) {                       \
            sum += chains[chain][0];                                         \
        }                                                                    \
        return sum;                                                          \
    }

#if defined(__x86_64__)
__attribute__((target("avx512f"))) DEFINE_BURST(burst_avx512, 16)
    __attribute__((target("avx2,fma"))) DEFINE_BURST(burst_avx2, 8)
#endif
        DEFINE_BURST(burst_generic, 4)

            static struct burst widest_burst(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        return (struct burst){.run = burst_avx512, .lanes = 16, .isa = "avx512"};
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return (struct burst){.run = burst_avx2, .lanes = 8, .isa = "avx2-fma"};
    }
#endif
    return (struct burst){.run = burst_generic, .lanes = 4, .isa = "generic"};
}

enum gate_state {
    GATE_SHUT,
    GATE_OPEN,
    GATE_GIVEN_UP
};

/* What the threads of one measurement share. */
struct gate {
    atomic_int state;        /* an enum gate_state; shut until all threads exist */
    pthread_barrier_t start; /* of each round */
};

struct meter {
    pthread_t thread;
    struct gate *gate;
    struct burst burst;
    double flops[ROUNDS]; /* this thread's rate in each round */
    float sink;           /* keeps the compiler from dropping the work */
};

static void *meter_run(void *argument)
{
    struct meter *meter = argument;
    const double burst_ops = 2.0 * CHAINS * BURST * meter->burst.lanes;

    while (atomic_load(&meter->gate->state) == GATE_SHUT) {
        (void)sched_yield();
    }
    if (atomic_load(&meter->gate->state) == GATE_GIVEN_UP) {
        return NULL;
    }
    meter->sink = meter->burst.run();
    for (int round = 0; round < ROUNDS; round++) {
        (void)pthread_barrier_wait(&meter->gate->start);
        const int64_t begin_ns = clock_now_ns();
        int64_t now_ns = begin_ns;
        double ops = 0.0;
        while (now_ns - begin_ns < ROUND_NS) {
            meter->sink += meter->burst.run();
            ops += burst_ops;
            now_ns = clock_now_ns();
        }
        meter->flops[round] = ops / ((double)(now_ns - begin_ns) * 1e-9);
    }
    return NULL;
}

static double best_round(const struct meter *meters, int threads)
{
    double best = 0.0;

    for (int round = 0; round < ROUNDS; round++) {
        double together = 0.0;
        for (int i = 0; i < threads; i++) {
            together += meters[i].flops[round];
        }
        best = together > best ? together : best;
    }
    return best;
}

double peak_measure_flops(int threads)
{
    struct meter *meters = threads >= 1 ? calloc((size_t)threads, sizeof(*meters)) : NULL;
    struct gate gate = {.state = GATE_SHUT};
    int started = 1; /* the caller is the first */
    double best = 0.0;

    if (meters == NULL || pthread_barrier_init(&gate.start, NULL, (unsigned)threads) != 0) {
        free(meters);
        return 0.0;
    }
    for (int i = 0; i < threads; i++) {
        meters[i].gate = &gate;
        meters[i].burst = widest_burst();
    }
    while (started < threads &&
           pthread_create(&meters[started].thread, NULL, meter_run, &meters[started]) == 0) {
        started++;
    }
    atomic_store(&gate.state, started == threads ? GATE_OPEN : GATE_GIVEN_UP);
    (void)meter_run(&meters[0]);
    for (int i = 1; i < started; i++) {
        (void)pthread_join(meters[i].thread, NULL);
    }
    best = best_round(meters, threads);
    (void)pthread_barrier_destroy(&gate.start);
    free(meters);
    return best;
}

const char *peak_isa(void)
{
    return widest_burst().isa;
}
