#include "stages/config_yaml.h"

#include <libfyaml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "stages/config_suggest.h"

/* Far above any configuration; keeps a wrong path (a data file) from being parsed. */
#define FILE_BYTES_MOST ((size_t)1 << 20)
#define WORD_BYTES      128
#define HINT_BYTES      512

struct reader {
    struct config_draft *draft; /* borrows */
    struct fy_diag *diag;       /* owns */
    struct fy_parser *parser;   /* owns */
    struct fy_event *event;     /* owns; the one being looked at */
    int line;                   /* of the last event that has one, from 1 */
    int *section_lines;         /* owns; by index of a section's first key; 0: not seen */
};

static enum status fail_syntax(const struct reader *reader)
{
    void *iterator = NULL;
    const struct fy_diag_error *error = fy_diag_errors_iterate(reader->diag, &iterator);

    if (error == NULL) {
        return status_fail(STATUS_ERR_REFUSED, "%s:%d: expected YAML, found the end of the text",
                           reader->draft->path, reader->line);
    }
    return status_fail(STATUS_ERR_REFUSED, "%s:%d:%d: expected YAML: %s", reader->draft->path,
                       error->line, error->column, error->msg);
}

/* Goes to the next event; STATUS_ERR_REFUSED where the text is not YAML. */
static enum status next_event(struct reader *reader)
{
    const struct fy_mark *mark = NULL;

    fy_parser_event_free(reader->parser, reader->event);
    reader->event = fy_parser_parse(reader->parser);
    if (reader->event == NULL) {
        return fail_syntax(reader);
    }
    mark = fy_event_start_mark(reader->event);
    /* An empty value has no mark: it stands where its key does. */
    if (mark != NULL && mark->line >= 0) {
        reader->line = mark->line + 1;
    }
    return STATUS_OK;
}

static const char *event_text(enum fy_event_type type)
{
    switch (type) {
    case FYET_SCALAR:
        return "a single value";
    case FYET_SEQUENCE_START:
        return "a list";
    case FYET_MAPPING_START:
        return "keys below it";
    case FYET_ALIAS:
        return "an alias";
    default:
        return "the end of the document";
    }
}

/* Anchors and tags change what a value means; weir's files have none. */
static bool is_decorated(const struct fy_event *event)
{
    switch (event->type) {
    case FYET_SCALAR:
        return event->scalar.tag != NULL || event->scalar.anchor != NULL;
    case FYET_SEQUENCE_START:
        return event->sequence_start.tag != NULL || event->sequence_start.anchor != NULL;
    case FYET_MAPPING_START:
        return event->mapping_start.tag != NULL || event->mapping_start.anchor != NULL;
    default:
        return false;
    }
}

/* `what` is being read and has to be an event of `type`. */
static enum status expect(const struct reader *reader, enum fy_event_type type, const char *what)
{
    if (is_decorated(reader->event)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s:%d: %s: YAML tags and anchors have no meaning here; write the value",
                           reader->draft->path, reader->line, what);
    }
    if (reader->event->type != type) {
        return status_fail(STATUS_ERR_REFUSED, "%s:%d: %s: expected %s, found %s",
                           reader->draft->path, reader->line, what, event_text(type),
                           event_text(reader->event->type));
    }
    return STATUS_OK;
}

/* Copies the scalar that is being looked at; *plain_out is whether it stands without quotes. */
static enum status take_scalar(const struct reader *reader, const char *what, char *text,
                               size_t text_bytes, bool *plain_out)
{
    size_t bytes = 0;
    const char *scalar = NULL;

    TRY(expect(reader, FYET_SCALAR, what));
    scalar = fy_token_get_text(reader->event->scalar.value, &bytes);
    if (scalar == NULL) {
        bytes = 0;
    }
    if (bytes >= text_bytes) {
        return status_fail(STATUS_ERR_REFUSED, "%s:%d: %s: expected at most %zu bytes, found %zu",
                           reader->draft->path, reader->line, what, text_bytes - 1, bytes);
    }
    if (bytes > 0 && memchr(scalar, '\0', bytes) != NULL) {
        return status_fail(STATUS_ERR_REFUSED, "%s:%d: %s: found a NUL byte", reader->draft->path,
                           reader->line, what);
    }
    if (bytes > 0) {
        memcpy(text, scalar, bytes);
    }
    text[bytes] = '\0';
    *plain_out = fy_token_scalar_style(reader->event->scalar.value) == FYSS_PLAIN;
    return STATUS_OK;
}

