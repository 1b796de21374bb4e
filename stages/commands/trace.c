#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "scheduler/costs_file.h"
#include "scheduler/prove.h"
#include "scheduler/timeline.h"
#include "scheduler/trace_chart.h"
#include "scheduler/trace_clock.h"
#include "scheduler/trace_explain.h"
#include "scheduler/trace_html.h"
#include "scheduler/trace_json.h"
#include "scheduler/trace_merge.h"
#include "scheduler/trace_perfetto.h"
#include "scheduler/trace_read.h"
#include "scheduler/trace_report.h"
#include "stages/calibrate.h"
#include "stages/commands/command.h"
#include "stages/config.h"

#define STEPS_DRAWN   2   /* without --steps: enough to see one step meet the next */
#define STEPS_CHARTED 1   /* in characters, which are wide */
#define PIPE_COLUMNS  100 /* where stdout is no terminal */

/* The files that are written; the first have all steps. */
enum trace_file {
    FILE_JSON,
    FILE_PERFETTO,
    FILE_HTML,
    FILE_SVG,
    FILES
};

enum trace_option {
    OPTION_JSON = 256, /* the files in their order */
    OPTION_PERFETTO,
    OPTION_HTML,
    OPTION_SVG,
    OPTION_SUMMARY,
    OPTION_EXPLAIN,
    OPTION_COSTS,
    OPTION_TEXT,
    OPTION_FORMAT,
    OPTION_STEPS,
    OPTION_HELP
};

static const struct option long_options[] = {{"json", required_argument, NULL, OPTION_JSON},
                                             {"perfetto", required_argument, NULL, OPTION_PERFETTO},
                                             {"html", required_argument, NULL, OPTION_HTML},
                                             {"svg", required_argument, NULL, OPTION_SVG},
                                             {"summary", no_argument, NULL, OPTION_SUMMARY},
                                             {"explain", no_argument, NULL, OPTION_EXPLAIN},
                                             {"costs", required_argument, NULL, OPTION_COSTS},
                                             {"text", no_argument, NULL, OPTION_TEXT},
                                             {"format", required_argument, NULL, OPTION_FORMAT},
                                             {"steps", required_argument, NULL, OPTION_STEPS},
                                             {"help", no_argument, NULL, OPTION_HELP},
                                             {NULL, 0, NULL, 0}};

static const char help_text[] =
    "usage: weir trace RUN [options]\n"
    "\n"
    "Shows where the time of a traced run went (a run with --trace.enabled=true). RUN is its run\n"
    "directory. With none of the options but --steps it writes RUN/trace/trace.json,\n"
    "RUN/timeline.svg, RUN/timeline.html and RUN/costs.json, and prints the summary and the "
    "picture in text.\n"
    "\n"
    "  --html FILE      the timeline as a page for a browser: zoom, tooltips, memory, critical "
    "path\n"
    "  --svg FILE       the timeline as a picture: the last two steps, or those of --steps\n"
    "  --text           the timeline in characters: the last step, or those of --steps\n"
    "  --json FILE      all ranks in one Chrome trace, for Perfetto and chrome://tracing\n"
    "  --perfetto FILE  the same as Perfetto's binary trace, smaller and quicker to load\n"
    "  --summary        busy, bubble and waits of each rank, the bubble by cause, the critical "
    "path\n"
    "  --explain        why the run took longer than its plan, in a few sentences\n"
    "  --costs FILE     what each kind of action took, for weir plan --costs\n"
    "  --format json    the numbers of --summary, and with --explain of that too, as one object\n"
    "                   instead of text (scheduler/trace_json.h names them)\n"
    "  --steps A:B      only steps A to B, both included\n"
    "  --help           this text\n";

