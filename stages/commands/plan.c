#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "scheduler/lower.h"
#include "scheduler/plan_text.h"
#include "scheduler/prove.h"
#include "stages/commands/command.h"
#include "stages/commands/plan_print.h"
#include "stages/config.h"

#define PIPE_COLUMNS 100 /* where stdout is no terminal */

enum plan_format {
    PLAN_FORMAT_TEXT,
    PLAN_FORMAT_SUMMARY,
    PLAN_FORMAT_CSV,
    PLAN_FORMAT_JSON,
    PLAN_FORMATS
};

static const char *const format_texts[PLAN_FORMATS] = {"text", "summary", "csv", "json"};

enum plan_option {
    OPTION_PP = 256,
    OPTION_MICROBATCHES,
    OPTION_VIRTUAL_STAGES,
    OPTION_SCHEDULE,
    OPTION_EARLY_SEND,
    OPTION_LANE_DEPTH,
    OPTION_COSTS,
    OPTION_FORMAT,
    OPTION_HELP
};

static const struct option long_options[] = {
    {"pp", required_argument, NULL, OPTION_PP},
    {"num-microbatches", required_argument, NULL, OPTION_MICROBATCHES},
    {"virtual-stages", required_argument, NULL, OPTION_VIRTUAL_STAGES},
    {"schedule", required_argument, NULL, OPTION_SCHEDULE},
    {"early-send", required_argument, NULL, OPTION_EARLY_SEND},
    {"lane-depth", required_argument, NULL, OPTION_LANE_DEPTH},
    {"costs", required_argument, NULL, OPTION_COSTS},
    {"format", required_argument, NULL, OPTION_FORMAT},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0}};

static const char help_text[] =
    "usage: weir plan [CONFIG [--section.key=value ...]] [options]\n"
    "\n"
    "Prints the plan of each pipeline rank with its bubble, peak memory and messages, before\n"
    "anything runs. With CONFIG the plan is that of the job, and what each rank moves in a step\n"
    "and holds is shown too; where it holds more than train.memory_limit, the exit code is 1.\n"
    "Without CONFIG, the plan is of these options:\n"
    "\n"
    "  --pp N                   pipeline ranks (1)\n"
    "  --num-microbatches N     micro-batches a step\n"
    "  --schedule NAME          gpipe, 1f1b, interleaved_1f1b, forward_only or\n"
    "                           file:PATH (1f1b)\n"
    "  --virtual-stages N       chunks a rank (1)\n"
    "  --early-send true|false  send a gradient before the weight gradient is done (true)\n"
    "  --lane-depth N           landing buffers beyond what the orders hold (2)\n"
    "\n"
    "and in both cases\n"
    "\n"
    "  --costs F,I,W[,c]        costs a rank and micro-batch, latency of a message (1,1,1,0)\n"
    "  --format NAME            text, summary, csv or json (text)\n"
    "  --help                   this text\n";

/* What the command line asks for. */
struct request {
    struct plan_shape shape;
    const char *path;       /* borrows; of a plan file, or NULL */
    const char *config;     /* borrows; or NULL */
    struct config *loaded;  /* owns; of `config` */
    const char *shape_name; /* borrows; the last option that CONFIG would decide, or NULL */
    double costs[4];        /* F, I, W, c */
    enum plan_format format;
    bool help;
    char **overrides; /* owns the array; --section.key=value */
    int override_count;
};

static enum status parse_count(const char *key, const char *text, int32_t *count_out)
{
    char *end = NULL;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < 1 || value > INT32_MAX) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir plan: --%s is \"%s\", expected a whole number of at least 1", key,
                           text);
    }
    *count_out = (int32_t)value;
    return STATUS_OK;
}

static enum status parse_bool(const char *key, const char *text, bool *value_out)
{
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) {
        return status_fail(STATUS_ERR_REFUSED, "weir plan: --%s is \"%s\", expected true or false",
                           key, text);
    }
    *value_out = strcmp(text, "true") == 0;
    return STATUS_OK;
}

static enum status parse_costs(const char *text, double costs[4])
{
    double values[4] = {0.0, 0.0, 0.0, 0.0};
    const char *at = text;
    int count = 0;

