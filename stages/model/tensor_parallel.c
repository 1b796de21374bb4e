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

enum status tensor_parallel_scatter(const struct tensor_parallel *tp, float *data, size_t elems)
{
    if (tp->size == 1) {
        return STATUS_OK;
    }
    control_waits(tp->control, true);
    TRY(comm_reduce_scatter(tp->group, data, elems, tp->cancel, tp->deadline_ns));
    control_waits(tp->control, false);
    return STATUS_OK;
}

enum status tensor_parallel_share(const struct tensor_parallel *tp, void *data, size_t elems,
                                  enum dtype type)
{
    const struct comm_piece piece = {.data = data, .elems = elems, .elem_bytes = dtype_bytes(type)};

    if (tp->size == 1) {
        return STATUS_OK;
    }
    control_waits(tp->control, true);
    TRY(comm_all_gather_pieces(tp->group, &piece, 1, tp->cancel, tp->deadline_ns));
    control_waits(tp->control, false);
    if (tp->shared_bytes != NULL) {
        *tp->shared_bytes += elems * piece.elem_bytes;
    }
    return STATUS_OK;
}
