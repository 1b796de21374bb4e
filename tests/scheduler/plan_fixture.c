#include "plan_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/plan_text.h"
#include "scheduler/validate.h"

struct plan_shape fixture_shape(enum schedule schedule, int32_t ranks, int32_t microbatches,
                                bool early_send)
{
    return (struct plan_shape){.schedule = schedule,
                               .ranks = ranks,
                               .microbatches = microbatches,
                               .virtual_stages = 1,
                               .lane_depth = 2,
                               .early_send = early_send,
                               .embedding_sync = true};
}

struct plan *fixture_compute(enum schedule schedule, int32_t ranks, int32_t microbatches)
{
    struct plan_shape shape = fixture_shape(schedule, ranks, microbatches, false);
    struct plan *plan = NULL;

    assert_int_equal(plan_generate(&shape, &plan), STATUS_OK);
    return plan;
}

struct plan *fixture_lowered(enum schedule schedule, int32_t ranks, int32_t microbatches,
                             bool early_send)
{
    return fixture_chunks(schedule, ranks, microbatches, 1, early_send);
}

struct plan *fixture_chunks(enum schedule schedule, int32_t ranks, int32_t microbatches,
                            int32_t chunks, bool early_send)
{
    struct plan_shape shape = fixture_shape(schedule, ranks, microbatches, early_send);
    struct plan *compute = NULL;
    struct plan *lowered = NULL;

    shape.virtual_stages = chunks;
    assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    return lowered;
}

struct plan *fixture_reduced(int32_t ranks, int32_t microbatches, int32_t chunks)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_INTERLEAVED_1F1B, ranks, microbatches, true);
    struct plan *compute = NULL;
    struct plan *lowered = NULL;

    shape.virtual_stages = chunks;
    shape.reduce = true;
    assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    return lowered;
}

void fixture_refused(struct plan *plan, const char *expected)
{
    int saved = fixture_mute();
    enum status status = plan_validate(plan);

    fixture_unmute(saved);
    assert_int_equal(status, STATUS_ERR_REFUSED);
    if (strstr(status_last()->message, expected) == NULL) {
        fail_msg("expected \"%s\" in \"%s\"", expected, status_last()->message);
    }
    plan_destroy(&plan);
}

struct plan *fixture_text(const char *text)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, 0, 0, true);
    struct plan *plan = NULL;

    shape.virtual_stages = 0;
    assert_int_equal(plan_text_parse("text", text, strlen(text), &shape, &plan), STATUS_OK);
    return plan;
}

const char *fixture_line(const struct plan *plan, int32_t rank)
{
    static char text[4096];
    size_t at = 0;
    int32_t i;

    text[0] = '\0';
    for (i = 0; i < plan->lines[rank].count; i++) {
        assert_true(at + 34 < sizeof(text));
        if (i > 0) {
            text[at++] = ' ';
        }
        at += action_print(&plan->lines[rank].actions[i], text + at, sizeof(text) - at);
    }
    return text;
}

int32_t fixture_find(const struct plan *plan, int32_t rank, const char *text)
{
    char found[32];
    int32_t i;

    for (i = 0; i < plan->lines[rank].count; i++) {
        (void)action_print(&plan->lines[rank].actions[i], found, sizeof(found));
        if (strcmp(found, text) == 0) {
            return i;
        }
    }
    return -1;
}

int fixture_mute(void)
{
    int saved = dup(STDERR_FILENO);
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    assert_true(saved >= 0 && nowhere >= 0);
    assert_true(dup2(nowhere, STDERR_FILENO) >= 0);
    (void)close(nowhere);
    return saved;
}

void fixture_unmute(int saved)
{
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
}
