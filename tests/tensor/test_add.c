#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"

static const size_t sizes[] = {0, 1, 7, 64, 1023, 1025, 5001};

/* `context`: 0 for an output of its own, 1 for out = a, 2 for out = b. */
static void check_add(const struct kernel_ops *ops, struct stream *stream, int threads,
                      void *context)
{
    const int target = *(const int *)context;

    (void)threads;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct guarded buffers[3];
        struct guarded want;
        guarded_make(&buffers[0], sizes[i]);
        guarded_make(&buffers[1], sizes[i]);
        guarded_make(&buffers[2], sizes[i]);
        guarded_make(&want, sizes[i]);
        guarded_fill(&buffers[1], 1, 1.0F);
        guarded_fill(&buffers[2], 2, 1.0F);
        for (size_t at = 0; at < sizes[i]; at++) {
            want.floats[at] = buffers[1].floats[at] + buffers[2].floats[at];
        }
        assert_int_equal(ops->add(buffers[target].floats, buffers[1].floats, buffers[2].floats,
                                  sizes[i], stream),
                         STATUS_OK);
        guarded_equal(&buffers[target], &want);
        guarded_free(&buffers[0]);
        guarded_free(&buffers[1]);
        guarded_free(&buffers[2]);
        guarded_free(&want);
    }
}

static void the_output_is_the_sum_and_may_be_an_operand(void **state)
{
    (void)state;
    for (int target = 0; target < 3; target++) {
        on_each_variant_and_team(check_add, &target);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_output_is_the_sum_and_may_be_an_operand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
