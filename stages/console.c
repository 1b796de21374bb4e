#include "stages/console.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define BAR_CELLS 40

void console_init(struct console *console, FILE *out)
{
    *console = (struct console){.out = out, .terminal = isatty(fileno(out)) == 1};
}

void console_line_begin(struct console_line *line)
{
    line->text[0] = '\0';
    line->used = 0;
}

void console_line_add(struct console_line *line, const char *format, ...)
{
    size_t room = sizeof(line->text) - line->used;
    int added = 0;
    va_list args;

    if (line->used > 0) {
        added = snprintf(line->text + line->used, room, " | ");
        line->used += (size_t)added < room ? (size_t)added : room - 1;
        room = sizeof(line->text) - line->used;
    }
    va_start(args, format);
    added = vsnprintf(line->text + line->used, room, format, args);
    va_end(args);
    if (added > 0) {
        line->used += (size_t)added < room ? (size_t)added : room - 1;
    }
}

/* Three digits and a letter, as people read sizes; what would be printed as 1000 has the next
 * letter. */
static double scaled(double value, const char **letter_out)
{
    static const char *const letters[] = {"", "k", "M", "G", "T", "P"};
    size_t step = 0;

    while (value >= 999.5 && step + 1 < sizeof(letters) / sizeof(letters[0])) {
        value /= 1000.0;
        step++;
    }
    *letter_out = letters[step];
    return value;
}

void console_line_add_rate(struct console_line *line, double rate, const char *unit)
{
    const char *letter = "";
    double value = scaled(rate, &letter);

    console_line_add(line, "%.*f%s %s", value < 99.95 ? 1 : 0, value, letter, unit);
}

void console_line_add_bytes(struct console_line *line, const char *label, int64_t bytes)
{
    const char *letter = "";
    double value = scaled((double)bytes, &letter);

    console_line_add(line, "%s%.*f%s", label, value < 99.95 ? 1 : 0, value, letter);
}

void console_line_add_time(struct console_line *line, const char *label, double seconds)
{
    int64_t whole = (int64_t)(seconds + 0.5);

    console_line_add(line, "%s%lld:%02lld:%02lld", label, (long long)(whole / 3600),
                     (long long)(whole / 60 % 60), (long long)(whole % 60));
}

void console_print(struct console *console, const struct console_line *line)
{
    console_end(console);
    (void)fprintf(console->out, "%s\n", line->text);
    (void)fflush(console->out);
}

void console_bar(struct console *console, int64_t done, int64_t all)
{
    char cells[BAR_CELLS + 1];
    int full = all > 0 ? (int)(done * BAR_CELLS / all) : 0;

    if (!console->terminal) {
        return;
    }
    memset(cells, '.', BAR_CELLS);
    memset(cells, '#', (size_t)(full < BAR_CELLS ? full : BAR_CELLS));
    cells[BAR_CELLS] = '\0';
    (void)fprintf(console->out, "\r[%s] %lld/%lld", cells, (long long)done, (long long)all);
    (void)fflush(console->out);
    console->drawn = true;
}

void console_end(struct console *console)
{
    if (console->drawn) {
        (void)fprintf(console->out, "\r\033[K");
        (void)fflush(console->out);
        console->drawn = false;
    }
}
