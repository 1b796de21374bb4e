/*
 * config_schema -- every key of the configuration, in one table.
 *
 * A key's section, name, type, default, legal values, help and place in struct config stand in
 * config_schema.c and nowhere else; reading, checking, printing and explaining walk this table in
 * its order. A key whose feature this build does not have is in it as well: only its default is
 * legal, so that a configuration made for it is refused by name and not misread.
 */
#ifndef STAGES_CONFIG_SCHEMA_H
#define STAGES_CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum config_type {
    CONFIG_INT,     /* int64_t */
    CONFIG_BYTES,   /* int64_t; K, M, G and T are powers of 1024 */
    CONFIG_REAL,    /* double */
    CONFIG_BOOL,    /* bool */
    CONFIG_CHOICE,  /* an enum */
    CONFIG_CHOICES, /* an enum[CONFIG_STAGES_MOST]: one for all, or a list, then CONFIG_DERIVE */
    CONFIG_TEXT,    /* char[CONFIG_TEXT_BYTES] */
    CONFIG_COUNTS,  /* int64_t[CONFIG_STAGES_MOST], CONFIG_DERIVE after the last one given */
    CONFIG_SHARES,  /* double[3] */
    CONFIG_NAMES    /* char[CONFIG_NAMES_MOST][CONFIG_NAME_BYTES]: keys that resuming asks for */
};

/* In an int64_t or double field between parsing and config_check(): follows from other keys. */
#define CONFIG_DERIVE (-1)

/* `offset` of a key that no field of struct config stands for. */
#define CONFIG_NO_FIELD SIZE_MAX

/* `value` of a choice that is known but not in this build. */
#define CONFIG_LATER (-1)

/* What a resumed run may do with a value that differs from that of its checkpoint. */
enum config_change {
    CHANGE_TAKEN,  /* said and used */
    CHANGE_ASKED,  /* refused unless checkpoint.allow_change names the key */
    CHANGE_LAYOUT, /* refused in this build: which rank holds what of the model and its optimizer */
    CHANGE_REFUSED /* the weights would not fit, or would mean something else */
};

struct config_choice {
    const char *text; /* NULL ends the list */
    int value;
};

struct config_key {
    const char *section;
    const char *name;
    size_t offset;        /* into struct config */
    const char *fallback; /* the default as a user would write it; NULL: none */
    int64_t least;        /* INT, BYTES */
    int64_t most;
    double low; /* REAL: low <= x <= high, or low < x and x < high */
    double high;
    const char *word; /* INT, BYTES, REAL, COUNTS: a word that is legal beside numbers; or NULL */
    int64_t word_value;
    const struct config_choice *choices; /* CHOICE, CHOICES */
    const char *prefix; /* CHOICE: legal too, with a text behind it, as file:PATH; or NULL */
    const char *rest;   /* what the text is, for messages: PATH */
    size_t rest_offset; /* into struct config: char[CONFIG_TEXT_BYTES]; "" for other choices */
    const char *help;
    int prefix_value; /* of a choice with a prefix */
    enum config_type type;
    enum config_change change;
    bool above_low;
    bool below_high;
    bool required; /* has to be given */
    bool later;    /* only the default is legal in this build */
};

size_t config_schema_count(void);

/* The keys in the order of the table; sections lie together. */
const struct config_key *config_schema_at(size_t index);

/* NULL where there is none. */
const struct config_key *config_schema_find(const char *section, const char *name);

/* Place of `key` in the table. */
size_t config_schema_index(const struct config_key *key);

bool config_schema_has_section(const char *section);

/* What may stand behind the key, into `legal`: "an integer from 1 to 64, or auto". */
void config_schema_legal(const struct config_key *key, char *legal, size_t legal_bytes);

/* The choices of the key that are known but not in this build, into `later`; "" for none. */
void config_schema_later(const struct config_key *key, char *later, size_t later_bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_SCHEMA_H */
