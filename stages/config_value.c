#include "stages/config_value.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "stages/config_names.h"

#define LEGAL_BYTES 256
#define FOUND_BYTES 96
#define SHARES      3

/* A value of any type between text and field. */
struct parsed {
    int64_t integer; /* INT, BYTES */
    double real;
    int choice; /* CHOICE, and BOOL as 0 or 1 */
    char text[CONFIG_TEXT_BYTES];
    int64_t counts[CONFIG_STAGES_MOST];
    int choices[CONFIG_STAGES_MOST];
    char names[CONFIG_NAMES_MOST][CONFIG_NAME_BYTES];
    double shares[SHARES];
};

static enum status refuse(const struct config_key *key, const struct config_value *value)
{
    char legal[LEGAL_BYTES];
    char found[FOUND_BYTES];

    config_schema_legal(key, legal, sizeof(legal));
    (void)snprintf(found, sizeof(found), "%s", value->text);
    for (char *at = found; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20) {
            *at = '?'; /* a message is one line */
        }
    }
    return status_fail(STATUS_ERR_REFUSED, "%s: %s.%s: expected %s; found %s%s%s%s", value->place,
                       key->section, key->name, legal, value->quoted ? "the text \"" : "", found,
                       value->quoted ? "\"" : "",
                       strlen(value->text) >= sizeof(found) ? "..." : "");
}

static enum status refuse_later(const struct config_key *key, const struct config_value *value)
{
    char legal[LEGAL_BYTES];

    if (key->type == CONFIG_CHOICE) {
        config_schema_legal(key, legal, sizeof(legal));
    } else {
        (void)snprintf(legal, sizeof(legal), "%s",
                       key->fallback != NULL && key->fallback[0] != '\0' ? key->fallback : "\"\"");
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "%s: %s.%s: %.96s is not supported by this build yet; legal now: %s",
                       value->place, key->section, key->name, value->text, legal);
}

/* An integer with digits only; *rest_out is what follows them. */
static bool read_integer(const char *text, int64_t *integer_out, const char **rest_out)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    size_t count = strspn(digits, "0123456789");
    char *end = NULL;
    long long integer = 0;

    if (count == 0 || (digits[0] == '0' && count > 1)) {
        return false;
    }
    errno = 0;
    integer = strtoll(text, &end, 10);
    if (errno != 0) {
        return false;
    }
    *integer_out = integer;
    *rest_out = end;
    return true;
}

/* 512, 512K, 2G: a factor of 1024 a letter. */
static bool scale_bytes(int64_t *integer, const char **rest)
{
    static const char units[] = "KMGT";
    const char *unit = **rest != '\0' ? strchr(units, **rest) : NULL;

    if (unit == NULL) {
        return true;
    }
    for (const char *step = units; step <= unit; step++) {
        if (__builtin_mul_overflow(*integer, (int64_t)1024, integer)) {
            return false;
        }
    }
    (*rest)++;
    return true;
}

static bool parse_integer(const struct config_key *key, const char *text, int64_t *integer_out)
{
    int64_t integer = 0;
    const char *rest = NULL;

    if (!read_integer(text, &integer, &rest)) {
        return false;
    }
    if (key->type == CONFIG_BYTES && !scale_bytes(&integer, &rest)) {
        return false;
    }
    if (*rest != '\0' || integer < key->least || integer > key->most) {
        return false;
    }
    *integer_out = integer;
    return true;
}

static bool parse_real(const struct config_key *key, const char *text, double *real_out)
{
    size_t digits = strspn(text, "0123456789.eE+-");
    char *end = NULL;
    double real = 0.0;

    if (digits == 0 || text[digits] != '\0' || text[0] == '+' || text[0] == 'e' || text[0] == 'E') {
        return false;
    }
    real = strtod(text, &end);
    if (*end != '\0' || !isfinite(real)) {
        return false;
    }
    if (real < key->low || (key->above_low && real <= key->low)) {
        return false;
    }
    if (real > key->high || (key->below_high && real >= key->high)) {
        return false;
    }
    *real_out = real;
    return true;
}

