#include "scheduler/prove.h"

#include <stddef.h>

#include "base/check.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/plan_text.h"
#include "scheduler/validate.h"

enum status plan_make(const struct plan_shape *shape, const char *path, struct plan **compute_out)
{
    if (shape->schedule != SCHEDULE_FILE) {
        return plan_generate(shape, compute_out);
    }
    ENSURE(path != NULL, "a plan of %d ranks from no file", shape->ranks);
    return plan_text_read(path, shape, compute_out);
}

/* Takes the plan, which is gone afterwards: a large one would weigh on the proof. */
static enum status prove(struct plan *compute, struct plan **lowered_out)
{
    struct plan *lowered = NULL;
    enum status status = plan_lower(compute, &lowered);

    plan_destroy(&compute);
    if (status < 0) {
        return status;
    }
    status = plan_validate(lowered);
    if (status < 0) {
        plan_destroy(&lowered);
        return status;
    }
    *lowered_out = lowered;
    return STATUS_OK;
}

enum status plan_prove_made(struct plan **compute, struct plan **lowered_out)
{
    struct plan *taken = *compute;

    *compute = NULL;
    return prove(taken, lowered_out);
}

enum status plan_prove(const struct plan_shape *shape, const char *path, struct plan **lowered_out)
{
    struct plan *compute = NULL;

    TRY(plan_make(shape, path, &compute));
    return prove(compute, lowered_out);
}

enum status plan_prove_evaluation(const struct plan *training, struct plan **lowered_out)
{
    struct plan *compute = NULL;

    TRY(plan_generate_evaluation(training, &compute));
    return prove(compute, lowered_out);
}
