/*
 * fake_world -- what the fake worker's files share: the buffers, lanes and actions of all ranks.
 */
#ifndef TESTS_SCHEDULER_FAKE_WORLD_H
#define TESTS_SCHEDULER_FAKE_WORLD_H

#include "tests/scheduler/fake_worker.h"

enum action_state {
    NOT_ISSUED,
    ISSUED,
    BEGUN,
    ENDED
};

/* What an operation read; taken at its begin and at its end. */
struct inputs {
    uint64_t x;        /* input of the chunk */
    uint64_t dy;       /* gradient of its output */
    uint64_t stash;    /* kept by F */
    uint64_t gradient; /* left by I */
};

struct fake_action {
    enum action_state state;
    worker_ticket depends[ACTION_DEPENDS];
    int32_t depends_count;
    struct inputs inputs; /* as read at the begin */
};

struct landing {
    uint64_t token;
    int32_t sequence;
};

/* The landing buffers of one chunk and direction, filled over a lane or by the chunk before on the
 * same rank, which needs no credit. */
struct lane {
    struct landing *landings; /* owns */
    int32_t count;
    int32_t credits;
};

struct stash {
    uint64_t token;
    uint64_t head;
    int32_t landing; /* of the input, ACTION_NONE on virtual stage 0 */
};

struct fake_chunk {
    struct stash *stashes;              /* owns */
    uint64_t *gradients;                /* owns */
    struct lane lanes[LANE_DIRECTIONS]; /* into this chunk */
    struct fake_totals totals;
};

struct fake_rank {
    struct worker base;
    struct fake_world *world; /* borrows */
    int32_t rank;
    const struct plan_line *line; /* borrows */
    struct fake_action *actions;  /* owns; one an action of the line */
    int32_t issued;               /* actions [0, issued) are issued */
    uint64_t random;
    struct fake_chunk *chunks;       /* owns */
    uint64_t *outs[LANE_DIRECTIONS]; /* owns [0]; [peer]: the out buffer of each lane */
    bool reduced;                    /* REDUCE has ended */
    bool gathered;                   /* a GATHER has ended, and its RELEASE has not, */
    int32_t gather;                  /* at this index */
};

struct fake_world {
    const struct plan *plan;          /* borrows */
    const struct fake_config *config; /* borrows */
    struct fake_rank *ranks;          /* owns */
    int32_t count;
    bool trains;
    pthread_mutex_t lock; /* protects all that follows and what hangs on ranks */
    pthread_cond_t moved;
    uint64_t epoch; /* counts what may let another rank go on */
    int32_t idle;   /* ranks that found nothing to do in this epoch */
    int32_t finished;
    bool hang;
    uint64_t sync; /* the head's gradient under way; FAKE_POISON while there is none */
    enum fake_verdict verdict;
    struct fake_place place;
    struct cancel cancel;
};

/* fake_action.c. All are called under the lock of the world. */

/* Whether an issued action could begin now. */
bool fake_action_can_begin(struct fake_rank *rank, int32_t index);
void fake_action_begin(struct fake_rank *rank, int32_t index);
void fake_action_end(struct fake_rank *rank, int32_t index);

/* Whether the test wants `fault` of this action. */
bool fake_action_has_fault(const struct fake_rank *rank, int32_t index, enum fake_fault fault);

/* fake_worker.c. */

/* Called when a rank has found nothing to do or has finished. */
void fake_world_check_idle(struct fake_world *world);

extern const struct worker_ops fake_worker_ops;

#endif /* TESTS_SCHEDULER_FAKE_WORLD_H */
