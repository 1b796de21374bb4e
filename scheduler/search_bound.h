/*
 * search_bound -- a time that no order of a space can beat.
 *
 * The largest of, over all micro-batches, virtual stages and ranks:
 *   chain    one micro-batch goes through all virtual stages and back, and W of the first is done
 *   load     a rank begins when the first message can be there, and then has all its work to do;
 *            its W may all come last, but F and I are followed by what is left of a micro-batch's
 *            way back
 *   turn     before a rank's first I, a micro-batch must have been through all virtual stages behind
 *            it; until then the rank has only F to do, and no more than its memory holds
 *   memory   a stash is held at least as long as its micro-batch is away; memory times time of a
 *            rank must hold them all
 */
#ifndef SCHEDULER_SEARCH_BOUND_H
#define SCHEDULER_SEARCH_BOUND_H

#include "base/status.h"
#include "scheduler/search_space.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status search_bound(const struct search_space *space, double *bound_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_BOUND_H */
