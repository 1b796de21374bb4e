#include "tests/emulated/gpu_oracle.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>

#include "tests/emulated/gpu_run.h"

struct format {
    const char *name;
    double first_loss; /* of the oracle's losses, as in tests/stages/test_precision.c */
    double loss;
};

static const struct format formats[] = {
    [DTYPE_FP32] = {"fp32", ORACLE_LOSS_TOLERANCE, ORACLE_LOSS_TOLERANCE},
    [DTYPE_BF16] = {"bf16", 2e-4, 2e-2},
    [DTYPE_FP16] = {"fp16", 3e-5, 3e-3}};

void gpu_oracle_follow(const struct oracle *oracle, enum dtype type,
                       const struct gpu_layout *layout, uint64_t seed)
{
    const struct rig_hooks hooks = gpu_run_hooks(&seed);
    const struct format *format = &formats[type];
    static struct rig_result run;
    char text[6][64];
    const char *overrides[6] = {text[0], text[1], text[2], text[3], text[4], text[5]};
    char what[128];

    (void)snprintf(text[0], sizeof(text[0]), "precision.dtype=%s", format->name);
    (void)snprintf(text[1], sizeof(text[1]), "parallel.pp=%d", layout->pp);
    (void)snprintf(text[2], sizeof(text[2]), "parallel.tp=%d", layout->tp);
    (void)snprintf(text[3], sizeof(text[3]), "parallel.dp=%d", layout->dp);
    (void)snprintf(text[4], sizeof(text[4]), "train.micro_batch_size=%d", layout->micro_batch);
    (void)snprintf(text[5], sizeof(text[5]), "train.steps=%d", layout->steps);
    (void)snprintf(what, sizeof(what), "%s, pp %d, tp %d, dp %d, micro-batch %d", format->name,
                   layout->pp, layout->tp, layout->dp, layout->micro_batch);
    rig_run_watched(oracle->yaml, overrides, layout->steps > 0 ? 6 : 5, &hooks, &run);
    if (run.status < 0) {
        fail_msg("%s: %s", what, run.message);
    }
    assert_int_equal(run.ranks_disagree + run.copies_disagree + run.holes, 0);
    if (type == DTYPE_FP32) {
        oracle_check(oracle, &run, what);
    } else {
        oracle_check_losses(oracle, &run, format->first_loss, format->loss, what);
    }
    rig_release(&run);
}
