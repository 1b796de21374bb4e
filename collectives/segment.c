#include "collectives/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "collectives/host_memory.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* The room of the host is looked at anew for each piece, because all ranks reserve at once. */
#define RESERVE_PIECE_BYTES ((size_t)64 << 20)

/* What is left to the host when weir takes the rest. */
#define RESERVE_MARGIN_BYTES ((size_t)32 << 20)

_Static_assert(sizeof(struct landing_mark) == SEGMENT_ALIGN_BYTES, "marks share no cache line");
_Static_assert(sizeof(struct group_mark) == (size_t)2 * SEGMENT_ALIGN_BYTES, "no line is shared");
_Static_assert(sizeof(struct segment_page) == (size_t)3 * SEGMENT_ALIGN_BYTES, "no line is shared");
_Static_assert(sizeof(struct segment_page) <= SEGMENT_PAGE_BYTES, "the page is in front");

size_t segment_stride(size_t landing_bytes)
{
    return (landing_bytes + SEGMENT_ALIGN_BYTES - 1) / SEGMENT_ALIGN_BYTES * SEGMENT_ALIGN_BYTES;
}

bool segment_place_lane(size_t *bytes, int32_t landings, size_t landing_bytes,
                        struct segment_place *place_out)
{
    size_t marks = *bytes != 0 ? *bytes : SEGMENT_PAGE_BYTES;
    size_t buffers;
    size_t data_bytes;
    size_t end;

    if (landing_bytes > SIZE_MAX - SEGMENT_ALIGN_BYTES ||
        __builtin_add_overflow(marks, (size_t)landings * sizeof(struct landing_mark), &buffers) ||
        __builtin_mul_overflow(segment_stride(landing_bytes), (size_t)landings, &data_bytes) ||
        __builtin_add_overflow(buffers, data_bytes, &end) || end > (size_t)INT64_MAX / 2) {
        return false;
    }
    *place_out = (struct segment_place){.marks = marks, .buffers = buffers};
    *bytes = end;
    return true;
}

bool segment_place_fits(const struct segment_place *place, int32_t landings, size_t landing_bytes,
                        size_t bytes)
{
    uint64_t marks_bytes = (uint64_t)landings * sizeof(struct landing_mark);
    uint64_t data_bytes;

    if (place->marks % SEGMENT_ALIGN_BYTES != 0 || place->buffers % SEGMENT_ALIGN_BYTES != 0 ||
        place->marks < SEGMENT_PAGE_BYTES || place->buffers < SEGMENT_PAGE_BYTES ||
        place->marks > bytes || place->buffers > bytes ||
        __builtin_mul_overflow((uint64_t)segment_stride(landing_bytes), (uint64_t)landings,
                               &data_bytes)) {
        return false;
    }
    return marks_bytes <= bytes - place->marks && data_bytes <= bytes - place->buffers;
}

bool segment_place_block(size_t *bytes, size_t block_bytes, size_t align, uint64_t *offset_out)
{
    size_t begin = *bytes != 0 ? *bytes : SEGMENT_PAGE_BYTES;
    size_t end;

    begin = (begin + align - 1) / align * align;
    if (__builtin_add_overflow(begin, block_bytes, &end) || end > (size_t)INT64_MAX / 2) {
        return false;
    }
    *offset_out = begin;
    *bytes = end;
    return true;
}

bool segment_block_fits(uint64_t offset, uint64_t block_bytes, size_t align, size_t bytes)
{
    return offset % align == 0 && offset >= SEGMENT_PAGE_BYTES && offset <= bytes &&
           block_bytes <= bytes - offset;
}

static enum status refuse_memory(int32_t rank, size_t bytes, const char *why)
{
    return status_fail(STATUS_ERR_NO_MEMORY,
                       "rank %" PRId32 " reserves %zu bytes of shared memory for its landing "
                       "buffers and its shared block: %s; fewer micro-batches in flight, smaller "
                       "micro-batches or more hosts need less",
                       rank, bytes, why);
}

/* Past the file size limit the kernel sends a signal instead of failing, so it is asked before. */
static enum status check_room(int32_t rank, size_t bytes, size_t reserved)
{
    char why[160];
    struct rlimit limit;
    size_t room = host_memory_room("");
    size_t left = bytes - reserved;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < bytes) {
        (void)snprintf(why, sizeof(why),
                       "the limit of a file's size (ulimit -f) is %" PRIu64 " bytes",
                       (uint64_t)limit.rlim_cur);
        return refuse_memory(rank, bytes, why);
    }
    if (room < RESERVE_MARGIN_BYTES || room - RESERVE_MARGIN_BYTES < left) {
        (void)snprintf(why, sizeof(why),
                       "%zu are still to be taken, but the host has %zu available, of which %zu "
                       "stay free",
                       left, room, RESERVE_MARGIN_BYTES);
        return refuse_memory(rank, bytes, why);
    }
    return STATUS_OK;
}

