/*
 * plan_text -- plans as text: written for people and for other programs, and read back.
 *
 * Two forms. Lines: `rank 0: 0F0 0F1 0B0 ...`, a line a rank, aligned. CSV: a row a rank, a cell an
 * action, as PyTorch's pipelining writes and reads its compute-only schedules. One reader takes
 * both: cells end at blanks or commas, empty cells are idle, the prefix `rank N:` may stand or not,
 * and `#` begins a comment.
 *
 * Reading strips what lowering adds (SEND, RECV, GATHER, RELEASE, SYNC, REDUCE, STEP, and the UNSHARD, RESHARD,
 * REDUCE_GRAD of others), so that a lowered file is lowered again by the same rules as any plan.
 * The file is not trusted: every refusal names file, line, column and text.
 */
#ifndef SCHEDULER_PLAN_TEXT_H
#define SCHEDULER_PLAN_TEXT_H

#include <stddef.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plan_text_form {
    PLAN_TEXT_LINES,
    PLAN_TEXT_CSV
};

/* Writes all lines of a plan, lowered or not. STATUS_ERR_IO where `out` fails. */
enum status plan_text_print(const struct plan *plan, enum plan_text_form form, FILE *out);

/* Reads a compute-only plan. `shape` says what is wanted: ranks, microbatches, virtual_stages and
 * sequence_slices must agree with the text where they are not 0, and are taken from it where they are; of
 * slices all actions have one or none (`2F3.1`), and there are as many as the highest says; the
 * placement is the text's. The schedule becomes SCHEDULE_FILE, or stays forward_only. `name`
 * stands in messages. Every (virtual stage, micro-batch) must have its F, so that memory is bounded
 * by the size of the text. The caller owns *plan_out. */
enum status plan_text_parse(const char *name, const char *text, size_t text_bytes,
                            const struct plan_shape *shape, struct plan **plan_out);

/* The same from a file. */
enum status plan_text_read(const char *path, const struct plan_shape *shape,
                           struct plan **plan_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PLAN_TEXT_H */
