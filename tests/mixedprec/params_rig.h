/*
 * params_rig -- parameters for tests, as short as they are told by hand, and what their copies hold.
 */
#ifndef TESTS_MIXEDPREC_PARAMS_RIG_H
#define TESTS_MIXEDPREC_PARAMS_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "mixedprec/params.h"

/* Adds `name` of rows × cols. One of several rows decays and begins at random values of deviation 0.02,
 * others at the `init_value` of `like`, which has the other fields too. */
void params_rig_add(struct params *params, const char *name, int64_t rows, int64_t cols,
                    const struct param *like);

/* Makes a set of four, from zero: a.weight (5, 7) and a.bias (7) of norm key and layer 0, b.weight (3, 11) of
 * 1, c.bias (13) of 2; vectors begin at 1. */
void params_rig_make_four(struct params *params);

/* Measures and places what was added. */
void params_rig_place(struct params *params);

/* The element of a tensor of `type`. */
float params_rig_at(const void *tensor, enum dtype type, size_t index);

#endif /* TESTS_MIXEDPREC_PARAMS_RIG_H */
