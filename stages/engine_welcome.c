/* engine_welcome -- one plan a job: how rank 0 tells its plan, and how all ranks find out whose differs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "collectives/rank_list.h"
#include "stages/engine.h"
#include "stages/engine_start.h"

#define HASH_BYTES 17                   /* sixteen digits and the end of the line */
#define NO_HASH    "----------------\n" /* of a line that this rank has not made */

enum status engine_write_welcome(struct engine *engine)
{
    const struct plan_shape *shape = &engine->plan->shape;
    size_t bytes = 320 + (size_t)shape->ranks * HASH_BYTES;
    int used = 0;

    engine->welcome = malloc(bytes);
    if (engine->welcome == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "welcome of %zu bytes", bytes);
    }
    used = snprintf(engine->welcome, bytes,
                    "schedule %s, pp %d, num_microbatches %d, sequence_slices %d, "
                    "virtual_stages %d, extra_in_flight %d, lane_depth %d, "
                    "early_send %d, embedding_sync %d, reduce %d, gather %d\n",
                    schedule_text(shape->schedule), shape->ranks,
                    shape->microbatches / plan_slices(engine->plan), plan_slices(engine->plan),
                    shape->virtual_stages, shape->extra_in_flight, shape->lane_depth,
                    shape->early_send, shape->embedding_sync, shape->reduce, shape->gather);
    for (int32_t rank = 0; rank < shape->ranks; rank++) {
        if (engine->plan->lines[rank].count > 0) {
            used += snprintf(engine->welcome + used, bytes - (size_t)used, "%016llx\n",
                             (unsigned long long)plan_line_hash(engine->plan, rank));
        } else {
            used += snprintf(engine->welcome + used, bytes - (size_t)used, NO_HASH);
        }
    }
    return STATUS_OK;
}

static int first_line_bytes(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);

    return (int)(end != NULL ? (size_t)(end - text) : bytes);
}

/* Where the first line begins, behind the shape, that this rank has made and rank 0 has otherwise; `bytes`
 * where there is none. Both have as many. */
static size_t first_difference(const char *own, const char *theirs, size_t at, size_t bytes)
{
    while (at < bytes &&
           (own[at] == NO_HASH[0] || memcmp(own + at, theirs + at, HASH_BYTES) == 0)) {
        at += HASH_BYTES;
    }
    return at;
}

/* Whether this rank's plan is another one than rank 0's, as far as it has made it; `note` says which line,
 * and what it is in both. */
static bool differs(const struct engine *engine, char *note, size_t note_bytes)
{
    size_t bytes = 0;
    const char *theirs = control_welcome(engine->control, &bytes);
    const char *own = engine->welcome;
    size_t own_bytes = strlen(own);
    size_t lines_at = strcspn(own, "\n") + 1;
    size_t at;

    if (own_bytes != bytes || memcmp(own, theirs, lines_at) != 0) {
        (void)snprintf(note, note_bytes, "rank %d has \"%.*s\", rank 0 \"%.*s\"", engine->grid.rank,
                       first_line_bytes(own, own_bytes), own, first_line_bytes(theirs, bytes),
                       theirs);
        return true;
    }
    at = first_difference(own, theirs, lines_at, bytes);
    if (at >= bytes) {
        return false;
    }
    (void)snprintf(note, note_bytes,
                   "the line of pipeline rank %zu has hash %.16s on rank %d and %.16s on rank 0",
                   (at - lines_at) / HASH_BYTES, own + at, engine->grid.rank, theirs + at);
    return true;
}

/* What a rank gives in the round, and what it gets: by rank, 1 where its plan is not rank 0's. */
struct comparison {
    struct control_key *keys; /* owns */
    double *differs;          /* owns */
    int32_t *ranks;           /* owns; those that differ */
    int32_t world;
};

static enum status refuse(const struct engine *engine, struct comparison *comparison,
                          const struct control_answer *answer)
{
    const char *path = engine->config->parallel.schedule_file;
    bool read = engine->config->parallel.schedule == SCHEDULE_FILE;
    char list[RANK_LIST_BYTES];
    int32_t count = 0;

    for (int32_t rank = 0; rank < comparison->world; rank++) {
        if (comparison->differs[rank] != 0.0) {
            comparison->ranks[count++] = rank;
        }
    }
    if (count == 0) {
        return STATUS_OK;
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "rank%s %s: the plan differs from that of rank 0: %s; all ranks must %s%s",
                       count > 1 ? "s" : "", rank_list_text(comparison->ranks, count, list),
                       answer->note,
                       read ? "read the same parallel.schedule file:" : "run the same weir", path);
}

static enum status compare(struct engine *engine, struct comparison *comparison)
{
    char note[CONTROL_TEXT_BYTES] = "";
    struct control_value value = {.key = engine->grid.rank};
    struct control_answer answer = {.numbers = comparison->differs};
    struct control_round round = {
        .name = "PLAN",
        .keys = comparison->keys,
        .key_count = comparison->world,
        .values = &value,
        .value_count = 1,
        .note = note,
    };

    for (int32_t rank = 0; rank < comparison->world; rank++) {
        comparison->keys[rank] = (struct control_key){"another plan", CONTROL_SUM};
    }
    value.number = differs(engine, note, sizeof(note)) ? 1.0 : 0.0;
    TRY(control_reduce(engine->control, &round, &answer,
                       clock_deadline(engine->config->control.start_timeout_s)));
    /* All ranks refuse alike, and leave in order: nobody needs to be told. */
    engine->joined = false;
    TRY(refuse(engine, comparison, &answer));
    engine->joined = true;
    return STATUS_OK;
}

enum status engine_compare_plans(struct engine *engine)
{
    struct comparison comparison = {.world = engine->grid.shape.pp * engine->grid.shape.tp *
                                             engine->grid.shape.dp};
    size_t world = (size_t)comparison.world;
    enum status status = STATUS_OK;

    engine->joined = true;
    comparison.keys = calloc(world, sizeof(*comparison.keys));
    comparison.differs = calloc(world, sizeof(*comparison.differs));
    comparison.ranks = calloc(world, sizeof(*comparison.ranks));
    if (comparison.keys == NULL || comparison.differs == NULL || comparison.ranks == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "comparing the plans of %zu ranks", world);
    } else {
        status = compare(engine, &comparison);
    }
    free(comparison.keys);
    free(comparison.differs);
    free(comparison.ranks);
    return status;
}
