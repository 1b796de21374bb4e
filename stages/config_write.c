#include "stages/config_write.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "stages/config.h"
#include "stages/config_schema.h"

#define SHARES 3

/* A text in double quotes, escaped as JSON, which YAML reads too. */
static enum status write_text(const char *text, FILE *out)
{
    json_t *string = json_string(text);
    char *quoted = string != NULL ? json_dumps(string, JSON_ENCODE_ANY) : NULL;

    json_decref(string);
    if (quoted == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "configuration: no memory to write \"%s\"", text);
    }
    (void)fputs(quoted, out);
    free(quoted);
    return STATUS_OK;
}

static void write_word(const char *word, bool json, FILE *out)
{
    (void)fprintf(out, json ? "\"%s\"" : "%s", word);
}

/* The shortest decimal that reads back to the same bits. */
static void write_real(double real, FILE *out)
{
    char text[40];

    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, real);
        if (strtod(text, NULL) == real) {
            break;
        }
    }
    (void)fputs(text, out);
}

static void write_integer(const struct config_key *key, int64_t integer, bool json, FILE *out)
{
    if (key->word != NULL && integer == key->word_value) {
        write_word(key->word, json, out);
    } else {
        (void)fprintf(out, "%lld", (long long)integer);
    }
}

/* Prefix and path in quotes: a path may hold what YAML would read otherwise. */
static enum status write_prefixed(const struct config_key *key, const struct config *config,
                                  FILE *out)
{
    char text[16 + CONFIG_TEXT_BYTES];

    (void)snprintf(text, sizeof(text), "%s%s", key->prefix,
                   (const char *)config + key->rest_offset);
    return write_text(text, out);
}

static void write_choice(const struct config_key *key, int value, bool json, FILE *out)
{
    const struct config_choice *choice = key->choices;

    while (choice->text != NULL && choice->value != value) {
        choice++;
    }
    ENSURE(choice->text != NULL, "%s.%s holds %d, which is none of its choices", key->section,
           key->name, value);
    write_word(choice->text, json, out);
}

static void write_counts(const struct config *config, FILE *out)
{
    int64_t stages = config->parallel.pp * config->parallel.virtual_stages;

    for (int64_t i = 0; i < stages; i++) {
        (void)fprintf(out, "%s%lld", i == 0 ? "[" : ", ",
                      (long long)config->parallel.layers_per_stage[i]);
    }
    (void)fputc(']', out);
}

static bool all_alike(const int *choices, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        if (choices[i] != choices[0]) {
            return false;
        }
    }
    return true;
}

/* One word where all virtual stages have the same. */
static void write_choices(const struct config_key *key, const struct config *config,
                          const void *field, bool json, FILE *out)
{
    int64_t stages = config->parallel.pp * config->parallel.virtual_stages;
    int choices[CONFIG_STAGES_MOST];

    memcpy(choices, field, sizeof(choices));
    if (all_alike(choices, stages)) {
        write_choice(key, choices[0], json, out);
        return;
    }
    for (int64_t i = 0; i < stages; i++) {
        (void)fputs(i == 0 ? "[" : ", ", out);
        write_choice(key, choices[i], json, out);
    }
    (void)fputc(']', out);
}

static void write_names(const char (*names)[CONFIG_NAME_BYTES], bool json, FILE *out)
{
    (void)fputc('[', out);
    for (int i = 0; i < CONFIG_NAMES_MOST && names[i][0] != '\0'; i++) {
        (void)fputs(i == 0 ? "" : ", ", out);
        write_word(names[i], json, out);
    }
    (void)fputc(']', out);
}

static void write_shares(const double *shares, FILE *out)
{
    for (int i = 0; i < SHARES; i++) {
        (void)fputs(i == 0 ? "[" : ", ", out);
        write_real(shares[i], out);
    }
    (void)fputc(']', out);
}

/* A key without a field stands at its default. */
static enum status write_default(const struct config_key *key, bool json, FILE *out)
{
    if (key->type == CONFIG_TEXT) {
        return write_text(key->fallback != NULL ? key->fallback : "", out);
    }
    if (key->type == CONFIG_CHOICE) {
        write_word(key->fallback, json, out);
    } else {
        (void)fputs(key->fallback, out);
    }
    return STATUS_OK;
}

