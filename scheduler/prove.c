#include "scheduler/prove.h"

#include <stddef.h>

#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/validate.h"

enum status plan_prove(const struct plan_shape *shape, struct plan **lowered_out)
{
    struct plan *compute = NULL;
    struct plan *lowered = NULL;
    enum status status = STATUS_OK;

    TRY_OR(done, status, plan_generate(shape, &compute));
    TRY_OR(done, status, plan_lower(compute, &lowered));
    TRY_OR(done, status, plan_validate(lowered));
    *lowered_out = lowered;
    lowered = NULL;

done:
    plan_destroy(&lowered);
    plan_destroy(&compute);
    return status;
}
