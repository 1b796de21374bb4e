/*
 * field -- all contenders, in the order in which they stand.
 */
#ifndef STAGES_TUNE_FIELD_H
#define STAGES_TUNE_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/tune/candidate.h"
#include "stages/tune/contender.h"
#include "stages/tune/interrupt.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tune_field {
    struct tune_contender *all; /* owns */
    size_t count;
    size_t capacity;   /* private to field.c */
    size_t ranked;     /* the first so many have a step from measured costs, or one of their own */
    size_t candidates; /* that were legal */
    size_t too_large;  /* of them, those that do not fit */
    int64_t limit_bytes; /* of a rank; 0: none known */
    bool limit_given;    /* by the configuration; else it is the host's memory */
};

/* Plans every candidate and takes what fits. STATUS_ERR_REFUSED where nothing does, naming the
 * smallest need of any, whose it is, and the limit; STATUS_ERR_CANCELLED where a signal came. The
 * caller releases, after a failure too. */
enum status tune_field_make(const struct tune_base *base, const struct tune_candidates *candidates,
                            struct tune_interrupt *interrupt, struct tune_field *field_out);

/* Takes `contender` over, also where it fails. */
enum status tune_field_add(struct tune_field *field, struct tune_contender *contender);

enum status tune_field_predict(struct tune_field *field, const struct tune_cost_table *table);

/* By what is known, whatever its quality; of equal times the one that needs less memory first. Those
 * that have no prediction come last. */
void tune_field_sort_by_guess(struct tune_field *field);

/* First those that ran themselves, by what they took, then those predicted from measured costs, then
 * the rest. Sets `ranked`. */
void tune_field_sort(struct tune_field *field);

/* Marks as `chosen` the configuration itself and the best `count` of those that ran or that measured costs
 * predict, each by what is known of it. Of two at one point that are told apart by less than 1 %, only
 * the better one: a run would not tell them apart either. */
void tune_field_choose(struct tune_field *field, size_t count);

/* The place of the configuration itself; SIZE_MAX where it does not fit. */
size_t tune_field_configured(const struct tune_field *field);

/* Safe on a zeroed one, and twice. */
void tune_field_release(struct tune_field *field);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_FIELD_H */
