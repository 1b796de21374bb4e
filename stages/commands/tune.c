/* tune -- `weir tune CONFIG`: measures this machine and finds the fastest way to run CONFIG on it. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "stages/commands/command.h"
#include "stages/data_parts.h"
#include "stages/exit_code.h"
#include "stages/tune/ranking.h"
#include "stages/tune/tuner.h"
#include "stages/tune/winner.h"

#define VERIFY_MOST 100
#define STEPS_MOST  1000000

enum tune_option {
    OPTION_MEMORY_LIMIT = 256,
    OPTION_VERIFY,
    OPTION_STEPS,
    OPTION_TIME_LIMIT,
    OPTION_OUT,
    OPTION_SEARCH,
    OPTION_HELP
};

static const struct option long_options[] = {
    {"memory-limit", required_argument, NULL, OPTION_MEMORY_LIMIT},
    {"verify", required_argument, NULL, OPTION_VERIFY},
    {"steps", required_argument, NULL, OPTION_STEPS},
    {"time-limit", required_argument, NULL, OPTION_TIME_LIMIT},
    {"out", required_argument, NULL, OPTION_OUT},
    {"search", required_argument, NULL, OPTION_SEARCH},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0}};

static const char help_text[] =
    "usage: weir tune CONFIG [--section.key=value ...] [options]\n"
    "\n"
    "Finds the fastest way to run CONFIG on this machine, with as many ranks and the same global\n"
    "batch: short jobs measure what layers cost, a simulation of every plan that fits into memory\n"
    "ranks them, and the best really run. Prints the table and writes the winner as a\n"
    "configuration that ./launch train takes.\n"
    "\n"
    "  --memory-limit N   bytes a rank may have, as train.memory_limit (that of CONFIG; where it\n"
    "                     has none, the rank's part of this host's memory)\n"
    "  --verify N         how many of the best really run, beside CONFIG itself (3)\n"
    "  --steps N          steps of a job, of which the first 2 do not count (6)\n"
    "  --time-limit S     seconds after which no job begins (600)\n"
    "  --search KEYS      what may vary, with commas between (all):\n";

static const char help_end[] =
    "  --out FILE         where the winner goes (<run directory>-tuned.yaml)\n"
    "  --help             this text\n"
    "\n"
    "Other micro-batch sizes, tp and dp change results within rounding errors; nothing else does.\n"
    "TERM and INT end the running job, and leave nothing.\n";

struct request {
    const char *config;       /* borrows */
    const char *memory_limit; /* borrows; NULL: none */
    const char *out;          /* borrows; NULL: the usual */
    struct tune_settings settings;
    bool help;
    char **overrides; /* owns the array */
    int override_count;
};

static void print_help(void)
{
    (void)fputs(help_text, stdout);
    for (int key = 0; key < TUNE_KEYS; key++) {
        (void)printf("                       %-18s %s\n", tune_key_text((enum tune_key)key),
                     tune_key_help((enum tune_key)key));
    }
    (void)fputs(help_end, stdout);
}

static enum status parse_count(const char *key, const char *text, long least, long most,
                               int64_t *count_out)
{
    char *end = NULL;
    long value = 0;

    errno = 0;
    value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < least || value > most) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir tune: --%s is \"%s\", expected a whole number from %ld to %ld",
                           key, text, least, most);
    }
    *count_out = value;
    return STATUS_OK;
}

static enum status parse_seconds(const char *text, double *seconds_out)
{
    char *end = NULL;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(value) || value <= 0.0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir tune: --time-limit is \"%s\", expected seconds above 0", text);
    }
    *seconds_out = value;
    return STATUS_OK;
}

static enum status take_option(struct request *request, int option)
{
    int64_t count = 0;