    while (count < 4) {
        char *end = NULL;

        values[count] = strtod(at, &end);
        if (end == at || !isfinite(values[count]) || values[count] < 0.0) {
            break;
        }
        count++;
        at = end;
        if (*at != ',') {
            break;
        }
        at++;
    }
    if (count < 3 || *at != '\0' || at[-1] == ',' || values[0] + values[1] + values[2] <= 0.0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir plan: --costs is \"%s\", expected F,I,W or F,I,W,c: numbers of at "
                           "least 0, not all 0",
                           text);
    }
    memcpy(costs, values, sizeof(values));
    return STATUS_OK;
}

static enum status parse_format(const char *text, enum plan_format *format_out)
{
    int i;

    for (i = 0; i < PLAN_FORMATS; i++) {
        if (strcmp(text, format_texts[i]) == 0) {
            *format_out = (enum plan_format)i;
            return STATUS_OK;
        }
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "weir plan: --format is \"%s\", expected text, summary, csv or json", text);
}

static enum status parse_schedule(struct request *request, const char *text)
{
    TRY(schedule_parse(text, &request->shape.schedule));
    request->path = request->shape.schedule == SCHEDULE_FILE ? strchr(text, ':') + 1 : NULL;
    return STATUS_OK;
}

static enum status take_option(struct request *request, int option, const char *name)
{
    struct plan_shape *shape = &request->shape;

    if (option >= OPTION_PP && option <= OPTION_LANE_DEPTH) {
        request->shape_name = name;
    }
    switch (option) {
    case OPTION_PP:
        return parse_count(name, optarg, &shape->ranks);
    case OPTION_MICROBATCHES:
        return parse_count(name, optarg, &shape->microbatches);
    case OPTION_VIRTUAL_STAGES:
        return parse_count(name, optarg, &shape->virtual_stages);
    case OPTION_SCHEDULE:
        return parse_schedule(request, optarg);
    case OPTION_EARLY_SEND:
        return parse_bool(name, optarg, &shape->early_send);
    case OPTION_LANE_DEPTH:
        return parse_count(name, optarg, &shape->lane_depth);
    case OPTION_COSTS:
        return parse_costs(optarg, request->costs);
    case OPTION_FORMAT:
        return parse_format(optarg, &request->format);
    case OPTION_HELP:
        request->help = true;
        return STATUS_OK;
    default:
        return status_fail(STATUS_ERR_REFUSED, "weir plan: see weir plan --help");
    }
}

/* `--section.key=value` belongs to the configuration; options of the command have no dot. */
static bool is_override(const char *argument)
{
    size_t name_bytes = strcspn(argument, "=");

    return strncmp(argument, "--", 2) == 0 && memchr(argument, '.', name_bytes) != NULL;
}

/* Puts the overrides aside; what is left goes to getopt. */
static int split_arguments(struct request *request, int argc, char **argv, char **options)
{
    int count = 0;
    int i;

    for (i = 0; i < argc; i++) {
        if (i > 0 && is_override(argv[i])) {
            request->overrides[request->override_count++] = argv[i];
        } else {
            options[count++] = argv[i];
        }
    }
    options[count] = NULL;
    return count;
}

static enum status parse_options(struct request *request, int count, char **options)
{
    int place = 0;
    int option;

    optind = 0; /* begins anew, whatever main has parsed before */
    opterr = 0;
    while ((option = getopt_long(count, options, ":", long_options, &place)) != -1) {
        if (option == '?' || option == ':') {
            return status_fail(STATUS_ERR_REFUSED, "weir plan: option \"%s\" %s; see --help",
                               options[optind - 1],
                               option == ':' ? "needs a value" : "is not known");
        }
        TRY(take_option(request, option, long_options[place].name));
    }
    if (count - optind > 1) {
        return status_fail(STATUS_ERR_REFUSED, "weir plan: \"%s\" is one CONFIG too many",
                           options[optind + 1]);
    }
    request->config = optind < count ? options[optind] : NULL;
    return STATUS_OK;
}

static enum status check_request(const struct request *request)
{
    if (request->help) {
        return STATUS_OK;
    }
    if (request->config != NULL && request->shape_name != NULL) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir plan: --%s is for plans without a CONFIG; write "
                           "--section.key=value to change one",
                           request->shape_name);
    }
    if (request->config == NULL && request->override_count > 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir plan: \"%s\" changes a CONFIG, but none is given",
                           request->overrides[0]);
    }
    if (request->config == NULL && request->path == NULL && request->shape.microbatches == 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir plan: expected CONFIG, or --pp and --num-microbatches; see "
                           "--help");
    }
    return STATUS_OK;
}

