#include "scheduler/plan_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define MOST_FILE_BYTES ((size_t)1 << 30)
#define MOST_RANKS      65536

/* The words of a compute-only reader's neighbours that carry no order of ours. */
static const char *const foreign_words[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD"};

static size_t widest_action(const struct plan *plan)
{
    char text[32];
    size_t widest = 0;
    int32_t rank;
    int32_t i;

    for (rank = 0; rank < plan->shape.ranks; rank++) {
        for (i = 0; i < plan->lines[rank].count; i++) {
            size_t bytes = action_print(&plan->lines[rank].actions[i], text, sizeof(text));

            widest = bytes > widest ? bytes : widest;
        }
    }
    return widest;
}

enum status plan_text_print(const struct plan *plan, enum plan_text_form form, FILE *out)
{
    int width = form == PLAN_TEXT_LINES ? (int)widest_action(plan) : 0;
    char text[32];
    int32_t rank;
    int32_t i;

    for (rank = 0; rank < plan->shape.ranks; rank++) {
        const struct plan_line *line = &plan->lines[rank];

        if (form == PLAN_TEXT_LINES) {
            (void)fprintf(out, "rank %d:%s", rank, line->count > 0 ? " " : "");
        }
        for (i = 0; i < line->count; i++) {
            bool last = i + 1 == line->count;

            (void)action_print(&line->actions[i], text, sizeof(text));
            (void)fprintf(out, "%-*s", last ? 0 : width, text);
            if (!last) {
                (void)fputc(form == PLAN_TEXT_LINES ? ' ' : ',', out);
            }
        }
        (void)fputc('\n', out);
    }
    if (ferror(out) != 0) {
        return status_fail(STATUS_ERR_IO, "writing a plan as text failed");
    }
    return STATUS_OK;
}

/* An action and the rank whose line it stands in. */
struct cell {
    struct action action;
    int32_t rank;
    int32_t line; /* of the text */
};

struct reader {
    const char *name;
    const char *text;
    size_t bytes;
    size_t at;
    size_t line_begin;
    int32_t line; /* from 1 */
    int32_t ranks;
    int32_t last_rank_line;
    struct cell *cells; /* owns */
    size_t cell_count;
    size_t cell_capacity;
    int64_t forwards;
    int32_t last_stage;
    int32_t last_stage_line; /* where it first stands */
    int32_t last_microbatch;
    int32_t last_microbatch_line;
    int32_t slices; /* of a sequence, as far as the text shows; 0: sequences are whole */
    int32_t slices_line;
};

#define SHOWN_BYTES 24

/* The text that is complained about, cut, with nothing in it that would upset a terminal. */
static void show(const char *text, size_t bytes, char shown[SHOWN_BYTES + 1])
{
    size_t i;

    bytes = bytes > SHOWN_BYTES ? SHOWN_BYTES : bytes;
    for (i = 0; i < bytes; i++) {
        shown[i] = '?';
        if (text[i] >= ' ' && text[i] <= '~') {
            shown[i] = text[i];
        }
    }
    shown[bytes] = '\0';
}

static enum status complain(const struct reader *reader, size_t from, size_t bytes,
                            const char *what)
{
    char shown[SHOWN_BYTES + 1];

    show(reader->text + from, bytes, shown);
    return status_fail(STATUS_ERR_REFUSED, "plan %s, line %d, column %zu: \"%s\" %s", reader->name,
                       reader->line, from - reader->line_begin + 1, shown, what);
}

static bool is_separator(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == ',';
}

static bool is_foreign(const char *text, size_t bytes)
{
    size_t digits = 0;
    size_t i;

    while (digits < bytes && text[digits] >= '0' && text[digits] <= '9') {
        digits++;
    }
    for (i = 0; i < sizeof(foreign_words) / sizeof(foreign_words[0]); i++) {
        size_t word_bytes = strlen(foreign_words[i]);

        if (digits > 0 && bytes - digits == word_bytes &&
            memcmp(text + digits, foreign_words[i], word_bytes) == 0) {
            return true;
        }
    }
    return false;
}

static enum status keep(struct reader *reader, const struct action *action)
{
    int32_t microbatch =
        action->slices > 0 ? action->microbatch / action->slices : action->microbatch;

    if (reader->cell_count == reader->cell_capacity) {
        size_t capacity = reader->cell_capacity == 0 ? 256 : reader->cell_capacity * 2;
        struct cell *cells = realloc(reader->cells, capacity * sizeof(*cells));

        if (cells == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "plan %s: no memory for %zu actions",
                               reader->name, capacity);
        }
        reader->cells = cells;
        reader->cell_capacity = capacity;
    }
    reader->cells[reader->cell_count].action = *action;
    reader->cells[reader->cell_count].rank = reader->ranks;
    reader->cells[reader->cell_count].line = reader->line;
    reader->cell_count++;
    reader->forwards += action->kind == ACTION_F;
    if (action->virtual_stage > reader->last_stage) {
        reader->last_stage = action->virtual_stage;
        reader->last_stage_line = reader->line;
    }
    if (microbatch > reader->last_microbatch) {
        reader->last_microbatch = microbatch;
        reader->last_microbatch_line = reader->line;
    }
    if (action->slices > reader->slices) {
        reader->slices = action->slices;
        reader->slices_line = reader->line;
    }
    return STATUS_OK;
}

