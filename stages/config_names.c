#include "stages/config_names.h"

#include <stdio.h>
#include <string.h>

#include "stages/nearest.h"

#define HINT_BYTES 512
#define WORDS_MOST 256

/* Sections that may be named as a whole, in the words of their users. */
static const char *const sections[] = {"data", "optimizer"};
#define SECTIONS (sizeof(sections) / sizeof(sections[0]))

bool config_list_next(const char **at, char *item, size_t item_bytes)
{
    static const char blanks[] = " \t[]";
    size_t bytes = 0;

    if (**at == '\0') {
        return false;
    }
    bytes = strcspn(*at, ",");
    const char *begin = *at + strspn(*at, blanks);
    const char *end = *at + bytes;
    while (end > begin && strchr(blanks, end[-1]) != NULL) {
        end--;
    }
    bool fits = begin < end && (size_t)(end - begin) < item_bytes;
    (void)snprintf(item, item_bytes, "%.*s", fits ? (int)(end - begin) : 1, fits ? begin : "?");
    *at += bytes;
    *at += **at == ',' ? 1 : 0;
    return true;
}

static bool names_section(const char *word, const char *section)
{
    size_t bytes = strlen(section);

    return strncmp(word, section, bytes) == 0 &&
           (word[bytes] == '\0' || strcmp(word + bytes, ".*") == 0);
}

static bool names_key(const char *word, const struct config_key *key)
{
    size_t bytes = strlen(key->section);

    return strcmp(word, key->name) == 0 ||
           (strncmp(word, key->section, bytes) == 0 && word[bytes] == '.' &&
            strcmp(word + bytes + 1, key->name) == 0);
}

/* "seed" to "train.seed", "data" to "data.*"; false where it is none. */
static bool whole_name(const char *word, char *name)
{
    for (size_t i = 0; i < SECTIONS; i++) {
        if (names_section(word, sections[i])) {
            (void)snprintf(name, CONFIG_NAME_BYTES, "%s.*", sections[i]);
            return true;
        }
    }
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        if (key->change == CHANGE_ASKED && names_key(word, key)) {
            (void)snprintf(name, CONFIG_NAME_BYTES, "%s.%s", key->section, key->name);
            return true;
        }
    }
    return false;
}

/* A key that exists, but whose change needs no leave, or gets none. */
static const struct config_key *other_key(const char *word)
{
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        if (key->change != CHANGE_ASKED && names_key(word, key)) {
            return key;
        }
    }
    return NULL;
}

/* "did you mean seed?", or all that is legal. */
static void suggest(const char *word, char *hint, size_t hint_bytes)
{
    const char *words[WORDS_MOST];
    const char *dot = strchr(word, '.');
    const char *near = NULL;
    size_t count = 0;
    size_t used = 0;

    for (size_t i = 0; i < SECTIONS; i++) {
        words[count++] = sections[i];
    }
    for (size_t i = 0; i < config_schema_count() && count < WORDS_MOST; i++) {
        if (config_schema_at(i)->change == CHANGE_ASKED) {
            words[count++] = config_schema_at(i)->name;
        }
    }
    near = nearest_name(dot != NULL ? dot + 1 : word, words, count);
    if (near != NULL) {
        (void)snprintf(hint, hint_bytes, "did you mean %s?", near);
        return;
    }
    used = (size_t)snprintf(hint, hint_bytes, "legal:");
    for (size_t i = 0; i < count && used < hint_bytes; i++) {
        used +=
            (size_t)snprintf(hint + used, hint_bytes - used, "%s %s", i == 0 ? "" : ",", words[i]);
    }
}

/* What becomes of a key that is named for nothing. */
static const char *verdict_on(enum config_change change)
{
    switch (change) {
    case CHANGE_LAYOUT:
        return "may not change yet: the checkpoint is of the old layout";
    case CHANGE_REFUSED:
        return "may not change: the checkpoint is of its old value";
    case CHANGE_TAKEN:
    case CHANGE_ASKED:
        break;
    }
    return "may change without being named here";
}

static enum status refuse(const struct config_key *key, const struct config_value *value,
                          const char *word)
{
    const struct config_key *other = other_key(word);
    char hint[HINT_BYTES];

    if (other != NULL) {
        return status_fail(STATUS_ERR_REFUSED, "%s: %s.%s: %s.%s %s", value->place, key->section,
                           key->name, other->section, other->name, verdict_on(other->change));
    }
    suggest(word, hint, sizeof(hint));
    return status_fail(STATUS_ERR_REFUSED,
                       "%s: %s.%s: \"%s\" is no key that a resumed run is asked for; %s",
                       value->place, key->section, key->name, word, hint);
}

enum status config_names_parse(const struct config_key *key, const struct config_value *value,
                               char names[CONFIG_NAMES_MOST][CONFIG_NAME_BYTES])
{
    const char *at = value->text + strspn(value->text, " \t[]");
    char word[2 * CONFIG_NAME_BYTES];
    size_t count = 0;

    memset(names, 0, (size_t)CONFIG_NAMES_MOST * CONFIG_NAME_BYTES);
    for (; config_list_next(&at, word, sizeof(word)); count++) {
        if (count == CONFIG_NAMES_MOST) {
            return status_fail(STATUS_ERR_REFUSED, "%s: %s.%s: at most %d names are possible",
                               value->place, key->section, key->name, CONFIG_NAMES_MOST);
        }
        if (!whole_name(word, names[count])) {
            return refuse(key, value, word);
        }
    }
    return STATUS_OK;
}

bool config_allows_change(const struct config *config, const char *section, const char *name)
{
    for (size_t i = 0; i < CONFIG_NAMES_MOST; i++) {
        const char *allowed = config->checkpoint.allow_change[i];
        size_t bytes = strlen(section);

        if (strncmp(allowed, section, bytes) == 0 && allowed[bytes] == '.' &&
            (strcmp(allowed + bytes + 1, "*") == 0 || strcmp(allowed + bytes + 1, name) == 0)) {
            return true;
        }
    }
    return false;
}