/* Reads the rest of a list into "[a, b]"; the caller frees *text_out. */
static enum status read_list(struct reader *reader, const char *what, char **text_out)
{
    enum status status = STATUS_OK;
    char item[WORD_BYTES];
    char *text = NULL;
    size_t text_bytes = 0;
    const char *before = "";
    bool plain = false;
    FILE *stream = open_memstream(&text, &text_bytes);

    if (stream == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%s: no memory for a list", what);
    }
    (void)fputc('[', stream);
    for (;;) {
        TRY_OR(fail, status, next_event(reader));
        if (reader->event->type == FYET_SEQUENCE_END) {
            break;
        }
        TRY_OR(fail, status, take_scalar(reader, what, item, sizeof(item), &plain));
        (void)fprintf(stream, "%s%s", before, item);
        before = ", ";
    }
    (void)fputc(']', stream);
    if (fclose(stream) != 0 || text == NULL) {
        free(text);
        return status_fail(STATUS_ERR_NO_MEMORY, "%s: no memory for a list", what);
    }
    *text_out = text;
    return STATUS_OK;
fail:
    (void)fclose(stream);
    free(text);
    return status;
}

static bool is_no_value(const char *text, bool plain)
{
    return plain && (text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static enum status read_value(struct reader *reader, const struct config_key *key,
                              const char *place)
{
    enum status status = STATUS_OK;
    char what[WORD_BYTES];
    char scalar[FILE_PATH_BYTES];
    char where[CONFIG_PLACE_BYTES];
    char *list = NULL;
    bool plain = false;

    (void)snprintf(what, sizeof(what), "%s.%s", key->section, key->name);
    (void)snprintf(where, sizeof(where), "%s", place);
    struct config_value value = {.place = where};
    TRY(next_event(reader));
    if (reader->event->type == FYET_SEQUENCE_START) {
        TRY(expect(reader, FYET_SEQUENCE_START, what));
        TRY(read_list(reader, what, &list));
        value.text = list;
        value.list = true;
    } else {
        TRY(take_scalar(reader, what, scalar, sizeof(scalar), &plain));
        if (is_no_value(scalar, plain)) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s: %s: expected a value; leave the key out to take its default",
                               place, what);
        }
        value.text = scalar;
        value.quoted = !plain;
    }
    status = config_draft_set(reader->draft, key, &value);
    free(list);
    return status;
}

/* The event is a key of `section`. */
static enum status read_key(struct reader *reader, const char *section)
{
    char name[WORD_BYTES];
    char place[CONFIG_PLACE_BYTES];
    char hint[HINT_BYTES];
    bool plain = false;
    const struct config_key *key = NULL;

    TRY(take_scalar(reader, section, name, sizeof(name), &plain));
    (void)snprintf(place, sizeof(place), "%s:%d", reader->draft->path, reader->line);
    key = config_schema_find(section, name);
    if (key == NULL) {
        config_suggest(section, name, hint, sizeof(hint));
        return status_fail(STATUS_ERR_REFUSED, "%s: %s.%s: unknown key; %s", place, section, name,
                           hint);
    }
    if (config_draft_of(reader->draft, key)->text != NULL) {
        return status_fail(STATUS_ERR_REFUSED, "%s: %s.%s: given twice; first at %s", place,
                           section, name, config_draft_of(reader->draft, key)->place);
    }
    return read_value(reader, key, place);
}

static size_t section_index(const char *section)
{
    size_t index = 0;

    while (strcmp(config_schema_at(index)->section, section) != 0) {
        index++;
    }
    return index;
}

