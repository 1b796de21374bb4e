/* What the stages compute on, by the configuration and by what this build has. Without WEIR_CUDA there is the CPU
 * alone; with it, what the driver says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "stages/backends.h"
#include "stages/config.h"
#include "tensor/device.h"

static struct config asking(enum config_device device)
{
    struct config config;

    memset(&config, 0, sizeof(config));
    config.parallel.device = device;
    return config;
}

static enum device_kind chosen(enum config_device device)
{
    const struct config config = asking(device);
    const struct device_backend *backend = NULL;

    assert_int_equal(backend_choose(&config, &backend), STATUS_OK);
    assert_ptr_equal(backend, backend_planned(&config));
    return device_backend_kind(backend);
}

static void the_cpu_is_the_cpu_in_every_build(void **state)
{
    const struct config config = asking(CONFIG_DEVICE_CPU);
    char text[64] = "left";

    (void)state;
    assert_int_equal(chosen(CONFIG_DEVICE_CPU), DEVICE_CPU);
    backend_explain(&config, text, sizeof(text));
    assert_string_equal(text, "");
}

#ifndef WEIR_CUDA

static void cuda_is_refused_with_the_build_that_has_it(void **state)
{
    const struct config config = asking(CONFIG_DEVICE_CUDA);
    const struct device_backend *backend = NULL;

    (void)state;
    assert_int_equal(backend_choose(&config, &backend), STATUS_ERR_REFUSED);
    assert_string_equal(status_last()->message,
                        "parallel.device: cuda: this build of weir computes on CPUs only; cmake "
                        "--preset cuda builds the other");
    assert_null(backend);
    /* Its plan can be looked at all the same. */
    assert_int_equal(device_backend_kind(backend_planned(&config)), DEVICE_CPU);
}

static void auto_is_the_cpu_and_says_nothing(void **state)
{
    const struct config config = asking(CONFIG_DEVICE_AUTO);
    char text[64] = "left";

    (void)state;
    assert_int_equal(chosen(CONFIG_DEVICE_AUTO), DEVICE_CPU);
    backend_explain(&config, text, sizeof(text));
    assert_string_equal(text, "");
    assert_int_equal(backend_gpus(), 0);
    assert_int_equal(backend_ordinal(3), 0);
}

#else

static void cuda_is_the_gpu_whether_the_host_has_one_or_not(void **state)
{
    (void)state;
    assert_int_equal(chosen(CONFIG_DEVICE_CUDA), DEVICE_CUDA);
}

static void auto_is_the_gpu_where_there_is_one_and_says_why(void **state)
{
    const struct config config = asking(CONFIG_DEVICE_AUTO);
    const int32_t gpus = backend_gpus();
    const char *begin =
        gpus > 0 ? "parallel.device: auto is cuda: " : "parallel.device: auto is cpu: ";
    char text[384] = "";

    (void)state;
    assert_int_equal(chosen(CONFIG_DEVICE_AUTO), gpus > 0 ? DEVICE_CUDA : DEVICE_CPU);
    backend_explain(&config, text, sizeof(text));
    assert_memory_equal(text, begin, strlen(begin));
    assert_true(strlen(text) > strlen(begin));
    for (int32_t rank = 0; rank < 9; rank++) {
        assert_int_equal(backend_ordinal(rank), gpus > 0 ? rank % gpus : 0);
    }
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_is_the_cpu_in_every_build),
#ifndef WEIR_CUDA
        cmocka_unit_test(cuda_is_refused_with_the_build_that_has_it),
        cmocka_unit_test(auto_is_the_cpu_and_says_nothing),
#else
        cmocka_unit_test(cuda_is_the_gpu_whether_the_host_has_one_or_not),
        cmocka_unit_test(auto_is_the_gpu_where_there_is_one_and_says_why),
#endif
    };

    return cmocka_run_group_tests_name("backends", tests, NULL, NULL);
}
