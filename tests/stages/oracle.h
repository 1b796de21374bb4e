/*
 * oracle -- trajectories of an independent float64 implementation (tests/reference/README.md), and
 * whether a run follows them: loss, norm and learning rate of every step, and the gradients of the
 * first one, within the tolerances of DESIGN 5.3, which that README states.
 */
#ifndef TESTS_STAGES_ORACLE_H
#define TESTS_STAGES_ORACLE_H

#include "tests/stages/engine_rig.h"

/* Relative: what runs that are close to each other may differ by. */
#define ORACLE_LOSS_TOLERANCE       2e-6
#define ORACLE_FIRST_NORM_TOLERANCE 1e-6
#define ORACLE_NORM_TOLERANCE       2e-4
#define ORACLE_GRADIENT_TOLERANCE   2e-6

struct oracle {
    const char *file; /* safetensors: data, starting weights, what is expected */
    const char *yaml; /* the run that it describes, in one micro-batch */
};

extern const struct oracle oracle_plain;
extern const struct oracle oracle_masked; /* masked targets, a vocabulary of 131 */

double oracle_relative(double got, double expected);

/* Fails the test, named `what`, where the run leaves the trajectory; of its first run->steps steps. */
void oracle_check(const struct oracle *oracle, const struct rig_result *run, const char *what);

/* The same of losses and learning rates alone, within relative tolerances of one's own: of the first
 * loss, and of later ones. */
void oracle_check_losses(const struct oracle *oracle, const struct rig_result *run, double first,
                         double later, const char *what);

#endif /* TESTS_STAGES_ORACLE_H */
