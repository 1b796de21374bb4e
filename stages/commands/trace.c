#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "scheduler/timeline.h"
#include "scheduler/trace_merge.h"
#include "scheduler/trace_read.h"
#include "scheduler/trace_summary.h"
#include "stages/commands/command.h"

#define STEPS_DRAWN 2 /* without --steps: enough to see one step meet the next */

enum trace_option {
    OPTION_JSON = 256,
    OPTION_SVG,
    OPTION_SUMMARY,
    OPTION_STEPS,
    OPTION_HELP
};

static const struct option long_options[] = {{"json", required_argument, NULL, OPTION_JSON},
                                             {"svg", required_argument, NULL, OPTION_SVG},
                                             {"summary", no_argument, NULL, OPTION_SUMMARY},
                                             {"steps", required_argument, NULL, OPTION_STEPS},
                                             {"help", no_argument, NULL, OPTION_HELP},
                                             {NULL, 0, NULL, 0}};

static const char help_text[] =
    "usage: weir trace RUN [options]\n"
    "\n"
    "Shows where the time of a traced run went (a run with --trace.enabled=true). RUN is its run\n"
    "directory. Without --json, --svg and --summary it does all three: RUN/trace/trace.json,\n"
    "RUN/timeline.svg and the table.\n"
    "\n"
    "  --json FILE   all ranks in one Chrome trace, for Perfetto and chrome://tracing\n"
    "  --svg FILE    the timeline as a picture: the last two steps, or those of --steps\n"
    "  --summary     busy, bubble and waits of each rank\n"
    "  --steps A:B   only steps A to B, both included\n"
    "  --help        this text\n";

/* What the command line asks for. */
struct request {
    const char *run_dir;
    const char *json; /* borrows; NULL = not wanted */
    const char *svg;  /* borrows; NULL = not wanted */
    bool summary;
    bool help;
    bool has_steps;
    int32_t first_step;
    int32_t last_step;
    char json_path[PATH_MAX]; /* of the default */
    char svg_path[PATH_MAX];
};

static bool read_step(const char **text, int32_t *step_out)
{
    char *end = NULL;
    long value = 0;

    errno = 0;
    value = strtol(*text, &end, 10);
    if (end == *text || errno != 0 || value < 0 || value > INT32_MAX) {
        return false;
    }
    *text = end;
    *step_out = (int32_t)value;
    return true;
}

static enum status parse_steps(const char *text, struct request *request)
{
    const char *at = text;

    if (!read_step(&at, &request->first_step) || *at++ != ':' ||
        !read_step(&at, &request->last_step) || *at != '\0' ||
        request->first_step > request->last_step) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir trace: --steps is \"%s\", expected A:B with A at most B", text);
    }
    request->has_steps = true;
    return STATUS_OK;
}

static enum status take_option(int option, char **argv, struct request *request)
{
    switch (option) {
    case OPTION_JSON:
        request->json = optarg;
        return STATUS_OK;
    case OPTION_SVG:
        request->svg = optarg;
        return STATUS_OK;
    case OPTION_SUMMARY:
        request->summary = true;
        return STATUS_OK;
    case OPTION_STEPS:
        return parse_steps(optarg, request);
    case OPTION_HELP:
        request->help = true;
        return STATUS_OK;
    case ':':
        return status_fail(STATUS_ERR_REFUSED, "weir trace: %s needs a value", argv[optind - 1]);
    default:
        return status_fail(STATUS_ERR_REFUSED,
                           "weir trace: unknown option %s; weir trace --help lists them",
                           argv[optind - 1]);
    }
}

/* All three results at their places in the run directory. */
static enum status choose_all(struct request *request)
{
    const int json_bytes = snprintf(request->json_path, sizeof(request->json_path),
                                    "%s/trace/trace.json", request->run_dir);
    const int svg_bytes =
        snprintf(request->svg_path, sizeof(request->svg_path), "%s/timeline.svg", request->run_dir);

    if (json_bytes >= PATH_MAX || svg_bytes >= PATH_MAX) {
        return status_fail(STATUS_ERR_REFUSED, "weir trace: the path of the run is too long");
    }
    request->json = request->json_path;
    request->svg = request->svg_path;
    request->summary = true;
    return STATUS_OK;
}

static enum status parse_request(int argc, char **argv, struct request *request)
{
    int option = 0;

    optind = 0; /* another command of this process may have parsed before */
    opterr = 0;
    while (!request->help && (option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
        TRY(take_option(option, argv, request));
    }
    if (request->help) {
        return STATUS_OK;
    }
    if (argc - optind != 1) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir trace: expected one run directory, found %d; weir trace --help",
                           argc - optind);
    }
    request->run_dir = argv[optind];
    if (request->json == NULL && request->svg == NULL && !request->summary) {
        return choose_all(request);
    }
    return STATUS_OK;
}

static enum status print_summary(const struct trace_run *run, const struct request *request)
{
    struct trace_summary summary;
    enum status status = STATUS_OK;

    if (!request->summary) {
        return STATUS_OK;
    }
    TRY(trace_summary_make(run, &summary));
    status = trace_summary_print(&summary, stdout);
    trace_summary_release(&summary);
    return status;
}

/* The steps that the summary and the picture cover: those asked for, or all that every rank has
 * whole. */
static enum status choose_steps(const struct trace_run *run, struct request *request)
{
    int32_t first = 0;
    int32_t last = 0;

    TRY(trace_run_steps(run, &first, &last));
    if (!request->has_steps) {
        request->first_step = first;
        request->last_step = last;
    }
    if (request->first_step > last || request->last_step < first) {
        return status_fail(
            STATUS_ERR_REFUSED, "weir trace: --steps %d:%d, but the trace holds steps %d to %d",
            (int)request->first_step, (int)request->last_step, (int)first, (int)last);
    }
    return STATUS_OK;
}

static enum status merge(const struct trace_run *run, const struct request *request)
{
    if (request->json == NULL) {
        return STATUS_OK;
    }
    TRY(trace_merge_write(run, request->json));
    log_info("wrote %s", request->json);
    return STATUS_OK;
}

/* Forgets the steps that the picture does not show. */
static enum status draw(struct trace_run *run, const struct request *request)
{
    int32_t first = request->last_step - STEPS_DRAWN + 1;

    if (request->svg == NULL) {
        return STATUS_OK;
    }
    if (!request->has_steps && first > request->first_step) {
        trace_run_keep(run, first, request->last_step);
    }
    TRY(timeline_write(run, NULL, request->svg));
    log_info("wrote %s", request->svg);
    return STATUS_OK;
}

/* Without --steps the merged trace holds all that was written, whole steps or not; with it, all
 * that was written of those steps. */
static enum status show(struct trace_run *run, struct request *request)
{
    if (request->has_steps) {
        TRY(choose_steps(run, request));
        trace_run_keep(run, request->first_step, request->last_step);
    }
    TRY(merge(run, request));
    if (request->svg == NULL && !request->summary) {
        return STATUS_OK;
    }
    TRY(choose_steps(run, request));
    trace_run_keep(run, request->first_step, request->last_step);
    TRY(print_summary(run, request));
    return draw(run, request);
}

enum status command_trace(int argc, char **argv)
{
    struct request request = {.run_dir = NULL};
    struct trace_run run;
    enum status status = STATUS_OK;

    TRY(parse_request(argc, argv, &request));
    if (request.help) {
        (void)fputs(help_text, stdout);
        return STATUS_OK;
    }
    TRY(trace_read(request.run_dir, &run));
    status = show(&run, &request);
    trace_run_release(&run);
    return status;
}
