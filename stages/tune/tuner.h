/*
 * tuner -- finds the fastest way to run a configuration on this machine.
 *
 *   1. every legal candidate is planned; those that do not fit into memory are dropped
 *   2. short traced jobs measure what layers cost (cost_table), always at the point that the best
 *      predictions hang on and that is not measured yet, until those at the top are
 *   3. the best ones get layers divided by these costs, and orders that are searched for, where that
 *      helps
 *   4. the best few really run, in turns, and the fastest of them is the answer
 *   5. where one takes another time than its costs say, the machine was another when they were
 *      measured: they are measured once more, and the best few that did not run yet follow
 *
 * Which jobs come depends on what earlier ones measured; the configuration itself is always among
 * those that really run.
 */
#ifndef STAGES_TUNE_TUNER_H
#define STAGES_TUNE_TUNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/tune/candidate.h"
#include "stages/tune/field.h"
#include "stages/tune/job.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUNE_STEPS_LEAST (TUNE_WARM_STEPS + 2)

struct tune_settings {
    unsigned keys;       /* bits of enum tune_key */
    int32_t verify;      /* how many really run, beside the configuration; 0: none */
    int64_t steps;       /* of a job, those that do not count included; >= TUNE_STEPS_LEAST */
    double time_limit_s; /* no job begins after it, and none lasts longer */
};

struct tune_result {
    struct tune_field field; /* owns; best first */
    int32_t jobs;            /* that ran */
    double seconds;
    bool out_of_time; /* more would have been measured */
};

/* Says on stderr what it does. STATUS_ERR_REFUSED where nothing fits; STATUS_ERR_CANCELLED where a
 * signal came; a job that fails ends it with that job's cause. The caller releases, after a failure
 * too. */
enum status tune_run(const struct tune_base *base, const struct tune_settings *settings,
                     struct tune_jobs *jobs, struct tune_result *result_out);

/* Safe on a zeroed one, and twice. */
void tune_result_release(struct tune_result *result);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_TUNER_H */