/* What stands behind the name of a section. */
static enum status read_keys(struct reader *reader, const char *section)
{
    TRY(next_event(reader));
    /* A section whose keys are all commented out. */
    if (reader->event->type == FYET_SCALAR && !is_decorated(reader->event) &&
        fy_token_get_text_length(reader->event->scalar.value) == 0) {
        return STATUS_OK;
    }
    TRY(expect(reader, FYET_MAPPING_START, section));
    for (;;) {
        TRY(next_event(reader));
        if (reader->event->type == FYET_MAPPING_END) {
            return STATUS_OK;
        }
        TRY(read_key(reader, section));
    }
}

/* The event is the name of a section. */
static enum status read_section(struct reader *reader)
{
    char section[WORD_BYTES];
    char hint[HINT_BYTES];
    bool plain = false;
    int *first = NULL;

    TRY(take_scalar(reader, "section", section, sizeof(section), &plain));
    if (!config_schema_has_section(section)) {
        config_suggest(section, NULL, hint, sizeof(hint));
        return status_fail(STATUS_ERR_REFUSED, "%s:%d: %s: unknown section; %s",
                           reader->draft->path, reader->line, section, hint);
    }
    first = &reader->section_lines[section_index(section)];
    if (*first != 0) {
        return status_fail(STATUS_ERR_REFUSED, "%s:%d: %s: given twice; first at %s:%d",
                           reader->draft->path, reader->line, section, reader->draft->path, *first);
    }
    *first = reader->line;
    return read_keys(reader, section);
}

static enum status read_sections(struct reader *reader)
{
    TRY(next_event(reader));
    TRY(expect(reader, FYET_MAPPING_START, "the configuration"));
    for (;;) {
        TRY(next_event(reader));
        if (reader->event->type == FYET_MAPPING_END) {
            return STATUS_OK;
        }
        TRY(read_section(reader));
    }
}

static enum status read_stream(struct reader *reader)
{
    TRY(next_event(reader)); /* stream start */
    TRY(next_event(reader));
    if (reader->event->type == FYET_STREAM_END) {
        return STATUS_OK; /* nothing but comments: the keys that are missed are named later */
    }
    TRY(read_sections(reader));
    TRY(next_event(reader)); /* document end */
    TRY(next_event(reader));
    if (reader->event->type != FYET_STREAM_END) {
        return status_fail(STATUS_ERR_REFUSED, "%s:%d: expected one document, found a second one",
                           reader->draft->path, reader->line);
    }
    return STATUS_OK;
}

static enum status reader_open(struct reader *reader, const char *text, size_t text_bytes)
{
    struct fy_diag_cfg diag_config;
    struct fy_parse_cfg parse_config = {.search_path = "", .flags = FYPCF_QUIET | FYPCF_JSON_NONE};

    reader->section_lines = calloc(config_schema_count(), sizeof(*reader->section_lines));
    fy_diag_cfg_default(&diag_config);
    reader->diag = fy_diag_create(&diag_config);
    if (reader->section_lines == NULL || reader->diag == NULL) {
        goto fail;
    }
    fy_diag_set_collect_errors(reader->diag, true);
    parse_config.diag = reader->diag;
    reader->parser = fy_parser_create(&parse_config);
    if (reader->parser == NULL || fy_parser_set_string(reader->parser, text, text_bytes) != 0) {
        goto fail;
    }
    return STATUS_OK;
fail:
    return status_fail(STATUS_ERR_NO_MEMORY, "configuration %s: no memory to read it",
                       reader->draft->path);
}

static void reader_close(struct reader *reader)
{
    /* Collected errors hold parts of the parser and do not go with the last reference. */
    if (reader->diag != NULL) {
        fy_diag_reset_error(reader->diag);
    }
    if (reader->parser != NULL) {
        fy_parser_event_free(reader->parser, reader->event);
        fy_parser_destroy(reader->parser);
    }
    if (reader->diag != NULL) {
        fy_diag_unref(reader->diag);
    }
    free(reader->section_lines);
}

enum status config_yaml_read(struct config_draft *draft)
{
    struct reader reader = {.draft = draft, .line = 1};
    enum status status = STATUS_OK;
    char *text = NULL;
    size_t text_bytes = 0;

    TRY(file_read(draft->path, FILE_BYTES_MOST, &text, &text_bytes));
    TRY_OR(done, status, reader_open(&reader, text, text_bytes));
    status = read_stream(&reader);
done:
    reader_close(&reader);
    free(text);
    return status;
}
