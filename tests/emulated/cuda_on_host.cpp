/* How the fibers of a launch take turns. */
#include "tests/emulated/cuda_on_host.hpp"

#include "tests/emulated/cuda_on_host_seed.h"
#include "tests/emulated/fiber.hpp"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

namespace on_host
{

__thread place here = {};

namespace
{

constexpr int warp_lanes = 32;
constexpr unsigned whole_warp = 0xFFFFFFFFU;

/* What a thread gives at a barrier of lanes, and asks of the others. */
struct wish {
    enum {
        NOTHING,
        LANE,
        VOTES
    } asks;
    unsigned from; /* the thread of the block whose number it asks */
    uint64_t given;
    uint64_t taken;
    void *owned; /* for what all do together */
    together_fn act;
};

/* A thread that has come to a barrier of some lanes. */
struct waiter {
    fiber *runs_on;
    unsigned mask;
    wish *own; /* on its stack */
};

/* The runs of a host thread; of a block, what is under way. */
struct run {
    const std::function<void()> *body;
    std::vector<unsigned> order; /* of threads */
    size_t started;
    unsigned threads;
    unsigned alive;
    std::vector<unsigned> alive_lanes;        /* by warp */
    std::vector<fiber *> at_block;            /* who waits for the block */
    std::vector<std::vector<waiter>> at_warp; /* by warp: who waits for lanes of it */
    std::deque<fiber *> ready;
    std::vector<fiber *> idle;
    std::vector<uint64_t> lanes; /* by thread: what it gives in an exchange */
    fiber *current;
    home scheduler; /* whose stack begins threads */

