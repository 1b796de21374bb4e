#include "scheduler/trace_chart.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/trace.h"
#include "scheduler/trace_chunk.h"
#include "scheduler/trace_event.h"

#define LABEL_COLUMNS 14 /* "stage 65535 |" and the bar behind the row */
#define LEAST_COLUMNS 16
#define MOST_COLUMNS  4096

/* kind, letter, colour of the background (of the 256 of terminals) */
#define LETTER_TABLE(X)    \
    X(F, 'F', 111)         \
    X(I, 'I', 215)         \
    X(W, 'W', 114)         \
    X(B, 'B', 210)         \
    X(OPTIMIZER, 'O', 141) \
    X(STEP, 'S', 250)      \
    X(REDUCE, 'R', 80)     \
    X(GATHER, 'G', 152)    \
    X(SYNC, 'E', 212)      \
    X(DATA, 'D', 180)      \
    X(EVALUATE, 'V', 183)

struct chart {
    const struct trace_run *run;
    FILE *out;
    int64_t begin_ns;
    int64_t end_ns;
    int32_t first_step;
    int32_t last_step;
    int32_t width;
    bool colours;
};

/* What takes most of a column. */
struct cell {
    const struct span *span;
    double most; /* of the column, taken by `span` */
    double busy; /* by all */
};

static char letter_of(uint32_t kind)
{
    switch (kind) {
#define X(name, letter, colour) \
    case TRACE_##name:          \
        return letter;
        LETTER_TABLE(X)
#undef X
    default:
        return '\0'; /* not drawn */
    }
}

static int colour_of(uint32_t kind)
{
    switch (kind) {
#define X(name, letter, colour) \
    case TRACE_##name:          \
        return colour;
        LETTER_TABLE(X)
#undef X
    default:
        return 0;
    }
}

/* Evaluation's own actions are hidden under its one bar. */
static bool is_drawn(const struct span *span)
{
    return letter_of(span->kind) != '\0' && span->args[TRACE_ARG_EVALUATION] != 1;
}

/* The window begins and ends with training. */
static bool measure(struct chart *chart)
{
    chart->begin_ns = INT64_MAX;
    chart->end_ns = INT64_MIN;
    chart->first_step = INT32_MAX;
    chart->last_step = -1;
    for (size_t index = 0; index < chart->run->count; index++) {
        const struct trace_rank *rank = &chart->run->ranks[index];

        for (size_t item = 0; rank->replica == 0 && item < rank->count; item++) {
            const struct span *span = &rank->spans[item];
            int32_t step = span->args[TRACE_ARG_STEP];

            if (is_drawn(span) && span->kind != TRACE_EVALUATE) {
                chart->begin_ns =
                    span->begin_ns < chart->begin_ns ? span->begin_ns : chart->begin_ns;
                chart->end_ns = span->end_ns > chart->end_ns ? span->end_ns : chart->end_ns;
                chart->first_step = step < chart->first_step ? step : chart->first_step;
                chart->last_step = step > chart->last_step ? step : chart->last_step;
            }
        }
    }
    return chart->begin_ns < chart->end_ns;
}

/* Column of a time, as a number with a fraction. */
static double column_of(const struct chart *chart, int64_t ns)
{
    return (double)(ns - chart->begin_ns) / (double)(chart->end_ns - chart->begin_ns) *
           chart->width;
}

static void fill_cells(const struct chart *chart, const struct span *span, struct cell *cells)
{
    double begin = column_of(chart, span->begin_ns);
    double end = column_of(chart, span->end_ns);
    int32_t first = begin > 0.0 ? (int32_t)(begin < chart->width ? begin : chart->width) : 0;

    for (int32_t column = first; column < chart->width && column < end; column++) {
        double left = begin > column ? begin : column;
        double right = end < column + 1.0 ? end : column + 1.0;

        cells[column].busy += right - left;
        if (right - left > cells[column].most) {
            cells[column].most = right - left;
            cells[column].span = span;
        }
    }
}

/* NULL where a column is mostly idle. */
static const struct span *shown_in(const struct cell *cell)
{
    return cell->busy < 0.5 ? NULL : cell->span;
}

