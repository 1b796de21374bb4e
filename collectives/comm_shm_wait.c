#include "base/clock.h"
#include "collectives/comm_shm.h"

/* How long a wait spins before it sleeps: about what being woken costs on an idle core of a virtual
 * machine, so that a wait takes at most twice as long as it must. */
#define SPIN_NS (50 * CLOCK_MS / 1000)

/* Looks between two looks at the clock. */
#define SPIN_LOOKS 32

/* Whether this process or a peer has aborted. */
static bool is_aborted(const struct comm_shm *comm)
{
    return __atomic_load_n(&comm->page->aborted, __ATOMIC_ACQUIRE) != 0;
}

static enum status look(struct comm_shm *comm, const struct comm_shm_goal *goal)
{
    if (!goal->aside) {
        (void)comm_shm_progress(&comm->base);
    }
    return goal->look(goal);
}

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static enum status spin(struct comm_shm *comm, const struct comm_shm_goal *goal)
{
    int64_t end_ns = clock_now_ns() + SPIN_NS;
    enum status status = STATUS_IN_PROGRESS;

    while (status == STATUS_IN_PROGRESS && clock_now_ns() < end_ns) {
        for (int i = 0; i < SPIN_LOOKS && status == STATUS_IN_PROGRESS; i++) {
            pause_briefly();
            status = look(comm, goal);
        }
    }
    return status;
}

/* Sleeps once, unless the goal is reached or the wait is over. */
static enum status look_or_sleep(struct comm_shm *comm, const struct comm_shm_goal *goal,
                                 const struct cancel *cancel, int64_t deadline_ns)
{
    struct doorbell *bell = &comm->page->doorbell;
    uint32_t seen = doorbell_arm(bell);
    enum status status = look(comm, goal);

    if (status == STATUS_IN_PROGRESS) {
        enum status going = cancel_check(cancel, deadline_ns);

        if (is_aborted(comm)) {
            going = STATUS_ERR_CANCELLED;
        }
        if (going < 0) {
            status = goal->fail(goal, going);
        } else {
            int64_t most_ns = CANCEL_POLL_NS;

            if (deadline_ns != CLOCK_NEVER) {
                int64_t left_ns = deadline_ns - clock_now_ns() + 1;

                most_ns = left_ns < most_ns ? left_ns : most_ns;
            }
            doorbell_sleep(bell, seen, most_ns);
        }
    }
    doorbell_disarm(bell);
    return status;
}

enum status comm_shm_wait(struct comm_shm *comm, const struct comm_shm_goal *goal,
                          const struct cancel *cancel, int64_t deadline_ns)
{
    enum status status = look(comm, goal);

    if (status == STATUS_IN_PROGRESS && !comm->crowded) {
        status = spin(comm, goal);
    }
    while (status == STATUS_IN_PROGRESS) {
        status = look_or_sleep(comm, goal, cancel, deadline_ns);
    }
    return status;
}