    /* Between launches every fiber is idle. */
    ~run()
    {
        for (fiber *one : idle) {
            fiber_destroy(one);
        }
    }
};

/* Behind a pointer, so that no access asks whether it is made. */
thread_local run made_run;
__thread run *now;
thread_local std::vector<char> dynamic_shared;
thread_local uint64_t seed;
__thread uint64_t switch_count;

uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

std::vector<unsigned> draw_order(unsigned count, uint64_t salt)
{
    std::vector<unsigned> order(count);
    uint64_t state = seed + salt * 977;

    for (unsigned i = 0; i < count; i++) {
        order[i] = i;
    }
    for (unsigned i = count; seed != 0 && i > 1; i--) {
        std::swap(order[i - 1], order[next_random(&state) % i]);
    }
    return order;
}

uint3 index_in(unsigned number, dim3 size)
{
    return {number % size.x, number / size.x % size.y, number / size.x / size.y};
}

void enter(unsigned thread)
{
    now->current->thread = thread;
    now->current->index = index_in(thread, here.block_size);
    here.thread = now->current->index;
}

[[noreturn]] void give_up(const char *why)
{
    std::fprintf(stderr, "cuda_on_host: %s; block %u,%u,%u, %u threads alive\n", why, here.block.x,
                 here.block.y, here.block.z, now->alive);
    for (const fiber *one : now->at_block) {
        std::fprintf(stderr, "  thread %u waits for its block\n", one->thread);
    }
    for (const std::vector<waiter> &warp : now->at_warp) {
        for (const waiter &one : warp) {
            std::fprintf(stderr, "  thread %u waits for lanes %08x\n", one.runs_on->thread,
                         one.mask);
        }
    }
    std::abort();
}

void open_block_if_full()
{
    if (now->at_block.size() == now->alive) {
        now->ready.insert(now->ready.end(), now->at_block.begin(), now->at_block.end());
        now->at_block.clear();
    }
}

/* Fulfils what the lanes at this barrier ask of each other. */
void exchange_lanes(unsigned warp, unsigned mask)
{
    void *owned[warp_lanes] = {};
    const wish *first = nullptr;
    unsigned votes = 0;

    for (const waiter &one : now->at_warp[warp]) {
        if (one.mask == mask) {
            now->lanes[one.runs_on->thread] = one.own->given;
            votes |= (one.own->given != 0 ? 1U : 0U) << (one.runs_on->thread % warp_lanes);
            owned[one.runs_on->thread % warp_lanes] = one.own->owned;
            first = first != nullptr ? first : one.own;
            if (one.own->act != first->act) {
                give_up("lanes of one warp are at different instructions");
            }
        }
    }
    if (first != nullptr && first->act != nullptr) {
        first->act(owned);
    }
    for (const waiter &one : now->at_warp[warp]) {
        if (one.mask == mask && one.own->asks == wish::LANE) {
            one.own->taken = now->lanes[one.own->from];
        } else if (one.mask == mask) {
            one.own->taken = votes;
        }
    }
}

/* Opens the barrier of these lanes where all that are alive have come. */
void open_lanes_if_full(unsigned warp, unsigned mask)
{
    std::vector<waiter> &waiting = now->at_warp[warp];
    const unsigned meant = mask & now->alive_lanes[warp];
    size_t needed = meant == whole_warp ? warp_lanes : (size_t)__builtin_popcount(meant);
    size_t come = 0;
    size_t left = 0;

    if (waiting.size() < needed) {
        return;
    }
    for (const waiter &one : waiting) {
        come += one.mask == mask ? 1 : 0;
    }
    if (come < needed) {
        return;
    }
    exchange_lanes(warp, mask);
    for (const waiter &one : waiting) {
        if (one.mask == mask) {
            now->ready.push_back(one.runs_on);
        } else {
            waiting[left++] = one;
        }
    }
    waiting.resize(left);
}

/* Another thread's turn: of one that may go on, or the scheduler's, which begins others. */
void yield()
{
    fiber *self = now->current;

    switch_count++;
    if (now->ready.empty()) {
        fiber_leave(&now->scheduler, self);
    } else {
        fiber *next = now->ready.front();

        now->ready.pop_front();
        if (next == self) {
            return;
        }
        now->current = next;
        fiber_pass(&now->scheduler, self, next);
    }
    here.thread = self->index;
}

/* A thread has ended: whoever waits for fewer now may go on. */
void leave(unsigned thread)
{
    unsigned warp = thread / warp_lanes;

    now->alive--;
    now->alive_lanes[warp] &= ~(1U << (thread % warp_lanes));
    if (!now->at_block.empty()) {
        open_block_if_full();
    }
    for (size_t i = 0; i < now->at_warp[warp].size();) {
        size_t before = now->at_warp[warp].size();

        open_lanes_if_full(warp, now->at_warp[warp][i].mask);
        i = now->at_warp[warp].size() == before ? i + 1 : 0;
    }
}

/* The life of a fiber: threads that have not begun, one after another. */
void live()
{
    fiber_enter(&now->scheduler, nullptr);
    for (;;) {
        while (now->started < now->order.size()) {
            enter(now->order[now->started++]);
            (*now->body)();
            leave(now->current->thread);
        }
        now->idle.push_back(now->current);
        yield();
    }
}

void run_block()
{
    now->started = 0;
    now->alive = now->threads;
    forget_copies(now->threads);
    now->alive_lanes.assign((now->threads + warp_lanes - 1) / warp_lanes, 0);
    now->at_warp.resize(now->alive_lanes.size());
    for (unsigned thread = 0; thread < now->threads; thread++) {
        now->alive_lanes[thread / warp_lanes] |= 1U << (thread % warp_lanes);
    }
    while (now->alive > 0) {
        fiber *next = nullptr;

        if (!now->ready.empty()) {
            next = now->ready.front();
            now->ready.pop_front();
        } else if (now->started == now->order.size()) {
            give_up("threads wait for each other");
        } else if (!now->idle.empty()) {
            next = now->idle.back();
            now->idle.pop_back();
        } else {
            next = fiber_make(live);
        }
        now->current = next;
        fiber_begin(&now->scheduler, next);
    }
}

} // namespace

void set_seed(uint64_t value)
{
    seed = value;
}

uint64_t switches()
{
    return switch_count;
}

void *shared_memory()
{
    return dynamic_shared.data();
}

unsigned thread_of_block()
{
    return now->current->thread;
}

int lane()
{
    return (int)(now->current->thread % warp_lanes);
}

void block_barrier()
{
    now->at_block.push_back(now->current);
    open_block_if_full();
    yield();
}

/* What `own` asks is there when the barrier has opened. */
static void meet(unsigned mask, wish *own)
{
    unsigned warp = now->current->thread / warp_lanes;

    if ((mask >> lane() & 1U) == 0) {
        give_up("a lane waits with a mask that it is not in");
    }
    now->at_warp[warp].push_back({now->current, mask, own});
    open_lanes_if_full(warp, mask);
    yield();
}

void warp_barrier(unsigned mask)
{
    wish own = {wish::NOTHING, 0, 0, 0, nullptr, nullptr};

    meet(mask, &own);
}

uint64_t exchange(unsigned mask, uint64_t bits, int from)
{
    unsigned first = now->current->thread / warp_lanes * warp_lanes;
    wish own = {wish::LANE, first + (unsigned)from, bits, 0, nullptr, nullptr};

    if (from < 0 || from >= warp_lanes || (mask >> from & 1U) == 0) {
        give_up("a shuffle asks a lane outside of its mask");
    }
    meet(mask, &own);
    return own.taken;
}

unsigned ballot(unsigned mask, int vote)
{
    wish own = {wish::VOTES, 0, vote != 0 ? UINT64_C(1) : 0, 0, nullptr, nullptr};

    meet(mask, &own);
    return (unsigned)own.taken;
}

void together(void *owned, together_fn act)
{
    wish own = {wish::NOTHING, 0, 0, 0, owned, act};

    if (now->alive_lanes[now->current->thread / warp_lanes] != whole_warp) {
        give_up("an instruction of a whole warp in one that lanes are missing of");
    }
    meet(whole_warp, &own);
}

void aligned(const void *at, size_t bytes)
{
    if ((uintptr_t)at % bytes != 0) {
        give_up("an address that is not aligned");
    }
}

void launch(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &body)
{
    unsigned blocks = grid.x * grid.y * grid.z;

    now = &made_run;
    now->body = &body;
    now->threads = block.x * block.y * block.z;
    now->order = draw_order(now->threads, 1);
    now->lanes.assign((now->threads + warp_lanes - 1) / warp_lanes * warp_lanes, 0);
    here.block_size = block;
    here.grid_size = grid;
    if (now->threads == 0 || now->threads > 1024 || blocks == 0) {
        give_up("a launch of no block, or of a block of no thread or more than 1024");
    }
    for (unsigned number : draw_order(blocks, 2)) {
        here.block = index_in(number, grid);
        dynamic_shared.assign(shared_bytes, (char)0xFF);
        run_block();
    }
}

} // namespace on_host

extern "C" void cuda_on_host_seed(uint64_t seed)
{
    on_host::set_seed(seed);
}

extern "C" uint64_t cuda_on_host_switches(void)
{
    return on_host::switches();
}