/* What the command line asks for. */
struct request {
    const char *run_dir;
    const char *files[FILES]; /* borrow; NULL = not wanted */
    const char *costs;        /* borrows; NULL = not wanted */
    bool summary;
    bool explain;
    bool text;
    bool json; /* numbers instead of texts */
    bool help;
    bool has_steps;
    int32_t first_step;
    int32_t last_step;
    char default_paths[FILES][PATH_MAX];
    char default_costs[FILE_PATH_BYTES];
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

static enum status parse_format(const char *text, struct request *request)
{
    if (strcmp(text, "text") != 0 && strcmp(text, "json") != 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir trace: --format is \"%s\", expected text or json", text);
    }
    request->json = strcmp(text, "json") == 0;
    return STATUS_OK;
}

static enum status take_option(int option, char **argv, struct request *request)
{
    switch (option) {
    case OPTION_JSON:
    case OPTION_PERFETTO:
    case OPTION_HTML:
    case OPTION_SVG:
        request->files[option - OPTION_JSON] = optarg;
        return STATUS_OK;
    case OPTION_SUMMARY:
        request->summary = true;
        return STATUS_OK;
    case OPTION_EXPLAIN:
        request->explain = true;
        return STATUS_OK;
    case OPTION_COSTS:
        request->costs = optarg;
        return STATUS_OK;
    case OPTION_TEXT:
        request->text = true;
        return STATUS_OK;
    case OPTION_FORMAT:
        return parse_format(optarg, request);
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

static bool asks_for_nothing(const struct request *request)
{
    bool nothing = !request->summary && !request->explain && !request->text && !request->json &&
                   request->costs == NULL;

    for (int file = 0; file < FILES; file++) {
        nothing = nothing && request->files[file] == NULL;
    }
    return nothing;
}

/* A trace that came without its configuration has a timeline, but nobody knows its plan. */
static enum status choose_costs(struct request *request)
{
    char config[FILE_PATH_BYTES];

    TRY(folder_path(request->run_dir, "config.yaml", config));
    TRY(folder_path(request->run_dir, "costs.json", request->default_costs));
    request->costs = access(config, R_OK) == 0 ? request->default_costs : NULL;
    return STATUS_OK;
}

/* What is shown where nothing was asked for, at its places in the run directory. */
static enum status choose_defaults(struct request *request)
{
    static const char *const names[FILES] = {[FILE_JSON] = "trace/trace.json",
                                             [FILE_HTML] = "timeline.html",
                                             [FILE_SVG] = "timeline.svg"};

    for (int file = 0; file < FILES; file++) {
        if (names[file] == NULL) {
            continue;
        }
        if (snprintf(request->default_paths[file], PATH_MAX, "%s/%s", request->run_dir,
                     names[file]) >= PATH_MAX) {
            return status_fail(STATUS_ERR_REFUSED, "weir trace: the path of the run is too long");
        }
        request->files[file] = request->default_paths[file];
    }
    request->summary = true;
    request->text = true;
    return choose_costs(request);
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
    if (request->json && request->text) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir trace: --format json prints one object, and --text a picture "
                           "behind it; ask for one of them");
    }
    request->run_dir = argv[optind];
    return asks_for_nothing(request) ? choose_defaults(request) : STATUS_OK;
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

/* The plan that the run's configuration asks for, or the orders that it was given. */
static enum status load_plan(const char *run_dir, struct plan **lowered_out)
{
    struct config *config = NULL;
    struct plan_shape shape;
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/config.yaml", run_dir) >= (int)sizeof(path)) {
        return status_fail(STATUS_ERR_REFUSED, "weir trace: the path of the run is too long");
    }
    TRY(config_load(path, NULL, 0, &config));
    config_plan_shape(config, &shape);
    config_destroy(&config);
    (void)snprintf(path, sizeof(path), "%s/plan.csv", run_dir);
    return plan_prove(&shape, path, lowered_out);
}

static enum status explain(const struct trace_run *run, const struct request *request,
                           struct trace_explanation *explanation_out)
{
    struct plan *lowered = NULL;
    enum status status = STATUS_OK;

    TRY(load_plan(request->run_dir, &lowered));
    status = trace_explain_make(run, lowered, explanation_out);
    plan_destroy(&lowered);
    return status;
}

