#include "tensor/device.h"

#include "base/check.h"
#include "base/clock.h"
#include "tensor/device_backend.h"

enum device_kind device_backend_kind(const struct device_backend *backend)
{
    return backend->kind;
}

const struct kernel_ops *device_backend_kernels(const struct device_backend *backend)
{
    return backend->kernels();
}

size_t device_backend_most_head_size(const struct device_backend *backend)
{
    return backend->most_head_size;
}

bool device_backend_tensors_are_here(const struct device_backend *backend)
{
    return backend->tensors_are_here;
}

bool device_backend_has_ranges(const struct device_backend *backend)
{
    return backend->begin_range != NULL;
}

enum status device_open(const struct device_backend *backend, const struct device_config *config,
                        struct device **device_out)
{
    struct device *device = NULL;
    enum status status = backend->open(config, &device);

    if (device != NULL) {
        device->backend = backend;
        device->kernels = backend->kernels();
        device->stamps = config->stamps;
        device->cancel = config->cancel;
    }
    if (status < 0) {
        device_close(&device);
    }
    *device_out = device;
    return status;
}

size_t device_scratch_bytes(const struct device_backend *backend,
                            const struct device_config *config)
{
    return backend->scratch_bytes(config);
}

enum device_kind device_kind(const struct device *device)
{
    return device->backend->kind;
}

bool device_tensors_are_here(const struct device *device)
{
    return device->backend->tensors_are_here;
}

const struct kernel_ops *device_kernels(const struct device *device)
{
    return device->kernels;
}

struct stream *device_stream(const struct device *device)
{
    return device->stream;
}

const char *device_variant(const struct device *device)
{
    return device->variant;
}

enum status device_take(struct device *device, enum device_memory kind, const char *name,
                        size_t bytes, void **memory_out)
{
    return device->backend->take(device, kind, name, bytes, memory_out);
}

void device_give(struct device *device, enum device_memory kind, void *memory, size_t bytes)
{
    device->backend->give(device, kind, memory, bytes);
}

enum status device_copy(struct device *device, void *to, const void *from, size_t bytes)
{
    return bytes > 0 ? device->backend->copy(device, to, from, bytes) : STATUS_OK;
}

enum status device_copy_now(struct device *device, void *to, const void *from, size_t bytes)
{
    TRY(device_copy(device, to, from, bytes));
    return device_wait(device, device->cancel, CLOCK_NEVER);
}

enum status device_fetch(struct device *device, void *to, const void *from, size_t bytes)
{
    return device->backend->fetch(device, to, from, bytes);
}

enum status device_fetched(struct device *device, size_t *bytes_out)
{
    return device->backend->fetched(device, bytes_out);
}

enum status device_zero(struct device *device, void *memory, size_t bytes)
{
    return bytes > 0 ? device->backend->zero(device, memory, bytes) : STATUS_OK;
}

enum status device_wait(struct device *device, const struct cancel *cancel, int64_t deadline_ns)
{
    enum status status = STATUS_OK;

    __atomic_store_n(&device->awaited, 1, __ATOMIC_RELEASE);
    status = device->backend->wait(device, cancel, deadline_ns);
    __atomic_store_n(&device->awaited, 0, __ATOMIC_RELEASE);
    return device->watch != NULL ? device->watch(device->watch_context, status) : status;
}

void device_watch(struct device *device, device_watch_fn watch, void *context)
{
    ENSURE(device->watch == NULL || watch == NULL, "a device has one watch");
    device->watch = watch;
    device->watch_context = context;
}

enum status device_wait_for(struct device *device, const char *what, const struct cancel *cancel,
                            int64_t deadline_ns)
{
    enum status status = device_wait(device, cancel, deadline_ns);

    if (status != STATUS_ERR_CANCELLED && status != STATUS_ERR_TIMEOUT) {
        return status;
    }
    return status_note(status, "waiting for the device's %s: %s; the last action to end was %d",
                       what, status_text(status), (int)device_marked(device));
}

enum status device_enter(struct device *device)
{
    return device->backend->enter(device);
}

bool device_is_inside(const struct device *device)
{
    return device->backend->is_inside(device);
}

bool device_is_awaited(const struct device *device)
{
    return __atomic_load_n(&device->awaited, __ATOMIC_ACQUIRE) != 0;
}

enum status device_mark(struct device *device, int32_t index)
{
    return device->backend->mark(device, index);
}

int32_t device_marked(const struct device *device)
{
    return device->backend->marked(device);
}

enum status device_stamp(struct device *device, int32_t slot)
{
    ENSURE(slot >= 0 && slot < device->stamps, "stamp %d of %d", (int)slot, (int)device->stamps);
    return device->backend->stamp(device, slot);
}

int64_t device_stamp_ns(const struct device *device, int32_t slot)
{
    ENSURE(slot >= 0 && slot < device->stamps, "stamp %d of %d", (int)slot, (int)device->stamps);
    return device->backend->stamp_ns(device, slot);
}

void device_begin_range(struct device *device, const char *name)
{
    device->backend->begin_range(device, name);
}

void device_end_range(struct device *device)
{
    device->backend->end_range(device);
}

void device_close(struct device **device)
{
    struct device *gone = *device;

    if (gone != NULL) {
        gone->backend->close(gone);
        *device = NULL;
    }
}