    switch (option) {
    case OPTION_MEMORY_LIMIT:
        request->memory_limit = optarg;
        return STATUS_OK;
    case OPTION_VERIFY:
        TRY(parse_count("verify", optarg, 0, VERIFY_MOST, &count));
        request->settings.verify = (int32_t)count;
        return STATUS_OK;
    case OPTION_STEPS:
        return parse_count("steps", optarg, TUNE_STEPS_LEAST, STEPS_MOST, &request->settings.steps);
    case OPTION_TIME_LIMIT:
        return parse_seconds(optarg, &request->settings.time_limit_s);
    case OPTION_OUT:
        request->out = optarg;
        return STATUS_OK;
    case OPTION_SEARCH:
        return tune_keys_parse(optarg, &request->settings.keys);
    case OPTION_HELP:
        request->help = true;
        return STATUS_OK;
    default:
        return status_fail(STATUS_ERR_REFUSED, "weir tune: see weir tune --help");
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

    for (int i = 0; i < argc; i++) {
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
    int option = 0;

    optind = 0; /* begins anew, whatever main has parsed before */
    opterr = 0;
    while ((option = getopt_long(count, options, ":", long_options, &place)) != -1) {
        if (option == '?' || option == ':') {
            return status_fail(STATUS_ERR_REFUSED, "weir tune: option \"%s\" %s; see --help",
                               options[optind - 1],
                               option == ':' ? "needs a value" : "is not known");
        }
        TRY(take_option(request, option));
    }
    if (request->help) {
        return STATUS_OK;
    }
    if (optind >= count) {
        return status_fail(STATUS_ERR_REFUSED, "weir tune: which CONFIG? see --help");
    }
    if (count - optind > 1) {
        return status_fail(STATUS_ERR_REFUSED, "weir tune: \"%s\" is one CONFIG too many",
                           options[optind + 1]);
    }
    request->config = options[optind];
    return STATUS_OK;
}

static enum status tell(const struct tune_base *base, const struct tune_result *result,
                        const char *path)
{
    const struct tune_contender *winner = &result->field.all[0];
    char text[TUNE_CANDIDATE_TEXT_BYTES];
    char gain[TUNE_RANKING_GAIN_BYTES];

    TRY(tune_ranking_print(result, stdout));
    if (result->field.ranked == 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir tune: no candidate has costs that could be measured; no winner "
                           "is written");
    }
    TRY(tune_winner_write(base, result, path));
    tune_candidate_print(&winner->candidate, text, sizeof(text));
    tune_ranking_gain(&result->field, winner, gain);
    (void)printf("fastest: %s%s%s; ./launch train %s\n", text, gain[0] != '\0' ? ": " : "", gain,
                 path);
    return STATUS_OK;
}

/* Whether the winner can be written there: known before minutes of jobs, and not after. */
static enum status check_out(const char *path)
{
    char folder[FILE_PATH_BYTES];
    char *slash = NULL;

    if (strlen(path) >= sizeof(folder)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir tune: --out: the path has %zu bytes, at most %zu are possible",
                           strlen(path), sizeof(folder) - 1);
    }
    (void)snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        (void)snprintf(folder, sizeof(folder), ".");
    } else {
        slash[slash == folder ? 1 : 0] = '\0';
    }
    if (access(folder, W_OK | X_OK) != 0) {
        return status_fail(STATUS_ERR_REFUSED, "weir tune: --out: cannot write %s: %s: %s", path,
                           folder, strerror(errno));
    }
    return STATUS_OK;
}

static enum status tune(const struct request *request, const struct tune_base *base)
{
    char path[FILE_PATH_BYTES];
    struct tune_interrupt interrupt;
    struct tune_jobs jobs = {.folder = ""};
    struct tune_result result = {.jobs = 0};
    enum status status = STATUS_OK;

    if (base->config->parallel.sequence_slices > 1) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir tune: parallel.sequence_slices: %lld: slices are not tuned yet; "
                           "leave it at 1",
                           (long long)base->config->parallel.sequence_slices);
    }
    TRY(data_parts_check(base->config));
    TRY(tune_winner_path(base, path));
    TRY(request->out != NULL ? check_out(request->out) : STATUS_OK);
    TRY(tune_interrupt_open(&interrupt));
    status = tune_jobs_open(base, &interrupt, &jobs);
    if (status >= 0) {
        status = tune_run(base, &request->settings, &jobs, &result);
    }
    if (status >= 0) {
        status = tell(base, &result, request->out != NULL ? request->out : path);
    }
    tune_jobs_close(&jobs);
    tune_result_release(&result);
    if (interrupt.signal != 0) {
        log_info("ended by signal %d (%s): no winner is written", interrupt.signal,
                 strsignal(interrupt.signal));
        exit_code_keep_signal(interrupt.signal);
    }
    tune_interrupt_close(&interrupt);
    return status;
}

enum status command_tune(int argc, char **argv)
{
    struct request request = {
        .settings = {.keys = TUNE_KEYS_ALL, .verify = 3, .steps = 6, .time_limit_s = 600.0}};
    size_t places = (size_t)argc + 1;
    char **options = calloc(2 * places, sizeof(*options));
    struct tune_base base = {.path = NULL};
    enum status status = STATUS_OK;

    if (options == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: no memory for its arguments");
    }
    request.overrides = options + places;
    status = parse_options(&request, split_arguments(&request, argc, argv, options), options);
    if (status >= 0 && request.help) {
        print_help();
    } else if (status >= 0) {
        status = tune_base_load(request.config, request.overrides, request.override_count,
                                request.memory_limit, &base);
        status = status >= 0 ? tune(&request, &base) : status;
    }
    tune_base_release(&base);
    free(options);
    return status;
}
