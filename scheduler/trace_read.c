#include "scheduler/trace_read.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/log.h"
#include "scheduler/trace.h"
#include "scheduler/trace_clock.h"
#include "scheduler/trace_event.h"

static int compare_spans(const void *left_item, const void *right_item)
{
    const struct span *left = left_item;
    const struct span *right = right_item;

    if (left->begin_ns != right->begin_ns) {
        return left->begin_ns < right->begin_ns ? -1 : 1;
    }
    if (left->end_ns != right->end_ns) {
        return left->end_ns > right->end_ns ? -1 : 1;
    }
    return (left->kind > right->kind) - (left->kind < right->kind);
}

static int compare_ranks(const void *left_item, const void *right_item)
{
    const struct trace_rank *left = left_item;
    const struct trace_rank *right = right_item;

    return (left->rank > right->rank) - (left->rank < right->rank);
}

enum status trace_rank_append(struct trace_rank *rank, const struct span *span)
{
    if (rank->count == rank->capacity) {
        size_t capacity = rank->capacity == 0 ? 1024 : rank->capacity * 2;
        struct span *spans = realloc(rank->spans, capacity * sizeof(*spans));

        if (spans == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu spans of rank %d", capacity,
                               (int)rank->rank);
        }
        rank->spans = spans;
        rank->capacity = capacity;
    }
    rank->spans[rank->count++] = *span;
    return STATUS_OK;
}

/* rank = replica + replicas · pipeline rank, and the ranks of stage 0 count the replicas. */
void trace_run_arrange(struct trace_run *run)
{
    int32_t replicas = 0;

    if (run->count > 0) {
        qsort(run->ranks, run->count, sizeof(*run->ranks), compare_ranks);
    }
    for (size_t index = 0; index < run->count; index++) {
        struct trace_rank *rank = &run->ranks[index];

        replicas += rank->pipeline_rank == 0 ? 1 : 0;
        if (rank->count > 0) {
            qsort(rank->spans, rank->count, sizeof(*rank->spans), compare_spans);
        }
    }
    for (size_t index = 0; index < run->count; index++) {
        run->ranks[index].replica = run->ranks[index].rank % (replicas > 0 ? replicas : 1);
    }
}

int32_t trace_run_stages(const struct trace_run *run)
{
    int32_t stages = 0;

    for (size_t index = 0; index < run->count; index++) {
        if (run->ranks[index].pipeline_rank >= stages) {
            stages = run->ranks[index].pipeline_rank + 1;
        }
    }
    return stages;
}

void trace_run_release(struct trace_run *run)
{
    for (size_t index = 0; index < run->count; index++) {
        free(run->ranks[index].spans);
        free(run->ranks[index].sizes);
    }
    free(run->ranks);
    free(run->name);
    memset(run, 0, sizeof(*run));
}

/* Cuts what surrounds the object of a line: blanks, the comma after it, the brackets of the array.
 * Returns its length. */
static size_t strip_line(char **line, size_t line_bytes)
{
    while (line_bytes > 0 && strchr(" \t\r\n,", (*line)[line_bytes - 1]) != NULL) {
        line_bytes--;
    }
    while (line_bytes > 0 && strchr(" \t,", **line) != NULL) {
        (*line)++;
        line_bytes--;
    }
    if (line_bytes == 1 && (**line == '[' || **line == ']')) {
        return 0;
    }
    return line_bytes;
}

static enum status add_size(struct trace_rank *rank, const struct trace_memory_size *size)
{
    struct trace_memory_size *sizes = realloc(rank->sizes, (rank->size_count + 1) * sizeof(*sizes));

    if (sizes == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu chunks", rank->size_count + 1);
    }
    rank->sizes = sizes;
    rank->sizes[rank->size_count++] = *size;
    return STATUS_OK;
}

/* One file tells of one rank, whose number is in its name. */
static enum status take_process(struct trace_rank *rank, char **name, int64_t file_rank,
                                struct trace_line *line)
{
    if (*name != NULL || line->rank != file_rank) {
        free(line->run_name);
        return *name != NULL ? status_note(STATUS_ERR_FORMAT, "names rank %d after rank %d",
                                           (int)line->rank, (int)rank->rank)
                             : status_note(STATUS_ERR_FORMAT,
                                           "names rank %d, but the file is rank %" PRId64 "'s",
                                           (int)line->rank, file_rank);
    }
    rank->rank = line->rank;
    rank->pipeline_rank = line->pipeline_rank;
    *name = line->run_name;
    return STATUS_OK;
}

