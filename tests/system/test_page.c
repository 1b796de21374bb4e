/* The page of a run in a browser: everything arrives, something is painted, nothing is fetched. Without a
 * Chromium on PATH the cases are skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "scheduler/trace_html.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/scratch.h"

#define COMMAND_BYTES 8192

/* Also where root runs it in a container; no address but a file's is looked up. */
#define BROWSER_FLAGS                                                               \
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run " \
    "--host-resolver-rules='MAP * 0.0.0.0' --window-size=1300,900"

static const struct demo_config demo = {.shape = {.schedule = SCHEDULE_1F1B,
                                                  .ranks = 4,
                                                  .microbatches = 8,
                                                  .virtual_stages = 1,
                                                  .lane_depth = 2,
                                                  .early_send = true},
                                        .first_step = 1,
                                        .steps = 3,
                                        .forward_ms = 3.1,
                                        .input_ms = 3.3,
                                        .weight_ms = 2.9,
                                        .message_ms = 0.3,
                                        .slope = 0.05,
                                        .update_ms = 2.0};

/* The name of a browser on PATH, NULL where there is none. */
static const char *find_browser(void)
{
    static const char *const names[] = {"chromium", "chromium-browser", "google-chrome"};
    char command[64];

    for (size_t index = 0; index < sizeof(names) / sizeof(names[0]); index++) {
        (void)snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", names[index]);
        if (system(command) == 0) {
            return names[index];
        }
    }
    return NULL;
}

/* Ends with the test's deadline at the latest. */
static void browse(const struct scratch *scratch, const char *browser, const char *flags,
                   const char *page, const char *out)
{
    char command[COMMAND_BYTES];
    int code = 0;

    (void)snprintf(command, sizeof(command),
                   "cd %s && HOME=%s timeout -k 5 60 %s " BROWSER_FLAGS
                   " --user-data-dir=%s/profile %s file://%s/%s >%s 2>browser.log",
                   scratch->path, scratch->path, browser, scratch->path, flags, scratch->path, page,
                   out);
    code = system(command);
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 0) {
        fail_msg("%s ended with %d", command, WEXITSTATUS(code));
    }
}

/* What the page has noted about itself at the element body. */
static long noted(const char *dom, const char *name)
{
    char wanted[48];
    const char *body = strstr(dom, "<body");
    const char *end = body == NULL ? NULL : strchr(body, '>');
    const char *at = NULL;

    (void)snprintf(wanted, sizeof(wanted), " data-%s=\"", name);
    at = end == NULL ? NULL : strstr(body, wanted);
    if (at == NULL || at > end) {
        fail_msg("the page did not note %s", name);
        return 0;
    }
    return strtol(at + strlen(wanted), NULL, 10);
}

static size_t count_spans(const struct trace_run *run)
{
    size_t count = 0;

    for (size_t index = 0; index < run->count; index++) {
        count += run->ranks[index].count;
    }
    return count;
}

static void load(const struct scratch *scratch, const char *browser,
                 const struct demo_config *config, const char *name)
{
    char path[SCRATCH_PATH_BYTES];
    struct trace_run run;
    char *dom = NULL;
    size_t bytes = 0;

    demo_run_make(config, name, &run);
    scratch_path(scratch, "page.html", path);
    assert_int_equal(trace_html_write(&run, path), STATUS_OK);
    browse(scratch, browser, "--dump-dom", "page.html", "dom.html");
    scratch_path(scratch, "dom.html", path);
    dom = scratch_read(path, &bytes);
    assert_int_equal(noted(dom, "spans"), count_spans(&run));
    assert_int_equal(noted(dom, "steps"), config->steps);
    /* Each micro-batch crosses each border in both directions. */
    assert_int_equal(noted(dom, "messages"),
                     config->steps * config->shape.microbatches * (config->shape.ranks - 1) * 2);
    assert_true(noted(dom, "path") > config->steps);
    assert_true(noted(dom, "colours") > 6);
    assert_non_null(strstr(dom, "weight gradient")); /* of the legend */
    assert_null(strstr(dom, "<b id=\"bad\">"));
    free(dom);
    trace_run_release(&run);
}

static void all_of_a_run_arrives_in_the_page(void **state)
{
    const char *browser = find_browser();
    struct scratch scratch;

    (void)state;
    if (browser == NULL) {
        skip();
    }
    scratch_make(&scratch);
    load(&scratch, browser, &demo, "<b id=\"bad\">&amp;</script>");
    scratch_remove(&scratch);
}

/* 4 · 200 · (8 micro-batches of F, I, W and what is between) are about 50,000 spans. */
static void a_long_run_is_drawn_too(void **state)
{
    const char *browser = find_browser();
    struct demo_config config = demo;
    struct scratch scratch;

    (void)state;
    if (browser == NULL) {
        skip();
    }
    config.steps = 300;
    scratch_make(&scratch);
    load(&scratch, browser, &config, "long");
    scratch_remove(&scratch);
}

/* What a user does, and what the page answers, noted where a test reads it. Each redraw comes at once, because a busy
 * machine may show no frame before the page is read. The first stage's first F begins 1 % of
 * the picture behind its left edge. */
