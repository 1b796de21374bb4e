/*
 * weights_folder -- where a test of checkpoint/weights exports to: one folder, empty for each case.
 */
#ifndef TESTS_STAGES_WEIGHTS_FOLDER_H
#define TESTS_STAGES_WEIGHTS_FOLDER_H

struct json_t; /* of jansson */

/* Set-up and tear-down of a case. */
int weights_folder_make(void **state);
int weights_folder_remove(void **state);

const char *weights_folder(void);

/* The path of a file in it; lent until the next call. */
const char *weights_inside(const char *name);

/* What a file in it says; fails the test where it is no JSON. The caller owns it. */
struct json_t *weights_read_json(const char *name);

#endif /* TESTS_STAGES_WEIGHTS_FOLDER_H */
