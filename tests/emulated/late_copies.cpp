/* Copies that happen when a thread waits for them. */
#include "tests/emulated/cuda_on_host.hpp"

#include <deque>
#include <vector>

namespace on_host
{

namespace
{

struct late_copy {
    void *to;
    const void *from;
    size_t bytes;
};

/* Of one thread: the groups that it has not waited for, and what it has begun since. */
struct late_copies {
    std::deque<std::vector<late_copy>> groups;
    std::vector<late_copy> begun;
};

thread_local std::vector<late_copies> copies; /* of the running block, by thread */
thread_local bool any;                        /* since that began */

} // namespace

void forget_copies(unsigned threads)
{
    if (any || copies.size() < threads) {
        copies.assign(threads, late_copies());
    }
    any = false;
}

void copy_later(void *to, const void *from, size_t bytes)
{
    any = true;
    copies[thread_of_block()].begun.push_back({to, from, bytes});
}

void commit_copies()
{
    late_copies &own = copies[thread_of_block()];

    any = true;
    own.groups.push_back(std::move(own.begun));
    own.begun.clear();
}

void wait_for_copies(size_t newest_groups)
{
    late_copies &own = copies[thread_of_block()];

    while (own.groups.size() > newest_groups) {
        for (const late_copy &one : own.groups.front()) {
            if (one.from != nullptr) {
                std::memcpy(one.to, one.from, one.bytes);
            } else {
                std::memset(one.to, 0, one.bytes);
            }
        }
        own.groups.pop_front();
    }
}

} // namespace on_host
