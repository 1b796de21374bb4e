#include "stages/model/tensor_parallel.h"

#include "collectives/comm.h"
#include "collectives/control.h"

/* A shard that hangs must be told from those that wait for it. */
static void tell(const struct tensor_parallel *tp, bool waits)
{
    if (tp->control != NULL) {
        control_waits(tp->control, waits);
    }
}

enum status tensor_parallel_sum(const struct tensor_parallel *tp, float *data, size_t elems)
{
    if (tp->size == 1) {
        return STATUS_OK;
    }
    tell(tp, true);
    TRY(comm_all_reduce(tp->group, data, elems, COMM_SUM, tp->cancel, tp->deadline_ns));
    tell(tp, false);
    return STATUS_OK;
}

enum status tensor_parallel_gather(const struct tensor_parallel *tp, void *data, size_t bytes_each)
{
    if (tp->size == 1) {
        return STATUS_OK;
    }
    tell(tp, true);
    TRY(comm_all_gather(tp->group, data, (size_t)tp->size * bytes_each / sizeof(float), tp->cancel,
                        tp->deadline_ns));
    tell(tp, false);
    return STATUS_OK;
}
