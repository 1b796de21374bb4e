/* What several threads write to stderr at once, as ranks of one process do, is all there in a capture. */
#include "tests/base/capture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"

#define THREADS    4
#define LINES      2000
#define LINE_BYTES 64

static void *write_lines(void *context)
{
    const int *thread = context;

    for (int i = 0; i < LINES; i++) {
        log_error("line %d of thread %d", i, *thread);
    }
    return NULL;
}

static void no_line_of_several_threads_is_lost(void **state)
{
    const size_t text_bytes = (size_t)THREADS * LINES * LINE_BYTES;
    char *text = malloc(text_bytes);
    pthread_t threads[THREADS];
    int numbers[THREADS];
    struct capture capture;
    int lines = 0;

    (void)state;
    assert_non_null(text);
    capture_begin(&capture);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        (void)pthread_create(&threads[i], NULL, write_lines, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    capture_end(&capture, text, text_bytes);
    for (const char *at = strstr(text, "line "); at != NULL; at = strstr(at + 1, "line ")) {
        lines++;
    }
    free(text);
    assert_int_equal(lines, THREADS * LINES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_line_of_several_threads_is_lost),
    };

    return cmocka_run_group_tests_name("capture", tests, NULL, NULL);
}
