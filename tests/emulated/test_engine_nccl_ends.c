/*
 * How whole trainings over NCCL end where it fails or hangs on one rank: on all of them, soon, and by name. Over the fakes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "collectives/cuda/comm_nccl.h"
#include "stages/engine.h"
#include "tests/base/capture.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/fake_nccl.h"
#include "tests/emulated/nccl_job.h"
#include "tests/stages/base_run.h"

/* Small: what is looked at here is who says what. */
#define SMALL "model.num_layers=2", "model.seq_len=16"

/* Where a stall is what is looked for; a busy machine has others, but none that long. Elsewhere none is. */
#define STALLS_SOON  "control.stall_after_s=5"
#define STALLS_NEVER "control.stall_after_s=60"

#define WORDS_MOST 3

/* Words of one line, one behind the other; NULL: no more. */
struct words {
    const char *word[WORDS_MOST];
};

static bool line_has(const char *line, const struct words *words)
{
    const char *end = strchr(line, '\n');
    const char *at = line;

    for (int i = 0; i < WORDS_MOST && words->word[i] != NULL; i++) {
        at = strstr(at, words->word[i]);
        if (at == NULL || (end != NULL && at > end)) {
            return false;
        }
        at += strlen(words->word[i]);
    }
    return true;
}

static bool is_said(const char *said, const struct words *words)
{
    for (const char *line = said; line != NULL; line = strchr(line, '\n')) {
        line += line[0] == '\n' ? 1 : 0;
        if (line_has(line, words)) {
            return true;
        }
    }
    return false;
}

/* Ends the test unless a line of what was said has these words, or the others where there are any. */
static void assert_said(const char *said, const struct words *words, const struct words *others)
{
    if (!is_said(said, words) && (others == NULL || !is_said(said, others))) {
        (void)fprintf(stderr, "%s\n", said);
        fail_msg("\"%s … %s\" is not in what was said", words->word[0],
                 words->word[1] != NULL ? words->word[1] : "");
    }
}

/* A job in which rank 1's operation number `nth` is spoilt ends on all ranks, soon, with `words` among what they say. */
static void check_failure(const struct base_run *job, void (*spoil)(int rank, int nth), int nth,
                          const struct words *words, const struct words *others)
{
    const struct rig_hooks hooks = nccl_job_hooks();
    static struct rig_result run;
    static char said[16384];
    struct capture capture;
    struct base_run on = base_with(job, spoil == fake_nccl_hang ? STALLS_SOON : STALLS_NEVER);
    const int64_t before_ns = fake_nccl_struck_ns(1);

    nccl_job_order(3);
    on.hooks = &hooks;
    spoil(1, nth);
    capture_begin(&capture);
    base_try(&on, &run);
    capture_end(&capture, said, sizeof(said));
    spoil(1, 0);
    assert_true(run.status < 0);
    assert_true(run.message[0] != '\0');
    assert_said(said, words, others);
    assert_true(fake_nccl_struck_ns(1) > before_ns);
    assert_true(clock_now_ns() - fake_nccl_struck_ns(1) < 40000 * CLOCK_MS);
    assert_int_equal(fake_nccl_left(), 0);
    rig_release(&run);
}

static const struct base_run replicas = {
    .pp = 2, .dp = 2, .steps = 20, .micro_batch = 2, .more = {SMALL}};

/* What rank 1 of two calls: at the start each of its four lanes once; in the first step it sends the gradient of the
 * tied embedding behind the receives of four activations and the sends of four gradients, or before some of these. */
static const struct base_run pair = {
    .pp = 2, .steps = 20, .micro_batch = 2, .more = {SMALL, "parallel.embedding_sync=data_plane"}};
#define PAIR_TIED 12

/* Rank 1 and its peer learn of it at once; whoever comes first tells the others, of rank 1 in either case. */
static void an_error_of_nccl_on_one_rank_ends_the_job_by_name(void **state)
{
    static const struct words own = {
        {"the job has ended: ", "rank 1, work of the ", "made to fail"}};
    static const struct words peers = {{"the job has ended: ", "rank 1 has failed"}};
    static const struct words tied = {{"the job has ended: ", "lane E from rank 1 to rank 0"}};

    (void)state;
    check_failure(&replicas, fake_nccl_fail, 60, &own, &peers);
    check_failure(&pair, fake_nccl_fail, PAIR_TIED, &tied, NULL);
}

/* Its peer says whom it waits for, and for which message. */
static void a_hang_of_nccl_on_one_rank_ends_the_job_by_name(void **state)
{
    static const struct words waits = {{"rank 3 waits for rank 1: message "}};
    static const struct words tied = {
        {"rank 0 waits for rank 1: message 1 of the lane E from rank 1 to rank 0"}};

    (void)state;
    check_failure(&replicas, fake_nccl_hang, 60, &waits, NULL);
    check_failure(&pair, fake_nccl_hang, PAIR_TIED, &tied, NULL);
}

/* Launches of a rank before the one that hangs. */
#define HUNG_KERNEL 500

static bool is_over(const void *context)
{
    return cancel_requested(context);
}

/* A kernel of rank 1, in the middle of a step, does not end before the job does. */
static void hang_second(void *context, struct engine_options *options)
{
    (void)context;
    options->plane = ENGINE_PLANE_NCCL;
    options->open_nccl = comm_nccl_open;
    if (options->rank == 1) {
        fake_cuda_hang_launch(HUNG_KERNEL, is_over, options->cancel);
    }
}

/* Every main thread waits for its own device then, and every device but one for another rank. */
static void a_device_that_hangs_is_named_whoever_waits_for_it(void **state)
{
    static const struct base_run layouts[] = {
        {.pp = 2, .dp = 2, .steps = 20, .micro_batch = 2, .more = {SMALL}},
        {.pp = 2, .tp = 2, .steps = 20, .micro_batch = 2, .more = {SMALL}},
    };
    static const struct words hangs = {
        {"rank 1 (", ") hangs: no progress for", ", its device inside action "}};
    static struct rig_result run;
    static char said[16384];

    (void)state;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct rig_hooks hooks = nccl_job_hooks();
        struct base_run on = base_with(&layouts[i], STALLS_SOON);
        struct capture capture;

        hooks.on_open = hang_second;
        on.hooks = &hooks;
        nccl_job_order(3 + i);
        capture_begin(&capture);
        base_try(&on, &run);
        capture_end(&capture, said, sizeof(said));
        assert_true(run.status < 0);
        assert_said(said, &hangs, NULL);
        rig_release(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_of_nccl_on_one_rank_ends_the_job_by_name),
        cmocka_unit_test(a_hang_of_nccl_on_one_rank_ends_the_job_by_name),
        cmocka_unit_test(a_device_that_hangs_is_named_whoever_waits_for_it),
    };

    return cmocka_run_group_tests_name("engine_nccl_ends", tests, base_make, base_remove);
}