static enum status write_file(const struct trace_run *run, const struct request *request,
                              enum trace_file file)
{
    const char *path = request->files[file];

    if (path == NULL) {
        return STATUS_OK;
    }
    switch (file) {
    case FILE_JSON:
        TRY(trace_merge_write(run, path));
        break;
    case FILE_PERFETTO:
        TRY(trace_perfetto_write(run, path));
        break;
    case FILE_HTML:
        TRY(trace_html_write(run, path));
        break;
    default:
        TRY(timeline_write(run, NULL, path));
        break;
    }
    log_info("wrote %s", path);
    return STATUS_OK;
}

/* Forgets all but the last steps, where none were chosen. */
static void keep_last(struct trace_run *run, const struct request *request, int32_t count)
{
    if (!request->has_steps && request->last_step - count + 1 > request->first_step) {
        trace_run_keep(run, request->last_step - count + 1, request->last_step);
    }
}

static enum status print_chart(const struct trace_run *run)
{
    bool terminal = isatty(STDOUT_FILENO) != 0;
    struct winsize size;
    int columns = PIPE_COLUMNS;

    if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        columns = size.ws_col;
    }
    return trace_chart_print(run, columns, terminal, stdout);
}

/* Without --steps the merged traces hold all that was written, whole steps or not; with it, all
 * that was written of those steps. */
static enum status show_merged(struct trace_run *run, struct request *request)
{
    if (request->has_steps) {
        TRY(choose_steps(run, request));
        trace_run_keep(run, request->first_step, request->last_step);
    }
    TRY(write_file(run, request, FILE_JSON));
    return write_file(run, request, FILE_PERFETTO);
}

/* Each part of the answer stands apart from the one before. */
static void begin_part(bool *begun)
{
    (void)fputs(*begun ? "\n" : "", stdout);
    *begun = true;
}

static enum status print_texts(const struct trace_run *run, const struct request *request,
                               bool *begun)
{
    struct trace_explanation explanation;

    if (request->explain) {
        TRY(explain(run, request, &explanation));
    }
    if (request->json) {
        return trace_json_print(run, request->explain ? &explanation : NULL, stdout);
    }
    if (request->summary) {
        begin_part(begun);
        TRY(trace_report_print(run, stdout));
    }
    if (request->explain) {
        begin_part(begun);
        TRY(trace_explain_print(&explanation, stdout));
    }
    return STATUS_OK;
}

/* The pictures show fewer steps than the texts count, where none were chosen. */
static enum status draw_pictures(struct trace_run *run, const struct request *request, bool *begun)
{
    keep_last(run, request, STEPS_DRAWN);
    TRY(write_file(run, request, FILE_SVG));
    keep_last(run, request, STEPS_CHARTED);
    if (!request->text) {
        return STATUS_OK;
    }
    begin_part(begun);
    TRY(print_chart(run));
    return request->summary ? STATUS_OK : trace_clock_print(run, stdout); /* which says it, too */
}

static enum status show(struct trace_run *run, struct request *request)
{
    bool begun = false;

    TRY(show_merged(run, request));
    if (request->files[FILE_HTML] == NULL && request->files[FILE_SVG] == NULL &&
        !request->summary && !request->explain && !request->text && !request->json) {
        return STATUS_OK;
    }
    TRY(choose_steps(run, request));
    trace_run_keep(run, request->first_step, request->last_step);
    TRY(write_file(run, request, FILE_HTML));
    TRY(print_texts(run, request, &begun));
    return draw_pictures(run, request, &begun);
}

static enum status write_costs(const struct request *request)
{
    struct costs costs;
    enum status status;

    if (request->costs == NULL) {
        return STATUS_OK;
    }
    TRY(calibrate_run(request->run_dir, &costs));
    status = costs_file_write(&costs, request->costs);
    costs_release(&costs);
    if (status >= 0) {
        log_info("wrote %s", request->costs);
    }
    return status;
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
    return status < 0 ? status : write_costs(&request);
}
