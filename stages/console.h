/*
 * console -- lines for people on stdout, and a progress bar below them on a terminal.
 *
 * A line is built from fields, joined by " | ", and written whole with one call, so that nothing
 * else comes between. The bar is drawn only on a terminal and erased before each line.
 */
#ifndef STAGES_CONSOLE_H
#define STAGES_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONSOLE_LINE_BYTES 512

struct console {
    FILE *out;     /* borrows */
    bool terminal; /* draws the bar */
    bool drawn;    /* a bar stands on the last line */
};

struct console_line {
    char text[CONSOLE_LINE_BYTES];
    size_t used;
};

void console_init(struct console *console, FILE *out);

void console_line_begin(struct console_line *line);
void console_line_add(struct console_line *line, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* "79.4k tok/s", "1.2G tok/s". */
void console_line_add_rate(struct console_line *line, double rate, const char *unit);
/* `label` then "1.2G", "340M". */
void console_line_add_bytes(struct console_line *line, const char *label, int64_t bytes);
/* `label` then h:mm:ss. */
void console_line_add_time(struct console_line *line, const char *label, double seconds);

void console_print(struct console *console, const struct console_line *line);

void console_bar(struct console *console, int64_t done, int64_t all);

/* Erases the bar. */
void console_end(struct console *console);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONSOLE_H */