static enum status read_cell(struct reader *reader, size_t from, size_t bytes)
{
    struct action action;

    if (is_foreign(reader->text + from, bytes)) {
        return STATUS_OK;
    }
    if (memchr(reader->text + from, ';', bytes) != NULL) {
        return complain(reader, from, bytes,
                        "is two actions at once, which one compute lane cannot do; write them as "
                        "two cells");
    }
    if (action_parse(reader->text + from, bytes, &action) < 0) {
        return complain(reader, from, bytes,
                        "is not an action: expected virtual stage, kind and micro-batch as in "
                        "2F0, 2I0, 2W0, 2B0");
    }
    if (!action_is_compute((enum action_kind)action.kind)) {
        return STATUS_OK;
    }
    if (reader->cell_count > 0 && (action.slices > 0) != (reader->slices > 0)) {
        return complain(reader, from, bytes,
                        reader->slices > 0 ? "names no slice, as the actions before it do"
                                           : "names a slice, as no action before it does");
    }
    return keep(reader, &action);
}

/* `rank N:` at the beginning of a line; N must be the number that the line has by its place. */
static enum status read_prefix(struct reader *reader, size_t end)
{
    char expected[32];
    size_t expected_bytes;
    size_t from = reader->at;

    if (end - from < 4 || memcmp(reader->text + from, "rank", 4) != 0) {
        return STATUS_OK;
    }
    (void)snprintf(expected, sizeof(expected), "rank %d:", reader->ranks);
    expected_bytes = strlen(expected);
    if (end - from < expected_bytes || memcmp(reader->text + from, expected, expected_bytes) != 0) {
        return complain(reader, from, end - from,
                        "does not begin with the number of its rank; lines are in rank order");
    }
    reader->at += expected_bytes;
    return STATUS_OK;
}

static enum status read_cells(struct reader *reader, size_t end)
{
    while (reader->at < end) {
        size_t from = reader->at;

        while (reader->at < end && !is_separator(reader->text[reader->at])) {
            reader->at++;
        }
        if (reader->at == from) {
            reader->at++;
            continue;
        }
        TRY(read_cell(reader, from, reader->at - from));
    }
    return STATUS_OK;
}

/* A line of blanks is no rank; a line of empty cells is an idle one. */
static enum status read_line(struct reader *reader, size_t end)
{
    size_t first = reader->at;

    while (first < end && reader->text[first] != ',' && is_separator(reader->text[first])) {
        first++;
    }
    if (first == end) {
        return STATUS_OK;
    }
    if (reader->ranks == MOST_RANKS) {
        return complain(reader, first, end - first, "is one rank too many");
    }
    reader->at = first;
    TRY(read_prefix(reader, end));
    TRY(read_cells(reader, end));
    reader->ranks++;
    reader->last_rank_line = reader->line;
    return STATUS_OK;
}

static enum status read_all(struct reader *reader)
{
    while (reader->at < reader->bytes) {
        const char *begin = reader->text + reader->at;
        size_t left = reader->bytes - reader->at;
        const char *newline = memchr(begin, '\n', left);
        size_t end = newline == NULL ? reader->bytes : (size_t)(newline - reader->text);
        const char *comment = memchr(begin, '#', end - reader->at);

        reader->line++;
        reader->line_begin = reader->at;
        TRY(read_line(reader, comment == NULL ? end : (size_t)(comment - reader->text)));
        reader->at = end + 1;
    }
    return STATUS_OK;
}

static enum status agree(const struct reader *reader, int32_t line, const char *key, int32_t wanted,
                         int64_t found)
{
    if (wanted != 0 && wanted != found) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan %s, line %d: %s is %lld, expected %d: the plan and the job must "
                           "have the same",
                           reader->name, line, key, (long long)found, wanted);
    }
    return STATUS_OK;
}

static enum status find_shape(const struct reader *reader, const struct plan_shape *wanted,
                              struct plan_shape *shape)
{
    int64_t stages = (int64_t)reader->last_stage + 1;
    int64_t microbatches = (int64_t)reader->last_microbatch + 1;
    int32_t k = reader->slices > 0 ? reader->slices : 1;