/* The ranks, micro-batches and chunks that were not given: those of the plan file, or 1. */
static void complete_shape(struct request *request)
{
    struct plan_shape *shape = &request->shape;

    if (request->path == NULL) {
        shape->ranks = shape->ranks == 0 ? 1 : shape->ranks;
        shape->virtual_stages = shape->virtual_stages == 0 ? 1 : shape->virtual_stages;
    }
    shape->embedding_sync = true;
}

static enum status load_shape(struct request *request)
{
    if (request->config == NULL) {
        complete_shape(request);
        return STATUS_OK;
    }
    TRY(config_load(request->config, request->overrides, request->override_count,
                    &request->loaded));
    config_plan_shape(request->loaded, &request->shape);
    request->path = request->loaded->parallel.schedule_file;
    return STATUS_OK;
}

static int terminal_columns(void)
{
    struct winsize size;

    if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
        size.ws_col > 0) {
        return size.ws_col;
    }
    return PIPE_COLUMNS;
}

static enum status print_report(const struct request *request, const struct plan *compute,
                                const struct plan *lowered, const struct plan_traffic *traffic,
                                const struct plan_memory *memory)
{
    const double *c = request->costs;
    struct plan_print print = {
        .compute = compute, .lowered = lowered, .F = c[0], .I = c[1], .W = c[2], .message = c[3]};
    struct plan_costs costs;
    struct plan_report report;
    enum status status;

    TRY(plan_costs_uniform(lowered, c[0], c[1], c[2], c[3], &costs));
    status = plan_report_make(lowered, &costs, &report);
    plan_costs_release(&costs);
    if (status < 0) {
        return status;
    }
    print.report = &report;
    print.traffic = traffic;
    print.memory = memory;
    switch (request->format) {
    case PLAN_FORMAT_JSON:
        status = plan_print_json(&print, stdout);
        break;
    case PLAN_FORMAT_CSV:
        status = plan_text_print(compute, PLAN_TEXT_CSV, stdout);
        break;
    case PLAN_FORMAT_SUMMARY:
        status = plan_print_summary(&print, "", stdout);
        break;
    default:
        status = plan_print_text(&print, terminal_columns(), stdout);
        break;
    }
    plan_report_release(&report);
    return status;
}

static enum status make_and_print(struct request *request)
{
    struct plan *compute = NULL;
    struct plan *lowered = NULL;
    struct plan_traffic traffic = {0};
    struct plan_memory memory = {0};
    enum status status;

    TRY(load_shape(request));
    TRY(plan_make(&request->shape, request->path, &compute));
    /* Proved with the report. */
    TRY_OR(done, status, plan_lower(compute, &lowered));
    TRY_OR(done, status, plan_traffic_make(request->loaded, lowered, &traffic));
    TRY_OR(done, status, plan_memory_make(request->loaded, lowered, &memory));
    TRY_OR(done, status, print_report(request, compute, lowered, &traffic, &memory));
    status = fflush(stdout) == 0
                 ? plan_memory_check(&memory)
                 : status_fail(STATUS_ERR_IO, "weir plan: writing to stdout failed: %s",
                               strerror(errno));

done:
    plan_memory_release(&memory);
    plan_traffic_release(&traffic);
    plan_destroy(&lowered);
    plan_destroy(&compute);
    return status;
}

enum status command_plan(int argc, char **argv)
{
    struct request request = {
        .shape = {.schedule = SCHEDULE_1F1B, .lane_depth = 2, .early_send = true},
        .costs = {1.0, 1.0, 1.0, 0.0}};
    size_t places = (size_t)argc + 1;
    char **options = calloc(2 * places, sizeof(*options));
    enum status status;

    if (options == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "weir plan: no memory for its arguments");
    }
    request.overrides = options + places;
    TRY_OR(done, status,
           parse_options(&request, split_arguments(&request, argc, argv, options), options));
    TRY_OR(done, status, check_request(&request));
    if (request.help) {
        (void)fputs(help_text, stdout);
    } else {
        status = make_and_print(&request);
    }

done:
    config_destroy(&request.loaded);
    free(options);
    return status;
}
