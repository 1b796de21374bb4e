/*
 * fiber -- stacks that take turns on one host thread: those of the CUDA threads of a block, and its own, home.
 */
#ifndef TESTS_EMULATED_FIBER_HPP
#define TESTS_EMULATED_FIBER_HPP

#include "tests/emulated/cuda_on_host.hpp"

#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define FIBER_ASAN 1
#endif

#if defined(__x86_64__)
/* Puts the registers that a call must keep on the stack, leaves its top in *from, and goes on where another
 * stack, whose top was left in the same way, stopped. No system call, unlike swapcontext(). */
extern "C" void cuda_on_host_switch(void **from, void *to);
#endif

namespace on_host
{

constexpr size_t fiber_stack_bytes = 64 * 1024;

/* Where a stack stopped. */
struct stop {
#if defined(__x86_64__)
    void *top;
#else
    ucontext_t context;
#endif
};

/* A stack, and who runs on it. */
struct fiber {
    stop at;
    char *stack;
    unsigned thread; /* number in the block */
    uint3 index;     /* of it */
    void *fake_stack;
};

/* The host thread's own stack. */
struct home {
    stop at;
    void *fake_stack;
    bool left; /* just now, for the fiber that runs */
    const void *stack;
    size_t stack_bytes;
};

/* One that begins in live(), which does fiber_enter() first and never returns. Ends the program without memory. */
fiber *fiber_make(void (*live)());

/* Of one that nobody goes back to. */
void fiber_destroy(fiber *gone);

static inline void fiber_go(stop *from, stop *to)
{
#if defined(__x86_64__)
    cuda_on_host_switch(&from->top, to->top);
#else
    swapcontext(&from->context, &to->context);
#endif
}

/* On the new stack: tells the sanitizer that the change is through, and learns from it where home lies. */
static inline void fiber_enter(home *own, void *fake_stack)
{
#ifdef FIBER_ASAN
    const void *from = nullptr;
    size_t bytes = 0;

    __sanitizer_finish_switch_fiber(fake_stack, &from, &bytes);
    if (own->left) {
        own->stack = from;
        own->stack_bytes = bytes;
    }
#endif
    own->left = false;
    (void)fake_stack;
}

/* From home to a fiber, and back when one leaves for home. */
static inline void fiber_begin(home *own, fiber *next)
{
    own->left = true;
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&own->fake_stack, next->stack, fiber_stack_bytes);
#endif
    fiber_go(&own->at, &next->at);
    own->left = false;
    fiber_enter(own, own->fake_stack);
}

/* From a fiber to another one, and back when it has its turn. */
static inline void fiber_pass(home *own, fiber *self, fiber *next)
{
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&self->fake_stack, next->stack, fiber_stack_bytes);
#endif
    fiber_go(&self->at, &next->at);
    fiber_enter(own, self->fake_stack);
}

/* From a fiber home, and back likewise. */
static inline void fiber_leave(home *own, fiber *self)
{
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&self->fake_stack, own->stack, own->stack_bytes);
#endif
    fiber_go(&self->at, &own->at);
    fiber_enter(own, self->fake_stack);
}

} // namespace on_host

#endif /* TESTS_EMULATED_FIBER_HPP */