    TRY(agree(reader, reader->last_rank_line, "pp, the number of ranks,", wanted->ranks,
              reader->ranks));
    if (reader->cell_count == 0 || reader->ranks == 0 || stages % reader->ranks != 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan %s: %lld virtual stages on %d ranks, expected the same number, at "
                           "least 1, on each",
                           reader->name, (long long)stages, reader->ranks);
    }
    TRY(agree(reader, reader->slices_line, "sequence_slices", wanted->sequence_slices, k));
    TRY(agree(reader, reader->last_microbatch_line, "num_microbatches",
              wanted->microbatches / (wanted->sequence_slices > 0 ? wanted->sequence_slices : 1),
              microbatches));
    TRY(agree(reader, reader->last_stage_line, "virtual_stages", wanted->virtual_stages,
              stages / reader->ranks));
    if (reader->forwards % stages != 0 || reader->forwards / stages != microbatches * k) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan %s: %lld F for %lld virtual stages and %lld micro-batches%s, "
                           "expected one for each pair",
                           reader->name, (long long)reader->forwards, (long long)stages,
                           (long long)(microbatches * k), k > 1 ? " in slices" : "");
    }
    *shape = *wanted;
    shape->ranks = reader->ranks;
    shape->microbatches = (int32_t)(microbatches * k);
    shape->sequence_slices = k;
    shape->virtual_stages = (int32_t)(stages / reader->ranks);
    if (shape->schedule != SCHEDULE_FORWARD_ONLY) {
        shape->schedule = SCHEDULE_FILE;
    }
    return STATUS_OK;
}

/* A virtual stage is where its first action stands; chunks are numbered in model order. */
static enum status find_placement(const struct reader *reader, struct plan *plan)
{
    int32_t *chunks = calloc((size_t)plan->shape.ranks, sizeof(*chunks));
    enum status status = STATUS_OK;
    int32_t stage;
    size_t i;

    if (chunks == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan %s: no memory for its placement",
                           reader->name);
    }
    for (i = reader->cell_count; i > 0; i--) {
        const struct cell *cell = &reader->cells[i - 1];

        plan->rank_of[cell->action.virtual_stage] = cell->rank;
        plan->lines[cell->rank].source_line = cell->line;
    }
    for (stage = 0; stage < plan_stages(plan) && status == STATUS_OK; stage++) {
        plan->chunk_of[stage] = chunks[plan->rank_of[stage]]++;
        if (plan->chunk_of[stage] == plan->shape.virtual_stages) {
            status = status_fail(STATUS_ERR_REFUSED,
                                 "plan %s: rank %d holds more than %d virtual stages, as many as "
                                 "each rank should",
                                 reader->name, plan->rank_of[stage], plan->shape.virtual_stages);
        }
    }
    free(chunks);
    return status;
}

static enum status build(const struct reader *reader, const struct plan_shape *wanted,
                         struct plan **plan_out)
{
    struct plan_shape shape;
    struct plan *plan = NULL;
    enum status status;
    size_t i;

    TRY(find_shape(reader, wanted, &shape));
    TRY(plan_create(&shape, &plan));
    plan->source = strdup(reader->name);
    if (plan->source == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "plan %s: no memory for its name", reader->name);
        goto fail;
    }
    TRY_OR(fail, status, find_placement(reader, plan));
    for (i = 0; i < reader->cell_count; i++) {
        struct action action = reader->cells[i].action;

        action.chunk = (uint16_t)plan->chunk_of[action.virtual_stage];
        if (action.slices > 0) {
            action_cut(&action, plan_slices(plan));
        }
        TRY_OR(fail, status, plan_append(plan, reader->cells[i].rank, &action));
    }
    *plan_out = plan;
    return STATUS_OK;

fail:
    plan_destroy(&plan);
    return status;
}

enum status plan_text_parse(const char *name, const char *text, size_t text_bytes,
                            const struct plan_shape *shape, struct plan **plan_out)
{
    struct reader reader = {.name = name,
                            .text = text,
                            .bytes = text_bytes,
                            .last_stage = ACTION_NONE,
                            .last_microbatch = ACTION_NONE};
    enum status status = read_all(&reader);

    if (status == STATUS_OK && reader.ranks == 0) {
        status = status_fail(STATUS_ERR_REFUSED, "plan %s: holds no rank", name);
    }
    if (status == STATUS_OK) {
        status = build(&reader, shape, plan_out);
    }
    free(reader.cells);
    return status;
}

enum status plan_text_read(const char *path, const struct plan_shape *shape, struct plan **plan_out)
{
    char *text = NULL;
    size_t bytes = 0;
    enum status status;

    if (access(path, R_OK) != 0) {
        return status_fail(
            STATUS_ERR_REFUSED,
            "plan %s: cannot be read: %s; the schedule is file:PATH, and PATH counts "
            "from the working directory",
            path, strerror(errno));
    }
    status = file_read(path, MOST_FILE_BYTES, &text, &bytes);
    if (status < 0) {
        return status;
    }
    status = plan_text_parse(path, text, bytes, shape, plan_out);
    free(text);
    return status;
}
