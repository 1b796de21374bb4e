/* The emulation itself: threads, barriers, shuffles, votes, and what it makes of kernels that are wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/emulated/cuda_on_host_seed.h"
#include "tests/emulated/hosted.h"

#define THREADS 96
#define SEEDS   8

static void fill(float *in)
{
    for (int i = 0; i < THREADS; i++) {
        in[i] = (float)(i * 7 % 13 - 5);
    }
}

/* Each thread runs once, in any order, and without a barrier nobody changes places. */
static void every_thread_runs_once(void **state)
{
    int32_t out[5 * THREADS];

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint64_t before = cuda_on_host_switches();

        memset(out, 0, sizeof(out));
        cuda_on_host_seed(seed);
        hosted_number(out, 5, THREADS);
        for (int32_t i = 0; i < 5 * THREADS; i++) {
            assert_int_equal(out[i], i);
        }
        /* Of each block its only fiber comes back once. */
        assert_int_equal(cuda_on_host_switches() - before, 5);
    }
}

static void a_barrier_of_the_block_waits_for_all(void **state)
{
    float in[THREADS];
    float out[THREADS];

    (void)state;
    fill(in);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_on_host_seed(seed);
        hosted_reverse(out, in, THREADS, 1);
        for (int i = 0; i < THREADS; i++) {
            assert_true(out[i] == in[THREADS - 1 - i]);
        }
    }
}

/* What this is for: where the barrier is missing, the number is wrong. */
static void a_barrier_that_is_missing_shows(void **state)
{
    float in[THREADS];
    float out[THREADS];
    int wrong = 0;

    (void)state;
    fill(in);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        float other[THREADS];

        cuda_on_host_seed(seed);
        memset(other, 0, sizeof(other));
        hosted_reverse(out, other, THREADS, 1);
        hosted_reverse(out, in, THREADS, 0);
        for (int i = 0; i < THREADS; i++) {
            wrong += out[i] != in[THREADS - 1 - i];
        }
    }
    assert_true(wrong > SEEDS);
}

static void warps_go_their_own_ways(void **state)
{
    float in[THREADS];
    float out[THREADS];

    (void)state;
    fill(in);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_on_host_seed(seed);
        hosted_warp_sums(out, in, THREADS);
        for (int i = 0; i < THREADS; i++) {
            float sum = 0.0F;

            for (int k = i / 32 * 32; k < i / 32 * 32 + 32; k++) {
                sum += in[k]; /* small whole numbers: exact in any order */
            }
            assert_true(out[i] == sum);
        }
    }
}

/* Who has left is waited for no longer, and votes no more. */
static void threads_that_have_ended_are_not_waited_for(void **state)
{
    float in[THREADS];
    uint32_t out[THREADS];

    (void)state;
    fill(in);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint32_t expected = 0;

        memset(out, 0, sizeof(out));
        cuda_on_host_seed(seed);
        hosted_votes(out, in, THREADS, 40);
        for (int i = 32; i < 40; i++) {
            expected |= (in[i] > 0.0F ? 1U : 0U) << (i - 32);
        }
        assert_int_equal(out[39], expected);
        assert_int_equal(out[40], 0);
    }
}

/* A copy that nobody has waited for has not happened. */
static void copies_arrive_when_they_are_waited_for(void **state)
{
    float in[4 * 16];
    float out[THREADS];

    (void)state;
    for (int i = 0; i < 4 * 16; i++) {
        in[i] = (float)(i + 1);
    }
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_on_host_seed(seed);
        hosted_copies(out, in, THREADS, 1);
        for (int i = 0; i < THREADS; i++) {
            int from = THREADS - 1 - i;

            assert_true(out[i] == (from < 16 ? in[from * 4 + 3] : 0.0F));
        }
        hosted_copies(out, in, THREADS, 0);
        for (int i = 0; i < THREADS; i++) {
            assert_true(isnan(out[i])); /* shared memory as it was */
        }
    }
}

static void ends_itself(void (*kernel)(unsigned threads))
{
    int code = 0;
    pid_t child = fork();

    if (child == 0) {
        (void)close(STDERR_FILENO);
        (void)alarm(20);
        kernel(64);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFSIGNALED(code));
    assert_int_equal(WTERMSIG(code), SIGABRT);
}

static void who_waits_for_ever_ends_the_program(void **state)
{
    (void)state;
    ends_itself(hosted_wait_for_ever);
    ends_itself(hosted_ask_outside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_runs_once),
        cmocka_unit_test(a_barrier_of_the_block_waits_for_all),
        cmocka_unit_test(a_barrier_that_is_missing_shows),
        cmocka_unit_test(warps_go_their_own_ways),
        cmocka_unit_test(threads_that_have_ended_are_not_waited_for),
        cmocka_unit_test(copies_arrive_when_they_are_waited_for),
        cmocka_unit_test(who_waits_for_ever_ends_the_program),
    };

    return cmocka_run_group_tests_name("cuda_on_host", tests, NULL, NULL);
}
