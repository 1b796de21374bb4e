/*
 * norm_rig -- a run of grad_norm with room for the results of a test's few parameters.
 */
#ifndef TESTS_MIXEDPREC_NORM_RIG_H
#define TESTS_MIXEDPREC_NORM_RIG_H

#include "mixedprec/grad_norm.h"

#define NORM_RIG_RESULTS 64

struct norm_rig {
    struct grad_norm_run run;
    double results[NORM_RIG_RESULTS];
};

/* The run that lends the rig's room, which holds what is not in `params` too: whoever reads more than was
 * written finds a NaN. */
const struct grad_norm_run *norm_rig_run(struct norm_rig *rig, const struct params *params,
                                         struct device *device);

#endif /* TESTS_MIXEDPREC_NORM_RIG_H */
