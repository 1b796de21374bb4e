/*
 * search_greedy -- orders made by rules: every rank does what the rule likes best of what it can.
 *
 * The ranks go on in the order of time. Of F and I that have their inputs, a rule prefers one kind or
 * takes them in turn, and the oldest micro-batch or the deepest chunk; W fills waits that are long
 * enough for it, and makes room where memory is short. Messages of a lane are taken in the order in
 * which they were sent. F is admitted only where, behind it, the oldest micro-batch of the rank can
 * still get all its chunks (the rule of bankers), so that a tight limit stops no rank for good; buffers
 * are taken to be there, apart from that.
 */
#ifndef SCHEDULER_SEARCH_GREEDY_H
#define SCHEDULER_SEARCH_GREEDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/search_order.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many there are. */
#define SEARCH_RULES 48

struct search_rule {
    bool in_turn;  /* F behind I and I behind F; else I whenever there is one */
    bool deepest;  /* the last chunk first; else the oldest micro-batch */
    int32_t extra; /* micro-batches in flight beyond those that the way needs: 0, 1: a rank's
                      distance to the last more, 2: twice as many, 3: no bound */
    double fill;   /* W goes into a wait of at least so many times its cost */
};

/* Rule 0 … SEARCH_RULES - 1. */
struct search_rule search_rule_number(int32_t number);

/* Writes the rule in words. */
void search_rule_print(const struct search_rule *rule, char *text, size_t text_bytes);

/* Makes an order; *found_out is false where the rule ends in a deadlock, and `order` is spoilt. Whether
 * it keeps limits and how long it takes, search_clock_run() says. */
enum status search_greedy_run(const struct search_rule *rule, struct search_order *order,
                              bool *found_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_GREEDY_H */
