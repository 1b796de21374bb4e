/*
 * metrics_file -- metrics.jsonl between two attempts of a run: where it ends, and cut back.
 *
 * The first line is the configuration, then a line a step, in their order; the last one may be half
 * of one where a process died.
 */
#ifndef STAGES_METRICS_FILE_H
#define STAGES_METRICS_FILE_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The last step that has a whole line; 0 where there is none, or no such file. */
int64_t metrics_file_last(const char *path);

/* Replaces the file, in one move, by `header` as its first line and the lines of steps 1 … `step`. No
 * file is one without lines. */
enum status metrics_file_cut(const char *path, const char *header, int64_t step);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_METRICS_FILE_H */
