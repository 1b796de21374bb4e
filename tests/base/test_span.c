#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/span.h"

static void put(struct span_ring *ring, uint32_t kind)
{
    struct span span;

    memset(&span, 0, sizeof(span));
    span.begin_ns = kind;
    span.end_ns = (int64_t)kind + 1;
    span.kind = kind;
    span.args[SPAN_ARGS - 1] = (int32_t)kind * 2;
    span_ring_put(ring, &span);
}

static void spans_come_out_in_the_order_they_went_in(void **state)
{
    struct span_ring ring;
    struct span out[8];

    (void)state;
    assert_int_equal(span_ring_init(&ring, 8), STATUS_OK);
    assert_int_equal(span_ring_ready(&ring), 0);
    assert_int_equal(span_ring_take(&ring, out, 8), 0);
    put(&ring, 1);
    put(&ring, 2);
    put(&ring, 3);
    assert_int_equal(span_ring_ready(&ring), 3);
    assert_int_equal(span_ring_take(&ring, out, 2), 2);
    assert_int_equal(out[0].kind, 1);
    assert_int_equal(out[1].kind, 2);
    assert_int_equal(out[1].args[SPAN_ARGS - 1], 4);
    assert_int_equal(span_ring_take(&ring, out, 8), 1);
    assert_int_equal(out[0].kind, 3);
    assert_int_equal(ring.dropped, 0);
    span_ring_release(&ring);
}

static void a_full_ring_drops_the_oldest_and_counts_them(void **state)
{
    struct span_ring ring;
    struct span out[4];

    (void)state;
    assert_int_equal(span_ring_init(&ring, 4), STATUS_OK);
    for (uint32_t kind = 0; kind < 11; kind++) {
        put(&ring, kind);
    }
    assert_int_equal(ring.dropped, 7);
    assert_int_equal(span_ring_ready(&ring), 4);
    assert_int_equal(span_ring_take(&ring, out, 4), 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(out[i].kind, 7 + i);
    }
    span_ring_release(&ring);
}

static void a_ring_of_one_keeps_the_last(void **state)
{
    struct span_ring ring;
    struct span out;

    (void)state;
    assert_int_equal(span_ring_init(&ring, 1), STATUS_OK);
    put(&ring, 5);
    put(&ring, 6);
    assert_int_equal(span_ring_take(&ring, &out, 1), 1);
    assert_int_equal(out.kind, 6);
    span_ring_release(&ring);
}

static void taking_makes_room(void **state)
{
    struct span_ring ring;
    struct span out[2];

    (void)state;
    assert_int_equal(span_ring_init(&ring, 2), STATUS_OK);
    for (uint32_t kind = 0; kind < 100; kind++) {
        put(&ring, kind);
        assert_int_equal(span_ring_take(&ring, out, 2), 1);
        assert_int_equal(out[0].kind, kind);
    }
    assert_int_equal(ring.dropped, 0);
    span_ring_release(&ring);
}

static void release_is_safe_twice_and_on_zero(void **state)
{
    struct span_ring ring;

    (void)state;
    memset(&ring, 0, sizeof(ring));
    span_ring_release(&ring);
    assert_int_equal(span_ring_init(&ring, 2), STATUS_OK);
    span_ring_release(&ring);
    span_ring_release(&ring);
    assert_null(ring.spans);
}

static void a_ring_that_does_not_fit_is_refused_and_stays_empty(void **state)
{
    struct span_ring ring;

    (void)state;
    assert_int_equal(span_ring_init(&ring, UINT64_MAX / 2), STATUS_ERR_NO_MEMORY);
    assert_null(ring.spans);
    span_ring_release(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_come_out_in_the_order_they_went_in),
        cmocka_unit_test(a_full_ring_drops_the_oldest_and_counts_them),
        cmocka_unit_test(a_ring_of_one_keeps_the_last),
        cmocka_unit_test(taking_makes_room),
        cmocka_unit_test(release_is_safe_twice_and_on_zero),
        cmocka_unit_test(a_ring_that_does_not_fit_is_refused_and_stays_empty),
    };

    return cmocka_run_group_tests_name("span", tests, NULL, NULL);
}
