/*
 * device_backend -- what a kind of hardware fills in. Private to tensor/ and tensor/cuda/.
 *
 * device.c holds the functions of device.h, which call the slot of the same name. A backend puts
 * `struct device` first in a struct of its own and fills its fields in open(). What a slot must keep
 * is what device.h says of the function.
 */
#ifndef TENSOR_DEVICE_BACKEND_H
#define TENSOR_DEVICE_BACKEND_H

#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DEVICE_VARIANT_BYTES 96

struct device_backend {
    enum device_kind kind;
    bool tensors_are_here;
    size_t most_head_size; /* of attention; 0: any */
    const struct kernel_ops *(*kernels)(void);
    enum status (*open)(const struct device_config *config, struct device **device_out);
    size_t (*scratch_bytes)(const struct device_config *config);
    enum status (*take)(struct device *device, enum device_memory kind, const char *name,
                        size_t bytes, void **memory_out);
    void (*give)(struct device *device, enum device_memory kind, void *memory, size_t bytes);
    enum status (*copy)(struct device *device, void *to, const void *from, size_t bytes);
    enum status (*fetch)(struct device *device, void *to, const void *from, size_t bytes);
    enum status (*fetched)(struct device *device, size_t *bytes_out);
    enum status (*zero)(struct device *device, void *memory, size_t bytes);
    enum status (*wait)(struct device *device, const struct cancel *cancel, int64_t deadline_ns);
    enum status (*enter)(struct device *device);
    enum status (*mark)(struct device *device, int32_t index);
    int32_t (*marked)(const struct device *device);
    bool (*is_inside)(const struct device *device);
    enum status (*stamp)(struct device *device, int32_t slot); /* in range, as below */
    int64_t (*stamp_ns)(const struct device *device, int32_t slot);
    void (*begin_range)(struct device *device,
                        const char *name); /* NULL: there are none, as below */
    void (*end_range)(struct device *device);
    void (*close)(struct device *device); /* also of one that open() could not finish */
};

struct device {
    const struct device_backend *backend; /* static */
    const struct kernel_ops *kernels;     /* static; set by device.c, as the backend */
    struct stream *stream;                /* owns */
    int32_t stamps;                       /* as configured; set by device.c, as what follows */
    const struct cancel *cancel;          /* borrows; ends waits that take none */
    device_watch_fn watch;                /* NULL: none. A wait that polls asks it */
    void *watch_context;
    int awaited; /* atomic */
    char variant[DEVICE_VARIANT_BYTES];
};

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_DEVICE_BACKEND_H */
