#include "tests/emulated/fake_cuda_memory.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/emulated/fake_cuda.hpp"

namespace fake_cuda
{

namespace
{

constexpr size_t align_bytes = 256; /* as the runtime aligns */
constexpr unsigned char behind_byte = 0xA5;
/* Of a large range only the ends are filled with NaN: touching pages is what it costs. */
constexpr size_t poison_bytes = 256 * 1024;

/* A mapping: a guard page, whole pages at whose end the range lies, a guard page. */
struct range {
    memory *own;
    char *map;
    size_t map_bytes;
    size_t bytes;
    bool device;
};

/* Every range of every GPU, by its start: a pointer is looked up whoever asks. */
struct registry {
    std::mutex mutex;
    std::map<uintptr_t, range> ranges;
    /* Where the processor has protection keys, all memory of GPUs has this one, and opening is a register of the
     * thread that opens. Else -1, and pages are opened to all. */
    int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
};

registry &all()
{
    static registry *const one = new registry(); /* outlives the threads that look into it */

    return *one;
}

size_t page_bytes()
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

void protect(const range &of, int how)
{
    const size_t page = page_bytes();

    if (mprotect(of.map + page, of.map_bytes - 2 * page, how) != 0) {
        std::perror("fake_cuda: mprotect");
        std::abort();
    }
}

void poison(char *start, size_t bytes)
{
    const size_t each = bytes < poison_bytes ? bytes : poison_bytes;

    std::memset(start, 0xFF, each);
    std::memset(start + bytes - each, 0xFF, each);
}

/* The range that `at` lies in; to be called under the mutex. */
const std::pair<const uintptr_t, range> *find(const void *at)
{
    const auto &ranges = all().ranges;
    auto after = ranges.upper_bound((uintptr_t)at);

    if (after == ranges.begin()) {
        return nullptr;
    }
    --after;
    return (uintptr_t)at < after->first + after->second.bytes ? &*after : nullptr;
}

} // namespace

struct memory {
    size_t limit = (size_t)1 << 30;
    size_t used = 0;   /* of the device's */
    size_t ranges = 0; /* pinned ones too */
    int open = 0;
};

static void close_range(const range &made)
{
    const size_t page = page_bytes();

    if (all().key < 0) {
        if (made.own->open == 0) {
            protect(made, PROT_NONE);
        }
    } else if (pkey_mprotect(made.map + page, made.map_bytes - 2 * page, PROT_READ | PROT_WRITE,
                             all().key) != 0) {
        std::perror("fake_cuda: pkey_mprotect");
        std::abort();
    }
}

static void open_range(const range &made)
{
    const size_t page = page_bytes();

    if (all().key < 0) {
        protect(made, PROT_READ | PROT_WRITE);
    } else {
        (void)pkey_mprotect(made.map + page, made.map_bytes - 2 * page, PROT_READ | PROT_WRITE, 0);
    }
}

memory *memory_create()
{
    return new memory();
}

void memory_clear(memory *own)
{
    const std::lock_guard<std::mutex> held(all().mutex);

    for (auto at = all().ranges.begin(); at != all().ranges.end();) {
        if (at->second.own == own) {
            (void)munmap(at->second.map, at->second.map_bytes);
            at = all().ranges.erase(at);
        } else {
            ++at;
        }
    }
    own->used = 0;
    own->ranges = 0;
}

void memory_limit(memory *own, size_t bytes)
{
    const std::lock_guard<std::mutex> held(all().mutex);
    own->limit = bytes;
}

void memory_info(memory *own, size_t *available, size_t *total)
{
    const std::lock_guard<std::mutex> held(all().mutex);

    *available = own->limit > own->used ? own->limit - own->used : 0;
    *total = own->limit;
}

size_t memory_ranges(memory *own)
{
    const std::lock_guard<std::mutex> held(all().mutex);
    return own->ranges;
}

void *memory_take(memory *own, size_t bytes, bool device)
{
    const std::lock_guard<std::mutex> held(all().mutex);
    const size_t page = page_bytes();
    const size_t taken = round_up(bytes, align_bytes);
    const size_t map_bytes = round_up(taken, page) + 2 * page;

    if (device && (bytes > own->limit || own->limit - bytes < own->used)) {
        return nullptr;
    }
    char *map = (char *)mmap(nullptr, map_bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        return nullptr;
    }
    const range made = {own, map, map_bytes, bytes, device};
    char *start = map + map_bytes - page - taken;

    protect(made, PROT_READ | PROT_WRITE);
    poison(start, bytes);
    std::memset(start + bytes, behind_byte, taken - bytes);
    if (device) {
        close_range(made);
    }
    own->used += device ? bytes : 0;
    own->ranges++;
    all().ranges[(uintptr_t)start] = made;
    return start;
}

bool memory_give(void *start, bool device)
{
    const std::lock_guard<std::mutex> held(all().mutex);
    const auto found = all().ranges.find((uintptr_t)start);

    if (found == all().ranges.end() || found->second.device != device) {
        return false;
    }
    const range gone = found->second;

    if (device) {
        open_range(gone);
    }
    for (size_t i = gone.bytes; i < round_up(gone.bytes, align_bytes); i++) {
        if (((const unsigned char *)start)[i] != behind_byte) {
            std::fprintf(stderr, "fake_cuda: byte %zu behind an allocation of %zu was written to\n",
                         i - gone.bytes, gone.bytes);
            std::abort();
        }
    }
    gone.own->used -= device ? gone.bytes : 0;
    gone.own->ranges--;
    (void)munmap(gone.map, gone.map_bytes);
    all().ranges.erase(found);
    return true;
}

static void protect_all(const memory *own, int how)
{
    for (const auto &one : all().ranges) {
        if (one.second.own == own && one.second.device) {
            protect(one.second, how);
        }
    }
}

/* With a key: how often the thread has opened. */
static thread_local int opened;

void memory_open(memory *own)
{
    if (all().key >= 0) {
        if (opened++ == 0) {
            (void)pkey_set(all().key, 0);
        }
        return;
    }
    const std::lock_guard<std::mutex> held(all().mutex);

    if (own->open++ == 0) {
        protect_all(own, PROT_READ | PROT_WRITE);
    }
}

void memory_close(memory *own)
{
    if (all().key >= 0) {
        if (--opened == 0) {
            (void)pkey_set(all().key, PKEY_DISABLE_ACCESS);
        }
        return;
    }
    const std::lock_guard<std::mutex> held(all().mutex);

    if (--own->open == 0) {
        protect_all(own, PROT_NONE);
    }
}

size_t bytes_behind(const void *at)
{
    const std::lock_guard<std::mutex> held(all().mutex);
    const auto *found = find(at);

    return found != nullptr ? found->first + found->second.bytes - (uintptr_t)at : 0;
}

bool is_device(const void *at)
{
    const std::lock_guard<std::mutex> held(all().mutex);
    const auto *found = find(at);

    return found != nullptr && found->second.device;
}

} // namespace fake_cuda
