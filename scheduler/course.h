/*
 * course -- a lowered plan as far as one rank holds up another, in a few bytes an action.
 *
 * Whether a plan can deadlock is a question about all ranks at once (scheduler/graph.h), and of each
 * action it needs little: the compute actions of a line in their order, and its SENDs. A course keeps
 * just that, a word or two each, so that the lines themselves may be gone, and a walk over a thousand
 * ranks stays in the cache.
 *
 * What it leaves out holds nothing up. The graph's nodes fall together like this:
 *   RECV      has ended when its SEND has. Only its consumer names it, which therefore waits for the SEND.
 *   SEND      waits for its producer and the compute action before it, which its line has passed when it
 *             gets there, and for its landing buffer. The producer of the lane's next message waits
 *             for it, because of the out buffer, and nobody else of its rank.
 *   GATHER, RELEASE, REDUCE, STEP and the head's SYNC name nothing but actions that their line has
 *             passed. The owner's SYNC waits for the head's, and nothing but STEP follows it.
 * So the walk ends exactly when the graph has no cycle, provided that messages are named as
 * above. course_add_action() looks for that, action by action, and says where it is otherwise: such a plan is
 * not refused, it is one that the whole graph has to be asked about.
 */
#ifndef SCHEDULER_COURSE_H
#define SCHEDULER_COURSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One virtual stage and the messages of one direction. */
struct course_end {
    int32_t lane_in;  /* by which they come, or ACTION_NONE */
    int32_t lane_out; /* by which its own go on, or ACTION_NONE */
    int32_t target;   /* virtual stage that those go to */
    int32_t sender;   /* rank that those come from */
    int32_t landings; /* of the target; message j waits for message j - landings to be freed */
    bool told; /* its SENDs say what they wait for: the messages are not in ascending order */
};

struct course {
    const struct plan *plan;        /* borrows; its placement and buffers */
    const struct plan_index *index; /* borrows; of the line that is being added */
    struct course_end *ends;        /* owns; [direction · stages + stage] */
    uint32_t *words;                /* owns */
    int64_t count;
    int64_t *first;     /* owns; [rank]: of its first word */
    int64_t *last;      /* [rank]: behind its last one */
    int32_t *last_send; /* owns; [lane]: index of the SEND before */
    int chunk_bits;
};

/* Borrows both while the course lives. */
enum status course_init(struct course *course, const struct plan *plan,
                        const struct plan_index *index);

/* Adds the line of `rank`, once and in any order of ranks, action by action: a line that precedence,
 * lane_order and endings find right, and that `index` is of. False where a message is named by somebody
 * else. */
void course_begin_line(struct course *course, int32_t rank);
bool course_add_action(struct course *course, int32_t rank, int32_t i);
void course_end_line(struct course *course, int32_t rank);

/* Takes over the lines that were added to `other`, of the same plan, and not to this one. */
void course_join(struct course *course, const struct course *other);

/* Whether all ranks get to the end of their lines. All lines were added. */
enum status course_walk(const struct course *course, bool *complete_out);

/* Safe on a zeroed course, and twice. */
void course_release(struct course *course);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_COURSE_H */