static const char user[] =
    "<script>let errors = 0; window.addEventListener('error', () => { errors++; });\n"
    "window.requestAnimationFrame = draw => { draw(); return 0; };\n"
    "const canvas = document.getElementById('canvas'), view = document.getElementById('view');\n"
    "const box = canvas.getBoundingClientRect(), tip = document.getElementById('tip');\n"
    "const at = (type, x, y, more) => canvas.dispatchEvent(new (type === 'wheel' ? WheelEvent : "
    "PointerEvent)(\n"
    "  type, {clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true, "
    "...more}));\n"
    "const key = name => view.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: "
    "true}));\n"
    "document.getElementById('step').value = '1'; document.getElementById('step').onchange();\n"
    "at('pointermove', 104 + 0.015 * (box.width - 116), 40);\n"
    "const first = tip.textContent;\n"
    "at('wheel', 400, 40, {deltaY: -200}); ['+', '-', 'ArrowLeft', 'ArrowRight', '[', ']', 'm', "
    "'p', '0'].forEach(key);\n"
    "for (const id of ['in', 'out', 'fit', 'unfold', 'memory', 'path']) "
    "document.getElementById(id).click();\n"
    "for (let y = 30; y < 200; y += 7) at('pointermove', 500, y);\n"
    "Object.assign(document.body.dataset, {errors, tip: first.split('\\n')[0], what: "
    "first.split('\\n')[1]});</script>\n";

/* The page of the run behind what a user does with it; the caller frees it. */
static char *use(const struct scratch *scratch, const char *browser,
                 const struct demo_config *config)
{
    char path[SCRATCH_PATH_BYTES];
    struct trace_run run;
    char *page = NULL;
    char *dom = NULL;
    size_t bytes = 0;

    demo_run_make(config, "demo", &run);
    scratch_path(scratch, "page.html", path);
    assert_int_equal(trace_html_write(&run, path), STATUS_OK);
    page = scratch_read(path, &bytes);
    page = realloc(page, bytes + sizeof(user));
    assert_non_null(page);
    memcpy(page + bytes, user, sizeof(user));
    scratch_write(path, page, bytes + sizeof(user) - 1);
    browse(scratch, browser, "--dump-dom", "page.html", "dom.html");
    scratch_path(scratch, "dom.html", path);
    dom = scratch_read(path, &bytes);
    assert_int_equal(noted(dom, "errors"), 0);
    free(page);
    trace_run_release(&run);
    return dom;
}

static void controls_answer(void **state)
{
    const char *browser = find_browser();
    struct demo_config config = demo;
    struct scratch scratch;
    char *dom = NULL;

    (void)state;
    if (browser == NULL) {
        skip();
    }
    scratch_make(&scratch);
    dom = use(&scratch, browser, &config);
    assert_non_null(strstr(dom, " data-tip=\"0F0  3.100 ms\""));
    assert_non_null(strstr(dom, " data-what=\"stage 0, rank 0, step 1, micro-batch 0\""));
    free(dom);
    config.shape.schedule = SCHEDULE_SEQ1F1B;
    config.shape.sequence_slices = 2;
    config.shape.microbatches = 16;
    dom = use(&scratch, browser, &config);
    assert_non_null(strstr(dom, " data-tip=\"0F0.0  3.100 ms\""));
    assert_non_null(strstr(dom, " data-what=\"stage 0, rank 0, step 1, micro-batch 0, slice 0\""));
    free(dom);
    scratch_remove(&scratch);
}

static off_t picture_bytes(const struct scratch *scratch, const char *browser, const char *page)
{
    char path[SCRATCH_PATH_BYTES];
    struct stat found;

    browse(scratch, browser, "--screenshot=shot.png", page, "shot.log");
    scratch_path(scratch, "shot.png", path);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(remove(path), 0);
    return found.st_size;
}

/* What is blank compresses to next to nothing. */
static void what_is_painted_is_more_than_a_blank_page(void **state)
{
    static const char blank[] = "<!DOCTYPE html><title>blank</title><body></body>";
    const char *browser = find_browser();
    char path[SCRATCH_PATH_BYTES];
    struct scratch scratch;
    struct trace_run run;

    (void)state;
    if (browser == NULL) {
        skip();
    }
    scratch_make(&scratch);
    demo_run_make(&demo, "demo", &run);
    scratch_path(&scratch, "page.html", path);
    assert_int_equal(trace_html_write(&run, path), STATUS_OK);
    scratch_path(&scratch, "blank.html", path);
    scratch_write(path, blank, sizeof(blank) - 1);
    assert_true(picture_bytes(&scratch, browser, "page.html") >
                5 * picture_bytes(&scratch, browser, "blank.html"));
    trace_run_release(&run);
    scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_a_run_arrives_in_the_page),
        cmocka_unit_test(a_long_run_is_drawn_too),
        cmocka_unit_test(controls_answer),
        cmocka_unit_test(what_is_painted_is_more_than_a_blank_page),
    };

    return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
