#include "scheduler/action.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_texts[ACTION_KINDS] = {
#define X(kind, text) text,
    ACTION_TABLE(X)
#undef X
};

/* Nine digits always fit an int32_t. */
#define MOST_DIGITS 9

/* The longest word is RELEASE_F. */
#define MOST_LETTERS 9

#define NUMBER_BYTES 24

const char *action_kind_text(enum action_kind kind)
{
    return (unsigned)kind < ACTION_KINDS ? kind_texts[kind] : "?";
}

/* "3", or "3.1" of slice 1. */
static void print_number(const struct action *action, char number[NUMBER_BYTES])
{
    if (action->slices == 0) {
        (void)snprintf(number, NUMBER_BYTES, "%d", action->microbatch);
    } else {
        (void)snprintf(number, NUMBER_BYTES, "%d.%d", action->microbatch / action->slices,
                       action->microbatch % action->slices);
    }
}

size_t action_print(const struct action *action, char *text, size_t text_bytes)
{
    enum action_kind kind = (enum action_kind)action->kind;
    char number[NUMBER_BYTES];
    int written;

    if (text_bytes == 0) {
        return 0;
    }
    print_number(action, number);
    if (action_has_direction(kind)) {
        written = snprintf(text, text_bytes, "%d%s_%c%s", action->virtual_stage,
                           action_kind_text(kind), action->direction == LANE_F ? 'F' : 'B', number);
    } else if (action_is_compute(kind)) {
        written = snprintf(text, text_bytes, "%d%s%s", action->virtual_stage,
                           action_kind_text(kind), number);
    } else {
        written = snprintf(text, text_bytes, "%s", action_kind_text(kind));
    }
    if (written < 0) {
        text[0] = '\0';
        return 0;
    }
    return (size_t)written < text_bytes ? (size_t)written : text_bytes - 1;
}

/* Where the reader stands in the text of one action. */
struct reader {
    const char *text;
    size_t bytes;
    size_t at;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->bytes && is_blank(reader->text[reader->at])) {
        reader->at++;
    }
}

/* Reads digits; ACTION_NONE where there are none, and false where there are too many. */
static bool read_number(struct reader *reader, int32_t *number_out)
{
    int32_t number = 0;
    size_t first = reader->at;

    while (reader->at < reader->bytes && reader->text[reader->at] >= '0' &&
           reader->text[reader->at] <= '9') {
        if (reader->at - first == MOST_DIGITS) {
            return false;
        }
        number = number * 10 + (reader->text[reader->at] - '0');
        reader->at++;
    }
    *number_out = reader->at == first ? ACTION_NONE : number;
    return true;
}

static bool read_word(struct reader *reader, char word[MOST_LETTERS + 1])
{
    size_t letters = 0;

    while (reader->at < reader->bytes &&
           ((reader->text[reader->at] >= 'A' && reader->text[reader->at] <= 'Z') ||
            reader->text[reader->at] == '_')) {
        if (letters == MOST_LETTERS) {
            return false;
        }
        word[letters++] = reader->text[reader->at++];
    }
    word[letters] = '\0';
    return letters > 0;
}

/* "SEND_F" → SEND and LANE_F; kinds without a direction have one word each. */
static bool parse_word(char *word, struct action *action)
{
    char *lane = strchr(word, '_');
    int kind;

    action->direction = LANE_F;
    if (lane != NULL) {
        *lane = '\0';
        if (strcmp(lane + 1, "F") != 0 && strcmp(lane + 1, "B") != 0) {
            return false;
        }
        action->direction = lane[1] == 'F' ? LANE_F : LANE_B;
    }
    for (kind = 0; kind < ACTION_KINDS; kind++) {
        if (strcmp(word, kind_texts[kind]) == 0) {
            action->kind = (uint8_t)kind;
            return action_has_direction((enum action_kind)kind) == (lane != NULL);
        }
    }
    return false;
}

/* ".1" behind a micro-batch, where it is there. */
static bool read_slice(struct reader *reader, struct action *action)
{
    int64_t piece = action->microbatch;
    int32_t slice;

    if (piece == ACTION_NONE || reader->at == reader->bytes || reader->text[reader->at] != '.') {
        return true;
    }
    reader->at++;
    if (!read_number(reader, &slice) || slice == ACTION_NONE || slice >= ACTION_MOST_SLICES) {
        return false;
    }
    piece = piece * (slice + 1) + slice;
    action->microbatch = (int32_t)piece;
    action->slices = slice + 1;
    return piece <= INT32_MAX;
}

static bool parse_all(struct reader *reader, struct action *action)
{
    char word[MOST_LETTERS + 1];
    bool bare;

    skip_blanks(reader);
    if (!read_number(reader, &action->virtual_stage) || !read_word(reader, word) ||
        !parse_word(word, action) || !read_number(reader, &action->microbatch) ||
        !read_slice(reader, action)) {
        return false;
    }
    skip_blanks(reader);
    bare = !action_is_compute((enum action_kind)action->kind) &&
           !action_has_direction((enum action_kind)action->kind);
    return reader->at == reader->bytes && bare == (action->virtual_stage == ACTION_NONE) &&
           bare == (action->microbatch == ACTION_NONE);
}

enum status action_parse(const char *text, size_t text_bytes, struct action *action_out)
{
    struct reader reader = {.text = text, .bytes = text_bytes};
    struct action action = {.peer = ACTION_NONE,
                            .sequence = ACTION_NONE,
                            .slot = ACTION_NONE,
                            .gradient = ACTION_NONE,
                            .landing = ACTION_NONE,
                            .target = ACTION_NONE};
    int i;

    if (!parse_all(&reader, &action)) {
        return status_note(STATUS_ERR_REFUSED,
                           "\"%.*s\" is not an action: expected virtual stage, kind and "
                           "micro-batch as in 2F0, 2I0, 2W0, 2B0, 2SEND_F0, 2RECV_B0, "
                           "2GATHER_F0, 2RELEASE_B0, of a slice 2F0.1, or SYNC, REDUCE, STEP",
                           (int)(text_bytes < 32 ? text_bytes : 32), text);
    }
    for (i = 0; i < ACTION_DEPENDS; i++) {
        action.depends[i] = ACTION_NONE;
    }
    *action_out = action;
    return STATUS_OK;
}

void action_cut(struct action *action, int32_t slices)
{
    action->microbatch =
        action->microbatch / action->slices * slices + action->microbatch % action->slices;
    action->slices = slices;
}
