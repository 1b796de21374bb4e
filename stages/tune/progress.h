/*
 * progress -- one line at the end of stderr that says what is being done, on a terminal only.
 */
#ifndef STAGES_TUNE_PROGRESS_H
#define STAGES_TUNE_PROGRESS_H

#ifdef __cplusplus
extern "C" {
#endif

/* In place of the last one; it stands until it is replaced or wiped. */
void tune_progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Before anything else is written to the terminal. */
void tune_progress_wipe(void);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_PROGRESS_H */
