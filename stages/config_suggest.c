#include "stages/config_suggest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "stages/config_schema.h"
#include "stages/nearest.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many edits still look like a slip and not like another word. */
static size_t edits_allowed(const char *word)
{
    size_t half = strlen(word) / 2;

    return half < 1 ? 1 : smaller(half, 4);
}

static const struct config_key *nearest_key(const char *section, const char *name)
{
    const struct config_key *nearest = NULL;
    size_t best = SIZE_MAX;

    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);
        size_t edits = nearest_edits(name, key->name);
        size_t cost = edits + (strcmp(section, key->section) == 0 ? 0 : 1);

        if (edits <= edits_allowed(name) && cost < best) {
            best = cost;
            nearest = key;
        }
    }
    return nearest;
}

static const char *nearest_section(const char *section)
{
    const char *nearest = NULL;
    size_t best = edits_allowed(section) + 1;

    for (size_t i = 0; i < config_schema_count(); i++) {
        size_t edits = nearest_edits(section, config_schema_at(i)->section);

        if (edits < best) {
            best = edits;
            nearest = config_schema_at(i)->section;
        }
    }
    return nearest;
}

static void append(char *hint, size_t hint_bytes, const char *before, const char *word)
{
    size_t used = strlen(hint);

    (void)snprintf(hint + used, hint_bytes - used, "%s%s", before, word);
}

/* "sections: model, parallel, ..." or "keys of model: num_layers, ...". */
static void list_names(const char *section, char *hint, size_t hint_bytes)
{
    const char *last = "";
    const char *before = " ";

    if (section == NULL) {
        (void)snprintf(hint, hint_bytes, "sections:");
    } else {
        (void)snprintf(hint, hint_bytes, "keys of %s:", section);
    }
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        if (section != NULL && strcmp(section, key->section) == 0) {
            append(hint, hint_bytes, before, key->name);
            before = ", ";
        } else if (section == NULL && strcmp(last, key->section) != 0) {
            append(hint, hint_bytes, before, key->section);
            before = ", ";
            last = key->section;
        }
    }
}

/* A section that does not exist: a slip in its name, or a key that forgot its section. */
static void suggest_section(const char *section, const char *name, char *hint, size_t hint_bytes)
{
    const char *near = nearest_section(section);
    const struct config_key *key = name != NULL ? NULL : nearest_key("", section);

    if (near != NULL && name != NULL && config_schema_find(near, name) != NULL) {
        (void)snprintf(hint, hint_bytes, "did you mean %s.%s?", near, name);
    } else if (near != NULL) {
        (void)snprintf(hint, hint_bytes, "did you mean %s?", near);
    } else if (key != NULL) {
        (void)snprintf(hint, hint_bytes, "did you mean %s.%s?", key->section, key->name);
    } else {
        list_names(NULL, hint, hint_bytes);
    }
}

void config_suggest(const char *section, const char *name, char *hint, size_t hint_bytes)
{
    const struct config_key *key = NULL;

    if (name == NULL || !config_schema_has_section(section)) {
        suggest_section(section, name, hint, hint_bytes);
        return;
    }
    key = nearest_key(section, name);
    if (key != NULL) {
        (void)snprintf(hint, hint_bytes, "did you mean %s.%s?", key->section, key->name);
    } else {
        list_names(section, hint, hint_bytes);
    }
}
