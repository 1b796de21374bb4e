#include "tests/mixedprec/params_rig.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

void params_rig_add(struct params *params, const char *name, int64_t rows, int64_t cols,
                    const struct param *like)
{
    struct param param = *like;

    (void)snprintf(param.name, sizeof(param.name), "%s", name);
    param.rows = rows;
    param.cols = cols;
    param.decays = rows > 1;
    param.init_std = rows > 1 ? 0.02F : 0.0F;
    param.site = 7;
    assert_int_equal(params_add(params, &param), STATUS_OK);
}

void params_rig_make_four(struct params *params)
{
    static const struct param likes[] = {
        {.norm_key = 0, .layer = 0, .init_value = 1.0F},
        {.norm_key = 1, .layer = 1, .init_value = 1.0F},
        {.norm_key = 2, .layer = 2, .init_value = 1.0F},
    };

    memset(params, 0, sizeof(*params));
    params_rig_add(params, "a.weight", 5, 7, &likes[0]);
    params_rig_add(params, "a.bias", 1, 7, &likes[0]);
    params_rig_add(params, "b.weight", 3, 11, &likes[1]);
    params_rig_add(params, "c.bias", 1, 13, &likes[2]);
    params_rig_place(params);
}

void params_rig_place(struct params *params)
{
    params_measure(params);
    assert_int_equal(params_place(params), STATUS_OK);
}

float params_rig_at(const void *tensor, enum dtype type, size_t index)
{
    const uint16_t *halves = tensor;

    switch (type) {
    case DTYPE_BF16:
        return dtype_from_bf16(halves[index]);
    case DTYPE_FP16:
        return dtype_from_fp16(halves[index]);
    default:
        return ((const float *)tensor)[index];
    }
}