static enum status take_line(struct trace_rank *rank, char **name, int64_t file_rank,
                             struct trace_line *line)
{
    switch (line->kind) {
    case TRACE_LINE_SPAN:
        return trace_rank_append(rank, &line->span);
    case TRACE_LINE_PROCESS:
        return take_process(rank, name, file_rank, line);
    case TRACE_LINE_SIZE:
        return add_size(rank, &line->size);
    case TRACE_LINE_CLOCK:
        return trace_clock_add(rank, &line->clock, line->clock_moved_ns);
    case TRACE_LINE_END:
        rank->dropped = line->dropped;
        rank->complete = true;
        return STATUS_OK;
    case TRACE_LINE_OTHER:
        break;
    }
    return STATUS_OK;
}

static bool at_end(FILE *file)
{
    int next = fgetc(file);

    if (next == EOF) {
        return true;
    }
    (void)ungetc(next, file);
    return false;
}

static enum status read_lines(FILE *file, const char *path, int64_t file_rank,
                              struct trace_rank *rank, char **name)
{
    char *buffer = NULL;
    size_t buffer_bytes = 0;
    ssize_t line_bytes = 0;
    int64_t number = 0;
    enum status status = STATUS_OK;

    while (status >= 0 && (line_bytes = getline(&buffer, &buffer_bytes, file)) >= 0) {
        char *text = buffer;
        size_t text_bytes = strip_line(&text, (size_t)line_bytes);
        struct trace_line line;

        number++;
        if (text_bytes == 0) {
            continue;
        }
        status = trace_line_parse(text, text_bytes, &line);
        if (status == STATUS_ERR_FORMAT && at_end(file)) {
            log_warn("trace %s ends within line %lld; read up to there", path, (long long)number);
            status = STATUS_OK; /* the run was killed */
            break;
        }
        if (status >= 0) {
            status = take_line(rank, name, file_rank, &line);
        }
        if (status == STATUS_ERR_FORMAT) {
            status = status_fail(status, "trace %s, line %lld: %s", path, (long long)number,
                                 status_last()->message);
        }
    }
    free(buffer);
    if (status >= 0 && ferror(file)) {
        return status_fail(STATUS_ERR_IO, "reading the trace %s: %s", path, strerror(errno));
    }
    return status;
}

static enum status add_rank(struct trace_run *run, const struct trace_rank *rank)
{
    struct trace_rank *ranks = realloc(run->ranks, (run->count + 1) * sizeof(*ranks));

    if (ranks == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu ranks", run->count + 1);
    }
    run->ranks = ranks;
    run->ranks[run->count++] = *rank;
    return STATUS_OK;
}

static enum status read_rank(struct trace_run *run, const char *path, int64_t file_rank)
{
    struct trace_rank rank = {.rank = -1};
    char *name = NULL;
    enum status status = STATUS_OK;
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        return status_fail(STATUS_ERR_IO, "opening the trace %s: %s", path, strerror(errno));
    }
    status = read_lines(file, path, file_rank, &rank, &name);
    (void)fclose(file);
    if (status >= 0 && name != NULL) {
        status = add_rank(run, &rank);
        if (status >= 0 && run->name == NULL) {
            run->name = name;
            name = NULL;
        }
    } else if (status >= 0) {
        log_warn("trace %s ends before it names its rank; left out", path);
    }
    if (status < 0 || rank.rank < 0) {
        free(rank.spans);
        free(rank.sizes);
    }
    free(name);
    return status;
}

/* The rank in the name of a file, -1 where it is none of a rank. */
static int64_t rank_in_name(const char *name)
{
    static const char prefix[] = "rank-";
    int64_t rank = 0;

    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0) {
        return -1;
    }
    name += sizeof(prefix) - 1;
    if (*name < '0' || *name > '9' || (name[0] == '0' && name[1] != '.')) {
        return -1;
    }
    while (*name >= '0' && *name <= '9') {
        rank = rank < TRACE_RANKS_MOST ? rank * 10 + (*name - '0') : rank;
        name++;
    }
    return strcmp(name, ".json") == 0 ? rank : -1;
}

