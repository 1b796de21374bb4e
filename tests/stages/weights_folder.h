/*
 * weights_folder -- where a test of checkpoint/weights exports to: one folder, empty for each case.
 */
#ifndef TESTS_STAGES_WEIGHTS_FOLDER_H
#define TESTS_STAGES_WEIGHTS_FOLDER_H

/* Set-up and tear-down of a case. */
int weights_folder_make(void **state);
int weights_folder_remove(void **state);

const char *weights_folder(void);

/* The path of a file in it; lent until the next call. */
const char *weights_inside(const char *name);

#endif /* TESTS_STAGES_WEIGHTS_FOLDER_H */