/* The key's value as config_value_parse() reads it; `json`: words in quotes. */
static enum status write_value(const struct config_key *key, const struct config *config, bool json,
                               FILE *out)
{
    const char *field = (const char *)config + (key->offset == CONFIG_NO_FIELD ? 0 : key->offset);
    double shares[SHARES];
    int64_t integer = 0;
    double real = 0.0;
    int choice = 0;

    if (key->offset == CONFIG_NO_FIELD) {
        return write_default(key, json, out);
    }
    switch (key->type) {
    case CONFIG_INT:
    case CONFIG_BYTES:
        memcpy(&integer, field, sizeof(integer));
        write_integer(key, integer, json, out);
        break;
    case CONFIG_REAL:
        memcpy(&real, field, sizeof(real));
        if (key->word != NULL && real == (double)key->word_value) {
            write_word(key->word, json, out);
        } else {
            write_real(real, out);
        }
        break;
    case CONFIG_BOOL:
        (void)fputs(*(const bool *)field ? "true" : "false", out);
        break;
    case CONFIG_CHOICE:
        memcpy(&choice, field, sizeof(choice));
        if (key->prefix != NULL && choice == key->prefix_value) {
            return write_prefixed(key, config, out);
        }
        write_choice(key, choice, json, out);
        break;
    case CONFIG_CHOICES:
        write_choices(key, config, field, json, out);
        break;
    case CONFIG_TEXT:
        return write_text(field, out);
    case CONFIG_COUNTS:
        write_counts(config, out);
        break;
    case CONFIG_SHARES:
        memcpy(shares, field, sizeof(shares));
        write_shares(shares, out);
        break;
    case CONFIG_NAMES:
        write_names((const char(*)[CONFIG_NAME_BYTES])field, json, out);
        break;
    }
    return STATUS_OK;
}

enum status config_write_value(const struct config_key *key, const struct config *config, FILE *out)
{
    return write_value(key, config, false, out);
}

static bool begins_section(size_t index)
{
    return index == 0 ||
           strcmp(config_schema_at(index)->section, config_schema_at(index - 1)->section) != 0;
}

/* A full disk shows at the latest when the stream is flushed. */
static enum status finish(FILE *out, const char *what)
{
    if (fflush(out) != 0 || ferror(out) != 0) {
        return status_fail(STATUS_ERR_IO, "writing %s: the output takes no more bytes", what);
    }
    return STATUS_OK;
}

enum status config_write_yaml(const struct config *config, FILE *out)
{
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        if (begins_section(i)) {
            (void)fprintf(out, "%s:\n", key->section);
        }
        (void)fprintf(out, "  %s: ", key->name);
        TRY(write_value(key, config, false, out));
        (void)fputc('\n', out);
    }
    return finish(out, "the configuration");
}

static enum status write_json(const struct config *config, FILE *out)
{
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        if (begins_section(i)) {
            (void)fprintf(out, "%s\"%s\": {", i == 0 ? "{" : "}, ", key->section);
        } else {
            (void)fputs(", ", out);
        }
        (void)fprintf(out, "\"%s\": ", key->name);
        TRY(write_value(key, config, true, out));
    }
    (void)fputs("}}", out);
    return STATUS_OK;
}

enum status config_write_json(const struct config *config, char **text_out)
{
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *stream = open_memstream(&text, &text_bytes);
    enum status status = STATUS_OK;

    if (stream == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "configuration: no memory to write it as JSON");
    }
    status = write_json(config, stream);
    if (fclose(stream) != 0 && status == STATUS_OK) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "configuration: no memory to write it as JSON");
    }
    if (status < 0) {
        free(text);
        return status;
    }
    *text_out = text;
    return STATUS_OK;
}

/* A default that is printed for a file to start from: a list and a text as they are written. */
static void write_fallback(const struct config_key *key, FILE *out)
{
    const char *quote = key->type == CONFIG_TEXT ? "\"" : "";

    (void)fprintf(out, "  %s: %s%s%s\n", key->name, quote, key->fallback, quote);
}

enum status config_write_defaults(FILE *out)
{
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        if (begins_section(i)) {
            (void)fprintf(out, "%s:\n", key->section);
        }
        if (key->fallback != NULL) {
            write_fallback(key, out);
        } else {
            (void)fprintf(out, "  # %s: %s%s\n", key->name, key->required ? "required; " : "",
                          key->help);
        }
    }
    return finish(out, "the defaults");
}
