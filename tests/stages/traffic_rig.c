#include "tests/stages/traffic_rig.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../scheduler/plan_fixture.h"
#include "scheduler/lower.h"

struct plan *traffic_rig_plan(const struct config *config)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_1F1B, (int32_t)config->parallel.pp,
                                            (int32_t)config->train.num_microbatches, true);
    struct plan *compute = NULL;
    struct plan *lowered = NULL;

    shape.embedding_sync = config->model.tied_embeddings;
    compute = fixture_compute(SCHEDULE_1F1B, shape.ranks, (int32_t)config->train.num_microbatches);
    compute->shape = shape;
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    return lowered;
}

struct traffic traffic_rig_on(const struct config *config, const struct plan *plan, int32_t rank)
{
    const struct grid_shape shape = {.pp = (int32_t)config->parallel.pp,
                                     .tp = (int32_t)config->parallel.tp,
                                     .dp = (int32_t)config->parallel.dp};
    struct traffic traffic;
    struct grid grid;

    assert_int_equal(grid_init(&grid, &shape, rank, shape.pp * shape.tp * shape.dp), STATUS_OK);
    assert_int_equal(traffic_plan(config, plan, &grid, &traffic), STATUS_OK);
    return traffic;
}

void traffic_rig_expect(const struct config *config, int32_t rank, const struct traffic *expected)
{
    struct plan *plan = traffic_rig_plan(config);
    struct traffic found = traffic_rig_on(config, plan, rank);

    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        if (found.bytes[kind] != expected->bytes[kind]) {
            fail_msg("rank %d, %s: %llu bytes, expected %llu", rank,
                     traffic_text((enum traffic_kind)kind), (unsigned long long)found.bytes[kind],
                     (unsigned long long)expected->bytes[kind]);
        }
    }
    plan_destroy(&plan);
}

void traffic_rig_expect_kind(const struct config *config, int32_t rank, enum traffic_kind kind,
                             uint64_t bytes)
{
    struct plan *plan = traffic_rig_plan(config);

    assert_int_equal(traffic_rig_on(config, plan, rank).bytes[kind], bytes);
    plan_destroy(&plan);
}
