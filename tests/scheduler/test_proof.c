/* The proof line by line against validation in order, which asks the whole graph: on plans as they are made, on
 * plans with one thing changed, and on orders that may deadlock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "plan_mutation.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/proof.h"
#include "scheduler/validate.h"

struct verdicts {
    int proved;
    int refused;
};

static bool add_lines(struct proof *proof, const struct plan *plan, int32_t first, int32_t end)
{
    bool right = proof_init(proof, plan) == STATUS_OK;

    for (int32_t rank = first; rank < end && right; rank++) {
        right = proof_add_line(proof, rank) == STATUS_OK;
    }
    return right;
}

/* The lines in front of `cut` proved by one, the others by another. */
static bool parts_hold(const struct plan *plan, int32_t cut)
{
    struct proof front;
    struct proof back;
    bool right = add_lines(&front, plan, 0, cut);

    right = add_lines(&back, plan, cut, plan->shape.ranks) && right;
    right = right && proof_join(&front, &back) == STATUS_OK && proof_finish(&front) == STATUS_OK;
    proof_release(&front);
    proof_release(&back);
    return right;
}

/* What is proved has to be right; what is right need not be proved where somebody made it on purpose. */
static void compare(const struct plan *plan, struct verdicts *verdicts)
{
    bool proved = proof_holds(plan);
    bool right = plan_validate_in_order(plan) == STATUS_OK;

    if (proved && !right) {
        fail_msg("%s, pp %d: proved, and wrong", schedule_text(plan->shape.schedule),
                 plan->shape.ranks);
    }
    for (int32_t cut = 1; cut < plan->shape.ranks; cut++) {
        if (parts_hold(plan, cut) != proved) {
            fail_msg("%s, pp %d: in parts, cut at rank %d, %sproved",
                     schedule_text(plan->shape.schedule), plan->shape.ranks, cut,
                     proved ? "not " : "");
        }
    }
    verdicts->proved += proved ? 1 : 0;
    verdicts->refused += right ? 0 : 1;
}

static void what_is_made_is_proved_without_the_graph(void **state)
{
    (void)state;
    for (int schedule = 0; schedule < SCHEDULE_FILE; schedule++) {
        for (int32_t p = 1; p <= 6; p++) {
            for (int32_t m = 1; m <= 9; m += 2) {
                int32_t chunks = schedule_takes_chunks((enum schedule)schedule, 2) ? 2 : 1;
                struct plan *plan =
                    fixture_chunks((enum schedule)schedule, p, m, chunks, m % 4 == 1);

                if (!proof_holds(plan) || (p > 1 && !parts_hold(plan, p / 2))) {
                    fail_msg("%s, pp %d, m %d: not proved line by line",
                             schedule_text((enum schedule)schedule), p, m);
                }
                plan_destroy(&plan);
            }
        }
    }
}

static void mutate(struct plan *plan, int kind, int32_t rank, int32_t at)
{
    struct action *action = &plan->lines[rank].actions[at];

    switch (kind) {
    case 0:
        mutation_drop(plan, rank, at);
        break;
    case 1:
        mutation_duplicate(plan, rank, at);
        break;
    case 2:
        mutation_swap(plan, rank, at, at + 1);
        break;
    case 3:
        mutation_swap(plan, rank, at, (at + 5) % plan->lines[rank].count);
        break;
    case 4:
        action->landing = action->landing == 0 ? 1 : 0;
        break;
    case 5:
        action->sequence ^= 1;
        break;
    case 6:
        memmove(&action->depends[0], &action->depends[1],
                (ACTION_DEPENDS - 1) * sizeof(action->depends[0]));
        action->depends[ACTION_DEPENDS - 1] = ACTION_NONE;
        break;
    case 7:
        action->microbatch ^= 1;
        break;
    default:
        action->slot ^= 1;
        break;
    }
}

/* Each action of each line of three plans, in each way. */
static void what_is_proved_is_what_validation_accepts(void **state)
{
    static const struct {
        enum schedule schedule;
        int32_t chunks;
    } cases[] = {{SCHEDULE_1F1B, 1}, {SCHEDULE_INTERLEAVED_1F1B, 2}, {SCHEDULE_ZB_V, 2}};
    struct verdicts verdicts = {0, 0};
    int saved = fixture_mute();

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        for (int32_t rank = 0; rank < 3; rank++) {
            struct plan *whole = fixture_chunks(cases[c].schedule, 3, 4, cases[c].chunks, true);
            int32_t count = whole->lines[rank].count;

            plan_destroy(&whole);
            for (int32_t at = 0; at + 1 < count; at++) {
                for (int kind = 0; kind < 9; kind++) {
                    struct plan *plan =
                        fixture_chunks(cases[c].schedule, 3, 4, cases[c].chunks, true);

                    mutate(plan, kind, rank, at);
                    compare(plan, &verdicts);
                    plan_destroy(&plan);
                }
            }
        }
    }
    fixture_unmute(saved);
    assert_true(verdicts.proved > 20);
    assert_true(verdicts.refused > 2000);
}

/* Compute actions of 1f1b and of interleaved lines, any two of a rank exchanged, at one and at several
 * landing buffers: some can be lowered, some of those run, some deadlock. What lowering made is proved
 * exactly where validation accepts it. */
static void orders_that_deadlock_are_not_proved(void **state)
{
    struct verdicts verdicts = {0, 0};
    int wrong = 0;
    int saved = fixture_mute();

    (void)state;
    for (int32_t chunks = 1; chunks <= 2; chunks++) {
        for (int32_t pair = 0; pair < 3 * 16 * chunks * 16 * chunks; pair++) {
            struct plan_shape shape =
                fixture_shape(chunks == 1 ? SCHEDULE_1F1B : SCHEDULE_INTERLEAVED_1F1B, 3, 4, true);
            struct plan *compute = NULL;
            struct plan *lowered = NULL;
            int32_t rank = pair % 3;
            int32_t a;
            int32_t b;

            shape.virtual_stages = chunks;
            shape.lane_depth = 1;
            assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
            a = pair / 3 % compute->lines[rank].count;
            b = pair / 3 / compute->lines[rank].count % compute->lines[rank].count;
            if (a < b) {
                struct action held = compute->lines[rank].actions[a];

                compute->lines[rank].actions[a] = compute->lines[rank].actions[b];
                compute->lines[rank].actions[b] = held;
            }
            if (plan_lower(compute, &lowered) == STATUS_OK) {
                bool proved = proof_holds(lowered);

                compare(lowered, &verdicts);
                wrong += proved != (plan_validate_in_order(lowered) == STATUS_OK) ? 1 : 0;
            }
            plan_destroy(&compute);
            plan_destroy(&lowered);
        }
    }
    fixture_unmute(saved);
    assert_int_equal(wrong, 0);
    assert_true(verdicts.proved > 100);
    assert_true(verdicts.refused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_made_is_proved_without_the_graph),
        cmocka_unit_test(what_is_proved_is_what_validation_accepts),
        cmocka_unit_test(orders_that_deadlock_are_not_proved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
