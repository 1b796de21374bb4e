#include "stages/config_draft.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum status config_draft_init(const char *path, struct config_draft *draft)
{
    memset(draft, 0, sizeof(*draft));
    draft->path = path;
    draft->values = calloc(config_schema_count(), sizeof(*draft->values));
    if (draft->values == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "configuration %s: no memory for its keys", path);
    }
    return STATUS_OK;
}

static void release_value(struct config_value *value)
{
    free(value->text);
    free(value->place);
    memset(value, 0, sizeof(*value));
}

enum status config_draft_set(struct config_draft *draft, const struct config_key *key,
                             const struct config_value *value)
{
    struct config_value *slot = &draft->values[config_schema_index(key)];
    struct config_value copy = {.list = value->list, .quoted = value->quoted};

    copy.text = strdup(value->text);
    copy.place = strdup(value->place);
    if (copy.text == NULL || copy.place == NULL) {
        release_value(&copy);
        return status_fail(STATUS_ERR_NO_MEMORY, "configuration %s: no memory for %s.%s",
                           draft->path, key->section, key->name);
    }
    release_value(slot);
    *slot = copy;
    return STATUS_OK;
}

const struct config_value *config_draft_of(const struct config_draft *draft,
                                           const struct config_key *key)
{
    return &draft->values[config_schema_index(key)];
}

static const struct config_value *value_of(const struct config_draft *draft, const char *section,
                                           const char *name)
{
    const struct config_key *key = config_schema_find(section, name);

    ENSURE(key != NULL, "no key %s.%s in the table", section, name);
    return config_draft_of(draft, key);
}

const char *config_draft_place(const struct config_draft *draft, const char *section,
                               const char *name)
{
    const struct config_value *value = value_of(draft, section, name);

    return value->text != NULL ? value->place : draft->path;
}

bool config_draft_given(const struct config_draft *draft, const char *section, const char *name)
{
    return value_of(draft, section, name)->text != NULL;
}

void config_draft_release(struct config_draft *draft)
{
    if (draft->values != NULL) {
        for (size_t i = 0; i < config_schema_count(); i++) {
            release_value(&draft->values[i]);
        }
    }
    free(draft->values);
    memset(draft, 0, sizeof(*draft));
}
