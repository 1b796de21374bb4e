#include "tests/emulated/fiber.hpp"

#include <cstdlib>

#include <sys/mman.h>

#if defined(__x86_64__)
asm(".text\n"
    ".globl cuda_on_host_switch\n"
    "cuda_on_host_switch:\n"
    "    push %rbp\n"
    "    push %rbx\n"
    "    push %r12\n"
    "    push %r13\n"
    "    push %r14\n"
    "    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n"
    "    pop %r14\n"
    "    pop %r13\n"
    "    pop %r12\n"
    "    pop %rbx\n"
    "    pop %rbp\n"
    "    ret\n");
#endif

namespace on_host
{

namespace
{

/* Stacks begin at different places of their pages, or their tops would share few lines of a cache. */
constexpr size_t shift_bytes = 320;
constexpr size_t shifts = 12;

__thread size_t made_count;

/* So that the first turn of the stack is live(). */
void prepare(fiber *made, void (*live)())
{
    const size_t bytes = fiber_stack_bytes - shift_bytes * (made_count++ % shifts);
#if defined(__x86_64__)
    void **top = (void **)(made->stack + bytes) - 1; /* aligned as behind a call */

    *--top = (void *)live;
    for (int registers = 0; registers < 6; registers++) {
        *--top = nullptr;
    }
    made->at.top = top;
#else
    if (getcontext(&made->at.context) != 0) {
        std::abort();
    }
    made->at.context.uc_stack.ss_sp = made->stack;
    made->at.context.uc_stack.ss_size = bytes;
    made->at.context.uc_link = nullptr;
    makecontext(&made->at.context, live, 0);
#endif
}

} // namespace

fiber *fiber_make(void (*live)())
{
    fiber *made = new fiber();

    made->stack = (char *)mmap(nullptr, fiber_stack_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made->stack == MAP_FAILED) {
        std::abort();
    }
    prepare(made, live);
    return made;
}

void fiber_destroy(fiber *gone)
{
    (void)munmap(gone->stack, fiber_stack_bytes);
    delete gone;
}

} // namespace on_host
