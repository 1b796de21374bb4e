#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/arena.h"

struct model {
    float *weights;
    unsigned char *flags;
    float *rest;
};

static void carve(struct model *model, struct arena *arena)
{
    model->weights = arena_take_floats(arena, 1000);
    model->flags = arena_take(arena, 3, 1);
    model->rest = arena_take_floats(arena, 1);
}

static void measuring_gives_no_memory_and_adds_up(void **state)
{
    struct arena arena;
    struct model model;

    (void)state;
    arena_measure(&arena, "test");
    carve(&model, &arena);
    assert_null(model.weights);
    assert_null(model.flags);
    assert_null(model.rest);
    /* 4000 bytes in 32 pieces of 128, then one piece for each of the small ones. */
    assert_int_equal(arena.planned_bytes, 4096 + 128 + 128);
    arena_release(&arena);
}

static void the_second_pass_gives_what_was_measured(void **state)
{
    struct arena arena;
    struct model model;

    (void)state;
    for (int touch = 0; touch < 2; touch++) {
        arena_measure(&arena, "test");
        carve(&model, &arena);
        assert_int_equal(arena_allocate(&arena, touch != 0), STATUS_OK);
        carve(&model, &arena);
        assert_int_equal((uintptr_t)model.weights % ARENA_ALIGN_BYTES, 0);
        assert_int_equal((uintptr_t)model.flags % ARENA_ALIGN_BYTES, 0);
        assert_ptr_equal(model.flags, (unsigned char *)model.weights + 4096);
        assert_ptr_equal(model.rest, model.flags + 128);
        assert_int_equal(arena.used_bytes, arena.planned_bytes);
        for (size_t i = 0; i < 1000; i++) {
            assert_true(model.weights[i] == 0.0F);
        }
        memset(arena.memory, 0xFF, arena.planned_bytes);
        arena_release(&arena);
        arena_release(&arena);
        assert_null(arena.memory);
    }
}

static void a_large_arena_starts_on_a_huge_page(void **state)
{
    const size_t huge = (size_t)2 << 20;
    struct arena arena;

    (void)state;
    arena_measure(&arena, "large");
    (void)arena_take(&arena, 3 * huge + 5, 1);
    assert_int_equal(arena_allocate(&arena, true), STATUS_OK);
    const unsigned char *bytes = arena_take(&arena, 3 * huge + 5, 1);
    assert_int_equal((uintptr_t)bytes % huge, 0);
    assert_int_equal(bytes[3 * huge + 4], 0);
    arena_release(&arena);
}

static void an_empty_arena_can_be_allocated(void **state)
{
    struct arena arena;

    (void)state;
    arena_measure(&arena, "empty");
    (void)arena_take_floats(&arena, 0);
    assert_int_equal(arena_allocate(&arena, true), STATUS_OK);
    assert_non_null(arena_take_floats(&arena, 0));
    arena_release(&arena);
}

static void too_much_memory_is_refused_with_name_and_bytes(void **state)
{
    struct arena arena;

    (void)state;
    arena_measure(&arena, "activations");
    (void)arena_take(&arena, (size_t)1 << 60, 1);
    assert_int_equal(arena_allocate(&arena, false), STATUS_ERR_NO_MEMORY);
    assert_non_null(strstr(status_last()->message, "activations"));
    assert_non_null(strstr(status_last()->message, "1152921504606846976"));
    /* Still measuring. */
    assert_null(arena_take(&arena, 1, 1));
    assert_int_equal(arena.planned_bytes, ((size_t)1 << 60) + ARENA_ALIGN_BYTES);
    arena_release(&arena);
}

static void take_more_than_planned(void)
{
    struct arena arena;

    arena_measure(&arena, "small");
    (void)arena_take(&arena, 1, 1);
    if (arena_allocate(&arena, false) == STATUS_OK) {
        (void)arena_take(&arena, 1, 1);
        (void)arena_take(&arena, 1, 1);
    }
}

static void take_a_product_that_does_not_fit(void)
{
    struct arena arena;

    arena_measure(&arena, "small");
    (void)arena_take(&arena, SIZE_MAX / 2, 3);
}

static void take_a_sum_that_does_not_fit(void)
{
    struct arena arena;

    arena_measure(&arena, "small");
    (void)arena_take(&arena, SIZE_MAX / 2, 1);
    (void)arena_take(&arena, SIZE_MAX / 2, 1);
    (void)arena_take(&arena, SIZE_MAX / 2, 1);
}

static void assert_aborts(void (*misuse)(void))
{
    const struct rlimit no_core = {0, 0};
    int how = 0;
    const pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        misuse();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGABRT);
}

static void misuse_ends_the_process(void **state)
{
    (void)state;
    assert_aborts(take_more_than_planned);
    assert_aborts(take_a_product_that_does_not_fit);
    assert_aborts(take_a_sum_that_does_not_fit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measuring_gives_no_memory_and_adds_up),
        cmocka_unit_test(the_second_pass_gives_what_was_measured),
        cmocka_unit_test(a_large_arena_starts_on_a_huge_page),
        cmocka_unit_test(an_empty_arena_can_be_allocated),
        cmocka_unit_test(too_much_memory_is_refused_with_name_and_bytes),
        cmocka_unit_test(misuse_ends_the_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
