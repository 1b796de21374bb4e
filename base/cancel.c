#include "base/cancel.h"

#include "base/clock.h"

void cancel_request(struct cancel *cancel)
{
    __atomic_store_n(&cancel->requested, 1, __ATOMIC_RELEASE);
}

bool cancel_requested(const struct cancel *cancel)
{
    return cancel != NULL && __atomic_load_n(&cancel->requested, __ATOMIC_ACQUIRE) != 0;
}

enum status cancel_check(const struct cancel *cancel, int64_t deadline_ns)
{
    if (cancel_requested(cancel)) {
        return STATUS_ERR_CANCELLED;
    }
    if (deadline_ns != CLOCK_NEVER && clock_now_ns() > deadline_ns) {
        return STATUS_ERR_TIMEOUT;
    }
    return STATUS_OK;
}
