#include "stages/model/tensor_parallel.h"

#include "collectives/comm.h"
#include "collectives/control.h"

enum status tensor_parallel_sum(const struct tensor_parallel *tp, float *data, size_t elems)
{
    if (tp->size == 1) {
        return STATUS_OK;
    }
    control_waits(tp->control, true);
    TRY(comm_all_reduce(tp->group, data, elems, COMM_SUM, tp->cancel, tp->deadline_ns));
    control_waits(tp->control, false);
    return STATUS_OK;
}

enum status tensor_parallel_gather(const struct tensor_parallel *tp, void *data, size_t bytes_each)
{
    if (tp->size == 1) {
        return STATUS_OK;
    }
    control_waits(tp->control, true);
    TRY(comm_all_gather(tp->group, data, (size_t)tp->size * bytes_each / sizeof(float), tp->cancel,
                        tp->deadline_ns));
    control_waits(tp->control, false);
    return STATUS_OK;
}
