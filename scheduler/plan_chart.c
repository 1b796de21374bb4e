#include "scheduler/plan_chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_COLUMNS     13 /* "rank 65535 |" and the bar behind the row */
#define MOST_COLUMNS      4096
#define COLUMNS_A_CHARTED 4 /* of the shortest action; wider shows nothing more */

static int32_t column(double time, double scale)
{
    return (int32_t)lround(time * scale);
}

static double shortest_action(const struct plan *plan, const struct simulation *simulation)
{
    double shortest = simulation->makespan;
    int32_t rank;
    int32_t i;

    for (rank = 0; rank < plan->shape.ranks; rank++) {
        for (i = 0; i < plan->lines[rank].count; i++) {
            double span = simulation->end[rank][i] - simulation->begin[rank][i];

            if (action_is_compute((enum action_kind)plan->lines[rank].actions[i].kind) &&
                span < shortest) {
                shortest = span;
            }
        }
    }
    return shortest;
}

/* Writes kind and micro-batch where they fit, with a gap behind them where that fits too, else the
 * kind alone. */
static void draw_action(char *row, int32_t begin, int32_t end, const struct action *action)
{
    char text[32];
    char label[32];
    int32_t width = end - begin;
    int bytes = 0;

    /* The text of the action without its virtual stage. */
    (void)action_print(action, text, sizeof(text));
    bytes = snprintf(label, sizeof(label), "%s", text + strspn(text, "0123456789"));
    if (action->chunk % 2 == 1) {
        label[0] = (char)(label[0] - 'A' + 'a'); /* a kind is one capital letter */
    }
    memset(row + begin, '-', (size_t)width);
    memcpy(row + begin, label, bytes <= width ? (size_t)bytes : 1);
    if (bytes < width) {
        row[end - 1] = ' ';
    }
}

static void draw_row(const struct plan *plan, const struct simulation *simulation, int32_t rank,
                     double scale, char *row)
{
    const struct plan_line *line = &plan->lines[rank];
    int32_t i;

    for (i = 0; i < line->count; i++) {
        const struct action *action = &line->actions[i];
        int32_t begin = column(simulation->begin[rank][i], scale);
        int32_t end = column(simulation->end[rank][i], scale);

        if (action_is_compute((enum action_kind)action->kind) && end > begin) {
            draw_action(row, begin, end, action);
        }
    }
}

enum status plan_chart_print(const struct plan *lowered, const struct simulation *simulation,
                             const char *prefix, int32_t columns, FILE *out, bool *drawn_out)
{
    double shortest = shortest_action(lowered, simulation);
    int32_t room =
        (columns < MOST_COLUMNS ? columns : MOST_COLUMNS) - LABEL_COLUMNS - (int32_t)strlen(prefix);
    char row[MOST_COLUMNS + 1];
    int32_t width;
    double scale;
    int32_t rank;

    *drawn_out = false;
    if (room < 1 || simulation->makespan <= 0.0 || shortest <= 0.0) {
        return STATUS_OK;
    }
    scale = (double)room / simulation->makespan;
    if (scale * shortest > COLUMNS_A_CHARTED) {
        scale = COLUMNS_A_CHARTED / shortest;
    } else if (scale * shortest > 1.0) {
        /* A whole number of columns for the shortest keeps equal actions equally wide. */
        scale = floor(scale * shortest) / shortest;
    }
    if (scale * shortest < 1.0) {
        return STATUS_OK;
    }
    width = column(simulation->makespan, scale);
    for (rank = 0; rank < lowered->shape.ranks; rank++) {
        memset(row, '.', (size_t)width);
        row[width] = '\0';
        draw_row(lowered, simulation, rank, scale, row);
        (void)fprintf(out, "%srank %-5d |%s|\n", prefix, rank, row);
    }
    *drawn_out = true;
    return ferror(out) != 0 ? status_fail(STATUS_ERR_IO, "drawing a plan failed") : STATUS_OK;
}
