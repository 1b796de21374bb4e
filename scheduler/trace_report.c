#include "scheduler/trace_report.h"

#include "scheduler/trace_bubble.h"
#include "scheduler/trace_clock.h"
#include "scheduler/trace_path.h"
#include "scheduler/trace_summary.h"

static enum status print_table(const struct trace_run *run, FILE *out)
{
    struct trace_summary summary;
    enum status status = STATUS_OK;

    TRY(trace_summary_make(run, &summary));
    status = trace_summary_print(&summary, out);
    trace_summary_release(&summary);
    return status;
}

static enum status print_bubble(const struct trace_run *run, FILE *out)
{
    struct trace_bubble bubble;
    enum status status = STATUS_OK;

    TRY(trace_bubble_make(run, &bubble));
    status = trace_bubble_print(&bubble, out);
    trace_bubble_release(&bubble);
    return status;
}

static enum status print_path(const struct trace_run *run, FILE *out)
{
    struct trace_path path;
    struct trace_path_share share;
    enum status status = STATUS_OK;

    TRY(trace_path_make(run, &path));
    status = trace_path_share_make(run, &path, &share);
    if (status >= 0) {
        status = trace_path_print(&path, &share, out);
        trace_path_share_release(&share);
    }
    trace_path_release(&path);
    return status;
}

enum status trace_report_print(const struct trace_run *run, FILE *out)
{
    TRY(print_table(run, out));
    TRY(trace_clock_print(run, out));
    (void)fputs("\n", out);
    TRY(print_bubble(run, out));
    (void)fputs("\n", out);
    return print_path(run, out);
}
