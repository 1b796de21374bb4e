#include "base/env.h"

#include <stdlib.h>

struct variable {
    const char *name;
    const char *fallback;
    const char *help;
};

static const struct variable variables[] = {
#define X(id, name_text, fallback_text, help_text) \
    [ENV_##id] = {.name = (name_text), .fallback = (fallback_text), .help = (help_text)},
    ENV_TABLE(X)
#undef X
};

const char *env_text(enum env_id id)
{
    const char *value = getenv(variables[id].name);

    return value != NULL && value[0] != '\0' ? value : variables[id].fallback;
}

bool env_is_set(enum env_id id)
{
    const char *value = getenv(variables[id].name);

    return value != NULL && value[0] != '\0';
}

const char *env_name(enum env_id id)
{
    return variables[id].name;
}

void env_print_help(FILE *out)
{
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (variables[i].help[0] != '\0') {
            (void)fprintf(out, "  %-12s %s%s%s%s\n", variables[i].name, variables[i].help,
                          variables[i].fallback[0] != '\0' ? " [" : "", variables[i].fallback,
                          variables[i].fallback[0] != '\0' ? "]" : "");
        }
    }
}