static enum status read_folder(DIR *folder, const char *folder_path, struct trace_run *run)
{
    const struct dirent *entry = NULL;
    char path[PATH_MAX];

    while ((entry = readdir(folder)) != NULL) {
        const int64_t rank = rank_in_name(entry->d_name);

        if (rank < 0) {
            continue;
        }
        if (snprintf(path, sizeof(path), "%s/%s", folder_path, entry->d_name) >=
            (int)sizeof(path)) {
            return status_fail(STATUS_ERR_REFUSED, "trace %s: the path is too long", folder_path);
        }
        TRY(read_rank(run, path, rank));
    }
    return STATUS_OK;
}

static enum status refuse_untraced(const char *run_dir)
{
    return status_fail(STATUS_ERR_REFUSED,
                       "run %s has no trace (no trace/rank-N.json with a first line); train with "
                       "--trace.enabled=true to get one",
                       run_dir);
}

enum status trace_read(const char *run_dir, struct trace_run *run_out)
{
    struct trace_run run = {0};
    char path[PATH_MAX];
    struct stat found;
    enum status status = STATUS_OK;
    DIR *folder = NULL;

    if (stat(run_dir, &found) != 0 || !S_ISDIR(found.st_mode)) {
        return status_fail(STATUS_ERR_REFUSED, "run %s: expected a run directory, found %s",
                           run_dir, errno == ENOENT ? "nothing" : "something else");
    }
    if (snprintf(path, sizeof(path), "%s/trace", run_dir) >= (int)sizeof(path)) {
        return status_fail(STATUS_ERR_REFUSED, "run %s: the path is too long", run_dir);
    }
    folder = opendir(path);
    if (folder == NULL) {
        return refuse_untraced(run_dir);
    }
    status = read_folder(folder, path, &run);
    (void)closedir(folder);
    if (status >= 0 && run.count == 0) {
        status = refuse_untraced(run_dir);
    }
    if (status < 0) {
        trace_run_release(&run);
        return status;
    }
    trace_clock_align(&run);
    trace_run_arrange(&run);
    *run_out = run;
    return STATUS_OK;
}

static bool span_trains(const struct span *span)
{
    return trace_kind_is_compute(span->kind) && span->args[TRACE_ARG_STEP] >= 0 &&
           span->args[TRACE_ARG_EVALUATION] != 1;
}

enum status trace_run_steps(const struct trace_run *run, int32_t *first_out, int32_t *last_out)
{
    int32_t first = 0;
    int32_t last = INT32_MAX;

    for (size_t index = 0; index < run->count; index++) {
        const struct trace_rank *rank = &run->ranks[index];
        int32_t least = INT32_MAX;
        int32_t most = -1;

        for (size_t item = 0; item < rank->count; item++) {
            int32_t step = rank->spans[item].args[TRACE_ARG_STEP];

            if (span_trains(&rank->spans[item])) {
                least = step < least ? step : least;
                most = step > most ? step : most;
            }
        }
        if (!rank->complete || rank->dropped > 0) {
            most--;
        }
        first = least > first ? least : first;
        last = most < last ? most : last;
    }
    if (run->count == 0 || first > last) {
        return status_fail(STATUS_ERR_REFUSED,
                           "run %s: no training step is whole in the traces of all %zu ranks",
                           run->name == NULL ? "" : run->name, run->count);
    }
    *first_out = first;
    *last_out = last;
    return STATUS_OK;
}

void trace_run_keep(struct trace_run *run, int32_t first, int32_t last)
{
    for (size_t index = 0; index < run->count; index++) {
        struct trace_rank *rank = &run->ranks[index];
        size_t kept = 0;

        for (size_t item = 0; item < rank->count; item++) {
            int32_t step = rank->spans[item].args[TRACE_ARG_STEP];

            if (step >= first && step <= last) {
                rank->spans[kept++] = rank->spans[item];
            }
        }
        rank->count = kept;
    }
}
