#include "stages/config_override.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "stages/config_suggest.h"

#define NAME_BYTES 128
#define HINT_BYTES 512

/* Cuts "section.key" into its halves; an empty key where there is no dot, false where one is
 * longer than any name. */
static bool split_name(const char *name, size_t name_bytes, char *section, char *key)
{
    const char *dot = memchr(name, '.', name_bytes);
    size_t section_bytes = dot != NULL ? (size_t)(dot - name) : name_bytes;
    size_t key_bytes = dot != NULL ? name_bytes - section_bytes - 1 : 0;

    if (section_bytes >= NAME_BYTES || key_bytes >= NAME_BYTES) {
        return false;
    }
    memcpy(section, name, section_bytes);
    section[section_bytes] = '\0';
    if (dot != NULL) {
        memcpy(key, dot + 1, key_bytes);
    }
    key[key_bytes] = '\0';
    return true;
}

static bool holds_list(const struct config_key *key, const char *text)
{
    if (key->type == CONFIG_CHOICES) {
        return strpbrk(text, "[,") != NULL;
    }
    if (key->type != CONFIG_COUNTS && key->type != CONFIG_SHARES && key->type != CONFIG_NAMES) {
        return false;
    }
    return key->word == NULL || strcmp(text, key->word) != 0;
}

enum status config_override_apply(struct config_draft *draft, const char *word)
{
    const char *name = strncmp(word, "--", 2) == 0 ? word + 2 : word;
    const char *equals = strchr(name, '=');
    const struct config_key *found = NULL;
    char section[NAME_BYTES];
    char key[NAME_BYTES];
    char text[FILE_PATH_BYTES];
    char place[CONFIG_PLACE_BYTES];
    char hint[HINT_BYTES];

    if (strcmp(word, "--overwrite") == 0) {
        draft->overwrite = true;
        return STATUS_OK;
    }
    if (!split_name(name, equals != NULL ? (size_t)(equals - name) : strlen(name), section, key)) {
        return status_fail(STATUS_ERR_REFUSED, "%.200s: expected --section.key=value", word);
    }
    found = config_schema_find(section, key);
    if (found == NULL) {
        config_suggest(section, key[0] != '\0' ? key : NULL, hint, sizeof(hint));
        return status_fail(STATUS_ERR_REFUSED, "%s: %s%s%s: unknown key; %s", word, section,
                           key[0] != '\0' ? "." : "", key, hint);
    }
    if (equals == NULL) {
        return status_fail(STATUS_ERR_REFUSED, "%s: expected --%s.%s=value", word, section, key);
    }
    if (strlen(equals + 1) >= sizeof(text)) {
        return status_fail(STATUS_ERR_REFUSED, "--%s.%s: expected at most %zu bytes, found %zu",
                           section, key, sizeof(text) - 1, strlen(equals + 1));
    }
    (void)snprintf(text, sizeof(text), "%s", equals + 1);
    (void)snprintf(place, sizeof(place), "--%s.%s=%.200s", section, key, text);
    for (char *at = place; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20) {
            *at = '?'; /* a message is one line */
        }
    }
    struct config_value value = {
        .text = text, .place = place, .list = holds_list(found, text), .quoted = false};
    return config_draft_set(draft, found, &value);
}
