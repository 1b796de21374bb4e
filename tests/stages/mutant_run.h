/*
 * mutant_run -- one execution of a plan in a mutant's world, in an order that a seed chooses.
 *
 * One thread steps all ranks: at every moment it knows everything that could happen next, an action
 * that begins or ends, a message that is noticed, a pending send that is retried, and picks one.
 * So any interleaving can come, each can come again, and a hang is seen exactly: nothing can happen
 * and not everything has ended.
 *
 * Two kinds of worker, as scheduler/worker.h allows. In line: issue() waits for what an action
 * depends on and computes, as the worker of the CPU does; a message is looked at when its reader
 * waits for it; STEP waits for the pending sends. Ahead: the whole line up to STEP is issued at once,
 * and each action begins when what it depends on has ended, compute actions in the order of the line.
 *
 * What is picked: by even chance, or by a rank of all actions that is drawn once for a run; some
 * kinds of event, or some ranks, are put off as long as anything else can happen; and the action
 * where the mutation is comes as early or as late as it can.
 */
#ifndef TESTS_STAGES_MUTANT_RUN_H
#define TESTS_STAGES_MUTANT_RUN_H

#include <stdint.h>

#include "tests/stages/mutant_world.h"

/* Runs `plan` to its end, its first fault, or a hang. `rank` and `index` are the action to hurry or
 * to put off. The world says where and what the fault was (fault_*), and is free for the next run. */
enum outcome mutant_run(struct mutant_world *world, const struct plan *plan, int32_t rank,
                        int32_t index, uint64_t seed);

#endif /* TESTS_STAGES_MUTANT_RUN_H */
