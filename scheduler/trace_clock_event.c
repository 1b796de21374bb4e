#include "scheduler/trace_clock_event.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

size_t trace_clock_event_print(int32_t pid, const struct trace_clock *clock, int64_t moved_ns,
                               char *out, size_t out_bytes)
{
    int length =
        snprintf(out, out_bytes,
                 "{\"ph\":\"M\",\"name\":\"" TRACE_CLOCK_EVENT_NAME
                 "\",\"pid\":%d,\"tid\":0,\"args\":{\"at_ns\":%" PRId64 ",\"offset_ns\":%" PRId64
                 ",\"uncertainty_ns\":%" PRId64 ",\"moved_ns\":%" PRId64 "}}",
                 (int)pid, clock->at_ns, clock->offset_ns, clock->uncertainty_ns, moved_ns);

    return length < 0 ? 0 : (size_t)length;
}

static enum status take_ns(const json_t *args, const char *key, int64_t least, int64_t *ns_out)
{
    const json_t *value = json_object_get(args, key);

    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > TRACE_CLOCK_MOST_NS) {
        return status_note(STATUS_ERR_FORMAT,
                           "clock: expected whole nanoseconds from %" PRId64 " to %" PRId64
                           " as \"%s\"",
                           least, TRACE_CLOCK_MOST_NS, key);
    }
    *ns_out = json_integer_value(value);
    return STATUS_OK;
}

enum status trace_clock_event_take(const struct json_t *args, struct trace_clock *clock_out,
                                   int64_t *moved_out)
{
    TRY(take_ns(args, "at_ns", -TRACE_CLOCK_MOST_NS, &clock_out->at_ns));
    TRY(take_ns(args, "offset_ns", -TRACE_CLOCK_MOST_NS, &clock_out->offset_ns));
    TRY(take_ns(args, "uncertainty_ns", 0, &clock_out->uncertainty_ns));
    *moved_out = 0;
    return json_object_get(args, "moved_ns") == NULL
               ? STATUS_OK
               : take_ns(args, "moved_ns", -TRACE_CLOCK_MOST_NS, moved_out);
}
