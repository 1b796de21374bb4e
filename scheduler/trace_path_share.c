#include <stdlib.h>
#include <string.h>

#include "scheduler/trace_event.h"
#include "scheduler/trace_path.h"

/* Beyond as many links the table says less than its first lines. */
#define MOST_LINKS 8

static const char *const cause_texts[] = {
#define X(id, text) text,
    TRACE_PATH_TABLE(X)
#undef X
};

static bool is_stage(const struct trace_path_share *share, int32_t stage)
{
    return stage >= 0 && stage < share->stages;
}

static void add_link(struct trace_path_share *share, int32_t from, int32_t to, double ns)
{
    if (is_stage(share, from) && is_stage(share, to)) {
        share->links[share->link_count++] =
            (struct trace_path_link){.from = from, .to = to, .ns = ns};
    }
}

static void add_part(struct trace_path_share *share, const struct trace_path_part *part)
{
    double ns = (double)(part->end_ns - part->begin_ns);
    int32_t stage = part->rank->pipeline_rank;

    share->total_ns += ns;
    share->cause_ns[part->cause] += ns;
    if (part->cause == TRACE_PATH_WORK) {
        share->kind_ns[part->span->kind] += ns;
    }
    if (part->cause == TRACE_PATH_MESSAGE) {
        add_link(share, part->from->pipeline_rank, stage, ns);
    } else if (part->span->kind == TRACE_SEND && part->cause != TRACE_PATH_HOST) {
        add_link(share, stage, part->span->args[TRACE_ARG_PEER], ns);
    } else if (is_stage(share, stage)) {
        share->stage_ns[stage] += ns;
    }
}

static int compare_ends(const void *left_item, const void *right_item)
{
    const struct trace_path_link *left = left_item;
    const struct trace_path_link *right = right_item;

    if (left->from != right->from) {
        return left->from < right->from ? -1 : 1;
    }
    return (left->to > right->to) - (left->to < right->to);
}

static int compare_times(const void *left_item, const void *right_item)
{
    const struct trace_path_link *left = left_item;
    const struct trace_path_link *right = right_item;

    if (left->ns != right->ns) {
        return left->ns > right->ns ? -1 : 1;
    }
    return compare_ends(left_item, right_item);
}

/* Each link was noted part by part. */
static void join_links(struct trace_path_share *share)
{
    size_t count = 0;

    qsort(share->links, share->link_count, sizeof(*share->links), compare_ends);
    for (size_t index = 0; index < share->link_count; index++) {
        if (count > 0 && compare_ends(&share->links[count - 1], &share->links[index]) == 0) {
            share->links[count - 1].ns += share->links[index].ns;
        } else {
            share->links[count++] = share->links[index];
        }
    }
    share->link_count = count;
    qsort(share->links, count, sizeof(*share->links), compare_times);
}

enum status trace_path_share_make(const struct trace_run *run, const struct trace_path *path,
                                  struct trace_path_share *share_out)
{
    struct trace_path_share share = {.stages = trace_run_stages(run)};

    share.stage_ns = calloc((size_t)share.stages + 1, sizeof(*share.stage_ns));
    share.links = calloc(path->count + 1, sizeof(*share.links));
    if (share.stage_ns == NULL || share.links == NULL) {
        trace_path_share_release(&share);
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: the shares of %zu parts of a path",
                           path->count);
    }
    for (size_t index = 0; index < path->count; index++) {
        add_part(&share, &path->parts[index]);
    }
    join_links(&share);
    *share_out = share;
    return STATUS_OK;
}

void trace_path_share_release(struct trace_path_share *share)
{
    free(share->stage_ns);
    free(share->links);
    memset(share, 0, sizeof(*share));
}

/* One item of the list, with a comma before all but the first. */
static void print_item(const struct trace_path_share *share, double ns, const char *text,
                       bool *begun, FILE *out)
{
    if (ns > 0.0) {
        (void)fprintf(out, "%s%s %.1f%%", *begun ? ", " : "", text, 100.0 * ns / share->total_ns);
        *begun = true;
    }
}

static void print_stages(const struct trace_path_share *share, FILE *out)
{
    bool begun = false;
    char text[32];

    (void)fprintf(out, "  by stage  ");
    for (int32_t stage = 0; stage < share->stages; stage++) {
        (void)snprintf(text, sizeof(text), "%d:", (int)stage);
        print_item(share, share->stage_ns[stage], text, &begun, out);
    }
    (void)fprintf(out, "\n");
}

static void print_kinds(const struct trace_path_share *share, FILE *out)
{
    bool begun = false;

    (void)fprintf(out, "  by kind   ");
    for (uint32_t kind = 0; kind < TRACE_KINDS; kind++) {
        print_item(share, share->kind_ns[kind], trace_kind_name(kind), &begun, out);
    }
    for (int cause = 0; cause < TRACE_PATH_CAUSES; cause++) {
        if (cause != TRACE_PATH_WORK) {
            print_item(share, share->cause_ns[cause], cause_texts[cause], &begun, out);
        }
    }
    (void)fprintf(out, "\n");
}

static void print_links(const struct trace_path_share *share, FILE *out)
{
    bool begun = false;
    char text[48];

    (void)fprintf(out, "%s", share->link_count > 0 ? "  by link   " : "");
    for (size_t index = 0; index < share->link_count && index < MOST_LINKS; index++) {
        const struct trace_path_link *link = &share->links[index];

        (void)snprintf(text, sizeof(text), "%d to %d:", (int)link->from, (int)link->to);
        print_item(share, link->ns, text, &begun, out);
    }
    (void)fprintf(out, "%s", share->link_count > 0 ? "\n" : "");
}

enum status trace_path_print(const struct trace_path *path, const struct trace_path_share *share,
                             FILE *out)
{
    if (path->steps == 0 || share->total_ns <= 0.0) {
        return STATUS_OK;
    }
    (void)fprintf(out, "critical path, %.2f ms a step (a step's first work on it to its end):\n",
                  share->total_ns / 1e6 / path->steps);
    print_stages(share, out);
    print_kinds(share, out);
    print_links(share, out);
    return ferror(out) != 0
               ? status_fail(STATUS_ERR_IO, "printing the critical path of a trace failed")
               : STATUS_OK;
}
