/*
 * traffic_rig -- what a rank of a configuration moves in a step of its 1F1B plan, beside sums by hand.
 */
#ifndef TESTS_STAGES_TRAFFIC_RIG_H
#define TESTS_STAGES_TRAFFIC_RIG_H

#include <stdint.h>

#include "scheduler/plan.h"
#include "stages/config.h"
#include "stages/traffic.h"

/* The lowered plan with early send; plan_destroy(). */
struct plan *traffic_rig_plan(const struct config *config);

struct traffic traffic_rig_on(const struct config *config, const struct plan *plan, int32_t rank);

/* Fail the test where the rank moves other bytes. */
void traffic_rig_expect(const struct config *config, int32_t rank, const struct traffic *expected);
void traffic_rig_expect_kind(const struct config *config, int32_t rank, enum traffic_kind kind,
                             uint64_t bytes);

/* The bytes by kind, in the order of TRAFFIC_TABLE; those left out are 0. */
#define TRAFFIC_RIG_EXPECT(config, rank, ...) \
    traffic_rig_expect((config), (rank), &(const struct traffic){.bytes = {__VA_ARGS__}})

#endif /* TESTS_STAGES_TRAFFIC_RIG_H */
