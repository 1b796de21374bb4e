/* config -- `weir config CONFIG`: the resolved configuration, and what each key is. */
#include <stdio.h>
#include <string.h>

#include "stages/commands/command.h"
#include "stages/config.h"
#include "stages/config_schema.h"
#include "stages/config_suggest.h"
#include "stages/config_write.h"

#define NAME_BYTES  128
#define LEGAL_BYTES 256

static void print_help(void)
{
    (void)printf("usage: weir config CONFIG [--section.key=value ...]\n"
                 "       weir config --print-defaults\n"
                 "       weir config --explain KEY\n"
                 "\n"
                 "Prints the resolved configuration: every key, defaults and derived values\n"
                 "included, as a file that reads back to the same values.\n"
                 "\n"
                 "  --section.key=value  overrides the file, later ones win\n"
                 "  --print-defaults     every key with its default, to start a file from\n"
                 "  --explain KEY        what a key is, its default and its legal values;\n"
                 "                       section.key, or the key alone where one section has it\n"
                 "\n"
                 "Exit codes: 0 done, 1 configuration refused, 2 failed.\n");
}

/* A key by its name alone; *second is another one with the same name, or NULL. */
static const struct config_key *find_by_name(const char *name, const struct config_key **second)
{
    const struct config_key *found = NULL;

    *second = NULL;
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        if (strcmp(key->name, name) == 0) {
            *second = found != NULL ? key : NULL;
            found = found != NULL ? found : key;
        }
    }
    return found;
}

static const char *default_text(const struct config_key *key)
{
    if (key->required) {
        return "none: it has to be given";
    }
    if (key->fallback == NULL) {
        return "none";
    }
    return key->fallback[0] != '\0' ? key->fallback : "\"\"";
}

static enum status print_key(const struct config_key *key)
{
    char text[LEGAL_BYTES];

    (void)printf("%s.%s\n  %s\n", key->section, key->name, key->help);
    (void)printf("  default: %s\n", default_text(key));
    config_schema_legal(key, text, sizeof(text));
    (void)printf("  legal:   %s\n", text);
    config_schema_later(key, text, sizeof(text));
    if (key->later) {
        (void)printf("  not supported by this build yet: anything but the default\n");
    } else if (text[0] != '\0') {
        (void)printf("  not supported by this build yet: %s\n", text);
    }
    return STATUS_OK;
}

/* `word` is "section.key", "--section.key", or a key that one section alone has. */
static enum status explain(const char *word)
{
    const char *name = strncmp(word, "--", 2) == 0 ? word + 2 : word;
    const char *dot = strchr(name, '.');
    const struct config_key *second = NULL;
    const struct config_key *key = NULL;
    char section[NAME_BYTES];
    char hint[LEGAL_BYTES];

    (void)snprintf(section, sizeof(section), "%.*s",
                   (int)(dot != NULL && dot - name < NAME_BYTES ? dot - name : NAME_BYTES - 1),
                   name);
    key = dot != NULL ? config_schema_find(section, dot + 1) : find_by_name(name, &second);
    if (second != NULL) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir config --explain %s: found %s.%s and %s.%s; say which", word,
                           key->section, key->name, second->section, second->name);
    }
    if (key == NULL) {
        config_suggest(section, dot != NULL ? dot + 1 : NULL, hint, sizeof(hint));
        return status_fail(STATUS_ERR_REFUSED, "weir config --explain %s: unknown key; %s", word,
                           hint);
    }
    return print_key(key);
}

/* As comments of the file, so that it still reads back. */
static void print_notes(const struct config *config)
{
    char text[LEGAL_BYTES];

    for (int32_t i = 0; config_note(config, i, text, sizeof(text)); i++) {
        (void)printf("# %s\n", text);
    }
}

static enum status print_resolved(int argc, char **argv)
{
    struct config *config = NULL;
    enum status status = STATUS_OK;

    TRY(config_load(argv[1], argv + 2, argc - 2, &config));
    print_notes(config);
    status = config_write_yaml(config, stdout);
    config_destroy(&config);
    return status;
}

enum status command_config(int argc, char **argv)
{
    if (argc < 2) {
        print_help();
        return status_fail(STATUS_ERR_REFUSED, "weir config: which CONFIG?");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return STATUS_OK;
    }
    /* Both may also stand behind a CONFIG, which then is not read. */
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--print-defaults") == 0) {
            return config_write_defaults(stdout);
        }
        if (strncmp(argv[i], "--explain=", 10) == 0) {
            return explain(argv[i] + 10);
        }
        if (strcmp(argv[i], "--explain") == 0) {
            return i + 1 < argc
                       ? explain(argv[i + 1])
                       : status_fail(STATUS_ERR_REFUSED, "weir config --explain: which KEY? as in "
                                                         "--explain parallel.pp");
        }
    }
    return print_resolved(argc, argv);
}
