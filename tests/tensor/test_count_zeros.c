#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "buffer.h"
#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"

static const size_t sizes[] = {0, 1, 15, 17, 1000, 1024, 1025, 16385, 40001, 600001};

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Zeros of both signs at places whose number is known: multiples of 3, less those of 15. */
static void check_count(const struct kernel_ops *ops, struct stream *stream, int threads,
                        void *context)
{
    size_t *count = buffer_take(sizeof(*count));

    (void)threads;
    (void)context;
    for (size_t i = 0; i < SIZES; i++) {
        struct guarded in;
        guarded_make(&in, sizes[i]);
        for (size_t at = 0; at < sizes[i]; at++) {
            const float other = at % 2 == 0 ? 0x1p-149F : NAN;
            const float zero = at % 2 == 0 ? 0.0F : -0.0F;
            in.floats[at] = at % 3 == 0 && at % 15 != 0 ? zero : other;
        }
        *count = 12345;
        assert_int_equal(ops->count_zeros(count, in.floats, sizes[i], stream), STATUS_OK);
        assert_int_equal(*count, (sizes[i] + 2) / 3 - (sizes[i] + 14) / 15);
        guarded_free(&in);
    }
    buffer_give(count);
}

static void zeros_of_both_signs_count_and_nothing_else(void **state)
{
    (void)state;
    on_each_variant_and_team(check_count, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeros_of_both_signs_count_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
