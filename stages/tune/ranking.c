#include "stages/tune/ranking.h"

#include <errno.h>
#include <string.h>

#include "stages/memory.h"

#define MOST_LINES 10

static void print_time(double seconds, const char *mark, FILE *out)
{
    if (seconds > 0.0) {
        (void)fprintf(out, " %9.1f%s", seconds * 1e3, mark);
    } else {
        (void)fprintf(out, " %9s%*s", "-", (int)strlen(mark), "");
    }
}

static double gap_of(const struct tune_contender *contender)
{
    double gap = contender->bound_s > 0.0 ? contender->bare_s / contender->bound_s - 1.0 : 0.0;

    return gap > 0.0 ? gap : 0.0;
}

static void print_line(const struct tune_field *field, size_t place, const struct memory_unit *unit,
                       FILE *out)
{
    const struct tune_contender *contender = &field->all[place];
    char text[TUNE_CANDIDATE_TEXT_BYTES];

    tune_candidate_print(&contender->candidate, text, sizeof(text));
    (void)fprintf(out, "%4zu", place + 1);
    print_time(contender->measured_median_s, "", out);
    print_time(contender->quality == TUNE_UNKNOWN ? 0.0 : contender->step_s,
               contender->quality == TUNE_MEASURED       ? " "
               : contender->quality == TUNE_INTERPOLATED ? "~"
                                                         : "?",
               out);
    (void)fprintf(out, " %4.0f%%", contender->spread * 100.0);
    print_time(contender->bound_s, "", out);
    (void)fprintf(out, " %5.1f%% %6.1f%%", gap_of(contender) * 100.0, contender->bubble * 100.0);
    (void)fprintf(out, " %8.1f  %s%s\n", (double)contender->need_bytes / unit->bytes, text,
                  contender->candidate.configured ? "  (as configured)" : "");
}

static void print_notes(const struct tune_result *result, const struct memory_unit *unit, FILE *out)
{
    const struct tune_field *field = &result->field;

    (void)fprintf(out,
                  "times are of a step, in ms, medians; predicted: ~ from costs between two "
                  "measured micro-batch sizes, ? from\n"
                  "costs that were not measured; +-: spread of the costs; bound: no order of these "
                  "actions has a shorter plan, and gap\n"
                  "is what this one has more; memory is of the fullest rank, in %s\n",
                  unit->name);
    (void)fprintf(out, "%zu candidates, ", field->candidates);
    if (field->limit_bytes > 0) {
        (void)fprintf(out, "%zu need more than %.1f %s a rank (%s), ", field->too_large,
                      (double)field->limit_bytes / unit->bytes, unit->name,
                      field->limit_given ? "train.memory_limit" : "this host's memory");
    }
    (void)fprintf(out, "%zu without costs that were measured; %d jobs, %.0f s\n",
                  field->count - field->ranked, result->jobs, result->seconds);
    if (result->out_of_time) {
        (void)fprintf(out, "the time was up before everything was measured: --time-limit\n");
    }
}

enum status tune_ranking_print(const struct tune_result *result, FILE *out)
{
    const struct tune_field *field = &result->field;
    size_t own = tune_field_configured(field);
    struct memory_unit unit = memory_unit_for(field->all[0].need_bytes);

    (void)fprintf(out, "%4s %9s %10s %5s %9s %6s %7s %8s  %s\n", "#", "measured", "predicted ",
                  "+-", "bound", "gap", "bubble", "memory", "layout, micro-batches x size");
    for (size_t i = 0; i < field->count; i++) {
        bool first = i < MOST_LINES && i < field->ranked;

        if (first || field->all[i].measured_steps > 0 || i == own) {
            print_line(field, i, &unit, out);
        }
    }
    print_notes(result, &unit, out);
    if (fflush(out) != 0 || ferror(out) != 0) {
        return status_fail(STATUS_ERR_IO, "weir tune: writing the table failed: %s",
                           strerror(errno));
    }
    return STATUS_OK;
}

void tune_ranking_gain(const struct tune_field *field, const struct tune_contender *winner,
                       char *text)
{
    size_t own = tune_field_configured(field);
    double before = own != SIZE_MAX ? field->all[own].measured_median_s : 0.0;
    double now = winner->measured_median_s;

    text[0] = '\0';
    if (winner->candidate.configured) {
        (void)snprintf(text, TUNE_RANKING_GAIN_BYTES, "as configured");
    } else if (before > 0.0 && now > 0.0) {
        (void)snprintf(text, TUNE_RANKING_GAIN_BYTES, "%.1f %% %s than as configured, %.1f ms",
                       (now < before ? 1.0 - now / before : now / before - 1.0) * 100.0,
                       now < before ? "less" : "more", before * 1e3);
    }
}
