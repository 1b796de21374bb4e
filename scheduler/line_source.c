#include "scheduler/line_source.h"

#include "scheduler/generate.h"

struct line_source line_source_of(const struct plan *plan)
{
    return (struct line_source){.plan = plan};
}

struct line_source line_source_whole(struct plan *plan)
{
    return (struct line_source){.plan = plan, .owned = plan};
}

struct line_source line_source_made(struct plan *plan)
{
    return (struct line_source){.plan = plan, .owned = plan, .generates = true};
}

enum status line_source_get(struct line_source *source, int32_t rank)
{
    if (!source->generates) {
        return STATUS_OK;
    }
    plan_pass_memory(source->owned, source->at, rank);
    source->at = rank;
    return plan_generate_line(source->owned, rank);
}

void line_source_release(struct line_source *source)
{
    plan_destroy(&source->owned);
    *source = (struct line_source){.plan = NULL};
}
