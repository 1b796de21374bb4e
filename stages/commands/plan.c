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
#include "stages/commands/plan_costs.h"
#include "stages/commands/plan_print.h"
#include "stages/config.h"
#include "stages/plan_search.h"

#define PIPE_COLUMNS      100   /* where stdout is no terminal */
#define PLAIN_EVALUATIONS 20000 /* of a search without a CONFIG */

enum plan_format {
    PLAN_FORMAT_TEXT,
    PLAN_FORMAT_SUMMARY,
    PLAN_FORMAT_CSV,
    PLAN_FORMAT_JSON,
    PLAN_FORMAT_SVG,
    PLAN_FORMATS
};

static const char *const format_texts[PLAN_FORMATS] = {"text", "summary", "csv", "json", "svg"};

enum plan_option {
    OPTION_PP = 256,
    OPTION_MICROBATCHES,
    OPTION_VIRTUAL_STAGES,
    OPTION_SCHEDULE,
    OPTION_EXTRA_IN_FLIGHT,
    OPTION_EARLY_SEND,
    OPTION_SEQUENCE_SLICES,
    OPTION_LANE_DEPTH,
    OPTION_COSTS,
    OPTION_WHAT_IF,
    OPTION_FORMAT,
    OPTION_HELP
};

static const struct option long_options[] = {
    {"pp", required_argument, NULL, OPTION_PP},
    {"num-microbatches", required_argument, NULL, OPTION_MICROBATCHES},
    {"virtual-stages", required_argument, NULL, OPTION_VIRTUAL_STAGES},
    {"schedule", required_argument, NULL, OPTION_SCHEDULE},
    {"extra-in-flight", required_argument, NULL, OPTION_EXTRA_IN_FLIGHT},
    {"early-send", required_argument, NULL, OPTION_EARLY_SEND},
    {"sequence-slices", required_argument, NULL, OPTION_SEQUENCE_SLICES},
    {"lane-depth", required_argument, NULL, OPTION_LANE_DEPTH},
    {"costs", required_argument, NULL, OPTION_COSTS},
    {"what-if", required_argument, NULL, OPTION_WHAT_IF},
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
    "  --schedule NAME          gpipe, 1f1b, interleaved_1f1b, bfs, zb_h1, zb_h2, izb, zb_v,\n"
    "                           v_half, v_min, seq1f1b, forward_only, file:PATH, or auto: the\n"
    "                           shortest that a search finds (1f1b)\n"
    "  --virtual-stages N       chunks a rank (1; 2 with zb_v, v_half, v_min)\n"
    "  --extra-in-flight N      micro-batches that 1f1b begins beyond its own (0)\n"
    "  --sequence-slices N      slices of a sequence, with seq1f1b (1)\n"
    "  --early-send true|false  send a gradient before the weight gradient is done (true)\n"
    "  --lane-depth N           landing buffers beyond what the orders hold (2)\n"
    "\n"
    "and in both cases\n"
    "\n"
    "  --costs F,I,W[,c]        costs a rank and micro-batch, latency of a message (1,1,1,0)\n"
    "  --costs FILE|RUN         costs that were measured: costs.json, or the directory of a run\n"
    "                           that had trace.enabled\n"
    "  --what-if TEXT           \"stage 2 x 0.8\", \"virtual stage 5 x 2\", or F, I, W, latency, "
    "copy,\n"
    "                           overhead, rest \" x 1.1\"; several with ; between them\n"
    "  --format NAME            text, summary, csv, json or svg (text)\n"
    "  --help                   this text\n";

/* What the command line asks for. */
struct request {
    struct plan_shape shape;
    const char *path;       /* borrows; of a plan file, or NULL */
    const char *config;     /* borrows; or NULL */
    struct config *loaded;  /* owns; of `config` */
    const char *shape_name; /* borrows; the last option that CONFIG would decide, or NULL */
    struct plan_costs_request costs; /* owns */
    enum plan_format format;
    bool help;
    char found[256];  /* how the plan was found, with schedule auto; else "" */
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
                       "weir plan: --format is \"%s\", expected text, summary, csv, json or svg",
                       text);
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
    case OPTION_EXTRA_IN_FLIGHT:
        return strcmp(optarg, "0") == 0 ? STATUS_OK
                                        : parse_count(name, optarg, &shape->extra_in_flight);
    case OPTION_EARLY_SEND:
        return parse_bool(name, optarg, &shape->early_send);
    case OPTION_SEQUENCE_SLICES:
        return parse_count(name, optarg, &shape->sequence_slices);
    case OPTION_LANE_DEPTH:
        return parse_count(name, optarg, &shape->lane_depth);
    case OPTION_COSTS:
        return plan_costs_parse(&request->costs, optarg);
    case OPTION_WHAT_IF:
        return plan_costs_add_what_if(&request->costs, optarg);
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
    int64_t pieces =
        (int64_t)shape->microbatches * (shape->sequence_slices > 1 ? shape->sequence_slices : 1);

    /* What is too many for an int32_t is for a plan. */
    shape->microbatches = pieces < INT32_MAX ? (int32_t)pieces : INT32_MAX;
    if (request->path == NULL) {
        shape->ranks = shape->ranks == 0 ? 1 : shape->ranks;
        shape->sequence_slices = shape->sequence_slices == 0 ? 1 : shape->sequence_slices;
        if (shape->virtual_stages == 0) {
            shape->virtual_stages = schedule_takes_chunks(shape->schedule, 1) ? 1 : 2;
        }
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

/* `compute` is NULL where only a summary is asked for. */
static enum status print_report(const struct request *request, const struct plan *compute,
                                const struct plan *lowered, const struct plan_traffic *traffic,
                                const struct plan_memory *memory)
{
    struct plan_print print = {.compute = compute != NULL ? compute : lowered,
                               .lowered = lowered,
                               .costs = &request->costs};
    double c[4];
    struct plan_costs costs;
    struct plan_report report;
    enum status status;

    TRY(plan_costs_make(&request->costs, lowered, &costs));
    plan_costs_means(lowered, &costs, c);
    print.F = c[0];
    print.I = c[1];
    print.W = c[2];
    print.message = c[3];
    status = plan_report_make(lowered, &costs, &report);
    plan_costs_release(&costs);
    if (status < 0) {
        return status;
    }
    print.report = &report;
    print.traffic = traffic;
    print.memory = memory;
    print.found = request->found;
    switch (request->format) {
    case PLAN_FORMAT_JSON:
        status = plan_print_json(&print, stdout);
        break;
    case PLAN_FORMAT_CSV:
        status = plan_text_print(compute, PLAN_TEXT_CSV, stdout);
        break;
    case PLAN_FORMAT_SVG:
        status = plan_print_svg(&print, stdout);
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

/* Costs that each chunk of a plan without a model has its share of. */
static enum status search_shape(struct request *request, struct search_result *found_out)
{
    const struct search_options options = {.seed = 1, .evaluations = PLAIN_EVALUATIONS};
    struct search_variant variant = {.shape = request->shape};
    struct plan *loop = NULL;
    enum status status;

    variant.shape.schedule = SCHEDULE_FILE;
    TRY(plan_create(&variant.shape, &loop));
    status = plan_costs_make(&request->costs, loop, &variant.costs);
    plan_destroy(&loop);
    if (status >= 0) {
        status = search_run(&variant, 1, &options, found_out);
        plan_costs_release(&variant.costs);
    }
    return status;
}

/* The plan that was asked for, or with schedule auto the one that is found, and how. */
static enum status make_compute(struct request *request, struct plan **compute_out)
{
    struct search_result found;

    if (request->shape.schedule != SCHEDULE_AUTO) {
        return plan_make(&request->shape, request->path, compute_out);
    }
    if (request->loaded != NULL) {
        const struct config_parallel *parallel = &request->loaded->parallel;

        TRY(plan_search_run(request->loaded, (int32_t)(parallel->pp * parallel->tp * parallel->dp),
                            &found));
    } else {
        TRY(search_shape(request, &found));
    }
    plan_search_print(&found, request->loaded != NULL ? "by FLOPs" : "at these costs",
                      request->found, sizeof(request->found));
    *compute_out = found.plan;
    found.plan = NULL;
    search_result_release(&found);
    return STATUS_OK;
}

static enum status make_and_print(struct request *request)
{
    struct plan *compute = NULL;
    struct plan *lowered = NULL;
    struct plan_traffic traffic = {0};
    struct plan_memory memory = {0};
    enum status status;

    TRY(load_shape(request));
    TRY(make_compute(request, &compute));
    /* Proved with the report. */
    TRY_OR(done, status, plan_lower(compute, &lowered));
    if (request->format == PLAN_FORMAT_SUMMARY) {
        plan_destroy(&compute); /* a large one would weigh on the proof, and nobody asks for it */
    }
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
        .costs = {.uniform = {1.0, 1.0, 1.0, 0.0}}};
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
    plan_costs_request_release(&request.costs);
    config_destroy(&request.loaded);
    free(options);
    return status;
}