static bool is_word(const struct config_key *key, const struct config_value *value)
{
    return key->word != NULL && !value->list && strcmp(value->text, key->word) == 0;
}

static bool parse_counts(const struct config_key *key, const char *text, int64_t *counts)
{
    char item[32];
    size_t count = 0;
    const char *at = text;

    for (; config_list_next(&at, item, sizeof(item)); count++) {
        if (count == CONFIG_STAGES_MOST || !parse_integer(key, item, &counts[count])) {
            return false;
        }
    }
    if (count < CONFIG_STAGES_MOST) {
        counts[count] = CONFIG_DERIVE;
    }
    return count > 0;
}

static bool parse_shares(const struct config_key *key, const char *text, double *shares)
{
    char item[64];
    size_t count = 0;
    const char *at = text;

    for (; config_list_next(&at, item, sizeof(item)); count++) {
        if (count == SHARES || !parse_real(key, item, &shares[count])) {
            return false;
        }
    }
    return count == SHARES;
}

/* A path or a prefix: valid UTF-8 without control characters, so that it can be written back. */
static bool parse_text(const char *text, char *copy)
{
    json_t *checked = NULL;

    if (strlen(text) >= CONFIG_TEXT_BYTES) {
        return false;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            return false;
        }
    }
    checked = json_string(text);
    if (checked == NULL) {
        return false;
    }
    json_decref(checked);
    (void)snprintf(copy, CONFIG_TEXT_BYTES, "%s", text);
    return true;
}

/* The text behind a prefix is a path, kept as it is. */
static bool parse_prefixed(const struct config_key *key, const char *text, struct parsed *parsed)
{
    size_t bytes = key->prefix != NULL ? strlen(key->prefix) : 0;

    if (bytes == 0 || strncmp(text, key->prefix, bytes) != 0 || text[bytes] == '\0') {
        return false;
    }
    parsed->choice = key->prefix_value;
    return parse_text(text + bytes, parsed->text);
}

static bool parse_choice(const struct config_key *key, const char *text, int *choice_out)
{
    for (const struct config_choice *choice = key->choices; choice->text != NULL; choice++) {
        if (strcmp(choice->text, text) == 0) {
            *choice_out = choice->value;
            return true;
        }
    }
    return false;
}

/* One choice for all stages, or a list of them that ends with CONFIG_DERIVE. */
static bool parse_choices(const struct config_key *key, const struct config_value *value,
                          int *choices)
{
    char item[32];
    size_t count = 0;
    const char *at = value->text;

    if (!value->list) {
        bool legal = parse_choice(key, value->text, &choices[0]);

        for (size_t i = 1; i < CONFIG_STAGES_MOST; i++) {
            choices[i] = choices[0];
        }
        return legal;
    }
    for (; config_list_next(&at, item, sizeof(item)); count++) {
        if (count == CONFIG_STAGES_MOST || !parse_choice(key, item, &choices[count])) {
            return false;
        }
    }
    if (count < CONFIG_STAGES_MOST) {
        choices[count] = CONFIG_DERIVE;
    }
    return count > 0;
}

static bool parse_bool(const char *text, int *flag_out)
{
    *flag_out = strcmp(text, "true") == 0 ? 1 : 0;
    return *flag_out == 1 || strcmp(text, "false") == 0;
}

/* Numbers, words and lists into `parsed`; false where the text is none of what the key takes. */
static bool parse_any(const struct config_key *key, const struct config_value *value,
                      struct parsed *parsed)
{
    bool wants_list =
        key->type == CONFIG_COUNTS || key->type == CONFIG_SHARES || key->type == CONFIG_NAMES;