/* One span over `width` columns: its letter, the micro-batch where it fits, a gap behind. */
static void put_span(const struct chart *chart, const struct trace_chunks *chunks,
                     const struct span *span, int32_t width)
{
    char text[MOST_COLUMNS + 1];
    char label[16];
    int label_bytes = 0;
    char letter = letter_of(span->kind);
    int32_t chunk = trace_chunks_of(chunks, span->args[TRACE_ARG_VIRTUAL_STAGE]);

    if (trace_kind_is_compute(span->kind) && chunk % 2 == 1) {
        letter = (char)(letter - 'A' + 'a');
    }
    label_bytes =
        trace_kind_is_compute(span->kind) && span->args[TRACE_ARG_MICROBATCH] >= 0
            ? snprintf(label, sizeof(label), "%c%d", letter, (int)span->args[TRACE_ARG_MICROBATCH])
            : snprintf(label, sizeof(label), "%c", letter);
    memset(text, '-', (size_t)width);
    text[width] = '\0';
    memcpy(text, label, label_bytes <= width ? (size_t)label_bytes : 1);
    if (label_bytes < width) {
        text[width - 1] = ' ';
    }
    if (chart->colours) {
        (void)fprintf(chart->out, "\033[30;48;5;%dm%s\033[0m", colour_of(span->kind), text);
    } else {
        (void)fputs(text, chart->out);
    }
}

static void put_cells(const struct chart *chart, const struct trace_chunks *chunks,
                      const struct cell *cells)
{
    int32_t column = 0;

    while (column < chart->width) {
        int32_t begin = column;

        while (column < chart->width && shown_in(&cells[column]) == shown_in(&cells[begin])) {
            column++;
        }
        if (shown_in(&cells[begin]) != NULL) {
            put_span(chart, chunks, shown_in(&cells[begin]), column - begin);
        } else {
            for (int32_t idle = begin; idle < column; idle++) {
                (void)fputc('.', chart->out);
            }
        }
    }
}

static enum status put_row(const struct chart *chart, const struct trace_rank *rank)
{
    struct trace_chunks chunks;
    struct cell *cells = NULL;

    TRY(trace_chunks_find(rank, &chunks));
    cells = calloc((size_t)chart->width, sizeof(*cells));
    if (cells == NULL) {
        trace_chunks_release(&chunks);
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %d columns", (int)chart->width);
    }
    for (size_t item = 0; item < rank->count; item++) {
        if (is_drawn(&rank->spans[item])) {
            fill_cells(chart, &rank->spans[item], cells);
        }
    }
    (void)fprintf(chart->out, "stage %-5d |", (int)rank->pipeline_rank);
    put_cells(chart, &chunks, cells);
    (void)fputs("|\n", chart->out);
    free(cells);
    trace_chunks_release(&chunks);
    return STATUS_OK;
}

/* What the columns stand for, below the rows. */
static void put_scale(const struct chart *chart)
{
    double ms = (double)(chart->end_ns - chart->begin_ns) / 1e6;

    (void)fprintf(chart->out, "%12s ", "");
    if (chart->first_step == chart->last_step) {
        (void)fprintf(chart->out, "step %d", (int)chart->first_step);
    } else {
        (void)fprintf(chart->out, "steps %d to %d", (int)chart->first_step, (int)chart->last_step);
    }
    (void)fprintf(chart->out, ", %.4g ms, %.3g ms a column; dots are idle\n", ms,
                  ms / chart->width);
}

enum status trace_chart_print(const struct trace_run *run, int32_t columns, bool colours, FILE *out)
{
    struct chart chart = {.run = run, .out = out, .colours = colours};

    chart.width = (columns < MOST_COLUMNS ? columns : MOST_COLUMNS) - LABEL_COLUMNS;
    if (chart.width < LEAST_COLUMNS || !measure(&chart)) {
        return STATUS_OK;
    }
    for (size_t index = 0; index < run->count; index++) {
        const struct trace_rank *rank = &run->ranks[index];

        TRY(rank->replica == 0 ? put_row(&chart, rank) : STATUS_OK);
    }
    put_scale(&chart);
    return ferror(out) != 0 ? status_fail(STATUS_ERR_IO, "drawing a run failed") : STATUS_OK;
}