static enum status reserve(int32_t rank, int fd, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t piece = bytes - at < RESERVE_PIECE_BYTES ? bytes - at : RESERVE_PIECE_BYTES;

        TRY(check_room(rank, bytes, at));
        if (fallocate(fd, 0, (off_t)at, (off_t)piece) == 0) {
            at += piece;
        } else if (errno == ENOSPC || errno == ENOMEM || errno == EFBIG) {
            return refuse_memory(rank, bytes, strerror(errno));
        } else if (errno != EINTR) {
            return status_fail(STATUS_ERR_IO,
                               "rank %" PRId32 " reserves %zu bytes of shared memory: %s", rank,
                               bytes, strerror(errno));
        }
    }
    return STATUS_OK;
}

static enum status map(int32_t rank, int fd, size_t bytes, struct segment *segment)
{
    /* Populated, so that the first steps take no page faults. */
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);

    if (base == MAP_FAILED) {
        return status_fail(errno == ENOMEM ? STATUS_ERR_NO_MEMORY : STATUS_ERR_IO,
                           "mapping %zu bytes of shared memory of rank %" PRId32 ": %s", bytes,
                           rank, strerror(errno));
    }
    segment->base = base;
    segment->bytes = bytes;
    return STATUS_OK;
}

enum status segment_create(int32_t rank, size_t bytes, struct segment *segment, int *fd_out)
{
    enum status status;
    size_t whole =
        (bytes > SEGMENT_PAGE_BYTES ? bytes : SEGMENT_PAGE_BYTES) + SEGMENT_PAGE_BYTES - 1;
    int fd = memfd_create("weir-landing", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct segment_page *page;

    whole -= whole % SEGMENT_PAGE_BYTES;
    *segment = (struct segment){0};
    if (fd < 0) {
        return status_fail(STATUS_ERR_IO, "rank %" PRId32 " makes shared memory: %s", rank,
                           strerror(errno));
    }
    TRY_OR(fail, status, reserve(rank, fd, whole));
    TRY_OR(fail, status, map(rank, fd, whole, segment));
    if (fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        status = status_fail(STATUS_ERR_IO, "rank %" PRId32 " seals its shared memory: %s", rank,
                             strerror(errno));
        goto fail;
    }
    page = segment_page(segment);
    page->version = SEGMENT_VERSION;
    page->rank = rank;
    page->bytes = whole;
    page->magic = SEGMENT_MAGIC;
    *fd_out = fd;
    return STATUS_OK;

fail:
    segment_release(segment);
    (void)close(fd);
    return status;
}

static enum status check_file(int32_t rank, int fd, size_t bytes)
{
    struct stat found;
    int seals = fcntl(fd, F_GET_SEALS);

    if (fstat(fd, &found) != 0) {
        return status_fail(STATUS_ERR_IO, "looking at the shared memory of rank %" PRId32 ": %s",
                           rank, strerror(errno));
    }
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return status_fail(STATUS_ERR_FORMAT,
                           "rank %" PRId32 " has sent a file that can shrink, where shared memory "
                           "that is sealed was expected",
                           rank);
    }
    if (bytes < SEGMENT_PAGE_BYTES || found.st_size < 0 || (uint64_t)found.st_size != bytes) {
        return status_fail(STATUS_ERR_FORMAT,
                           "rank %" PRId32 " says that its shared memory has %zu bytes, but it has "
                           "%jd",
                           rank, bytes, (intmax_t)found.st_size);
    }
    return STATUS_OK;
}

enum status segment_attach(int32_t rank, int fd, size_t bytes, struct segment *segment)
{
    const struct segment_page *page;
    enum status status;

    *segment = (struct segment){0};
    TRY(check_file(rank, fd, bytes));
    TRY(map(rank, fd, bytes, segment));
    page = segment_page(segment);
    if (page->magic != SEGMENT_MAGIC || page->version != SEGMENT_VERSION || page->rank != rank ||
        page->bytes != bytes) {
        status = status_fail(STATUS_ERR_FORMAT,
                             "shared memory of rank %" PRId32 ": expected magic %016" PRIx64
                             ", version %d and %zu bytes, found magic %016" PRIx64
                             ", version %" PRIu32 ", rank %" PRId32 " and %" PRIu64 " bytes",
                             rank, SEGMENT_MAGIC, SEGMENT_VERSION, bytes, page->magic,
                             page->version, page->rank, page->bytes);
        segment_release(segment);
        return status;
    }
    return STATUS_OK;
}

struct segment_page *segment_page(const struct segment *segment)
{
    return (struct segment_page *)(void *)segment->base;
}

void segment_page_abort(struct segment_page *page)
{
    __atomic_store_n(&page->aborted, 1, __ATOMIC_RELEASE);
    doorbell_ring(&page->doorbell);
}

void segment_release(struct segment *segment)
{
    if (segment->base != NULL && munmap(segment->base, segment->bytes) != 0) {
        log_warn("unmapping %zu bytes of shared memory: %s", segment->bytes, strerror(errno));
    }
    *segment = (struct segment){0};
}