    if (is_word(key, value)) {
        parsed->integer = key->word_value;
        parsed->real = (double)key->word_value;
        parsed->counts[0] = CONFIG_DERIVE;
        return true;
    }
    if (value->list != wants_list && key->type != CONFIG_CHOICES) {
        return false;
    }
    if (value->quoted && key->type != CONFIG_TEXT && key->type != CONFIG_CHOICE &&
        key->type != CONFIG_CHOICES) {
        return false;
    }
    switch (key->type) {
    case CONFIG_INT:
    case CONFIG_BYTES:
        return parse_integer(key, value->text, &parsed->integer);
    case CONFIG_REAL:
        return parse_real(key, value->text, &parsed->real);
    case CONFIG_BOOL:
        return parse_bool(value->text, &parsed->choice);
    case CONFIG_CHOICE:
        return parse_choice(key, value->text, &parsed->choice) ||
               parse_prefixed(key, value->text, parsed);
    case CONFIG_CHOICES:
        return parse_choices(key, value, parsed->choices);
    case CONFIG_TEXT:
        return parse_text(value->text, parsed->text);
    case CONFIG_COUNTS:
        return parse_counts(key, value->text, parsed->counts);
    case CONFIG_SHARES:
        return parse_shares(key, value->text, parsed->shares);
    case CONFIG_NAMES:
        return true; /* words of their own: config_names_parse() */
    }
    return false;
}

/* What the default reads as; empty texts and CONFIG_DERIVE where the key has none. */
static void parse_default(const struct config_key *key, struct parsed *parsed)
{
    char text[64];

    parsed->integer = CONFIG_DERIVE;
    parsed->real = CONFIG_DERIVE;
    if (key->fallback != NULL) {
        struct config_value value = {.text = text, .list = key->fallback[0] == '['};

        (void)snprintf(text, sizeof(text), "%s", key->fallback);
        ENSURE(parse_any(key, &value, parsed), "default of %s.%s is not legal", key->section,
               key->name);
    }
}

static bool is_default(const struct config_key *key, const struct parsed *parsed)
{
    struct parsed fallback = {0};

    parse_default(key, &fallback);
    return parsed->integer == fallback.integer && parsed->real == fallback.real &&
           parsed->choice == fallback.choice && strcmp(parsed->text, fallback.text) == 0;
}

static void store(const struct config_key *key, const struct parsed *parsed, struct config *config)
{
    char *field = (char *)config + key->offset;

    switch (key->type) {
    case CONFIG_INT:
    case CONFIG_BYTES:
        memcpy(field, &parsed->integer, sizeof(parsed->integer));
        break;
    case CONFIG_REAL:
        memcpy(field, &parsed->real, sizeof(parsed->real));
        break;
    case CONFIG_BOOL:
        *(bool *)field = parsed->choice != 0;
        break;
    case CONFIG_CHOICE:
        memcpy(field, &parsed->choice, sizeof(parsed->choice));
        if (key->prefix != NULL) {
            memcpy((char *)config + key->rest_offset, parsed->text, sizeof(parsed->text));
        }
        break;
    case CONFIG_CHOICES:
        memcpy(field, parsed->choices, sizeof(parsed->choices));
        break;
    case CONFIG_TEXT:
        memcpy(field, parsed->text, sizeof(parsed->text));
        break;
    case CONFIG_COUNTS:
        memcpy(field, parsed->counts, sizeof(parsed->counts));
        break;
    case CONFIG_SHARES:
        memcpy(field, parsed->shares, sizeof(parsed->shares));
        break;
    case CONFIG_NAMES:
        memcpy(field, parsed->names, sizeof(parsed->names));
        break;
    }
}

enum status config_value_parse(const struct config_key *key, const struct config_value *value,
                               struct config *config)
{
    struct parsed parsed = {.integer = CONFIG_DERIVE, .real = CONFIG_DERIVE};

    if (!parse_any(key, value, &parsed)) {
        return refuse(key, value);
    }
    if (key->type == CONFIG_NAMES) {
        TRY(config_names_parse(key, value, parsed.names));
    }
    if (key->type == CONFIG_CHOICE && parsed.choice == CONFIG_LATER) {
        return refuse_later(key, value);
    }
    if (key->later && !is_default(key, &parsed)) {
        return refuse_later(key, value);
    }
    if (key->offset != CONFIG_NO_FIELD) {
        store(key, &parsed, config);
    }
    return STATUS_OK;
}

void config_value_default(const struct config_key *key, struct config *config)
{
    struct parsed parsed = {0};

    parse_default(key, &parsed);
    if (key->offset != CONFIG_NO_FIELD) {
        store(key, &parsed, config);
    }
}
