#include "stages/agent/blame.h"

static bool is_cause(const struct blame_case *one, int64_t first_death_ns)
{
    return one->end.signalled && one->ended_ns - first_death_ns < BLAME_SETTLE_NS;
}

static bool is_earlier(const struct blame_case *one, const struct blame_case *other,
                       int64_t first_death_ns)
{
    bool cause = is_cause(one, first_death_ns);

    if (cause != is_cause(other, first_death_ns)) {
        return cause;
    }
    if (!cause && one->first_error_ns != other->first_error_ns) {
        return one->first_error_ns < other->first_error_ns;
    }
    return one->order < other->order;
}

int32_t blame_first(const struct blame_case *cases, int32_t count)
{
    int64_t first_death_ns = INT64_MAX;
    int32_t first = -1;

    for (int32_t i = 0; i < count; i++) {
        if (cases[i].failed && cases[i].ended_ns < first_death_ns) {
            first_death_ns = cases[i].ended_ns;
        }
    }
    for (int32_t i = 0; i < count; i++) {
        if (cases[i].failed &&
            (first < 0 || is_earlier(&cases[i], &cases[first], first_death_ns))) {
            first = i;
        }
    }
    return first;
}
