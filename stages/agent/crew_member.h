/*
 * crew_member -- one process of a crew with its environment, its log and its two streams.
 *
 * The crew (stages/agent/crew.h) decides who is told what; a member only starts, moves its output
 * and knows how it ended.
 */
#ifndef STAGES_AGENT_CREW_MEMBER_H
#define STAGES_AGENT_CREW_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/agent/crew.h"
#include "stages/agent/log_pump.h"
#include "stages/agent/log_tail.h"
#include "stages/agent/process.h"
#include "stages/agent/sink.h"

#ifdef __cplusplus
extern "C" {
#endif

struct crew_member {
    int32_t rank;
    struct process process; /* pid 0: not started, or reaped */
    struct process_end end;
    int64_t ended_ns;
    int32_t order; /* of its end among the members */
    bool told;     /* it had been told to stop, or was killed by us, before it ended */
    bool failed;   /* ended badly, and not because it was told */
    int file;      /* its log; -1: not open */
    struct log_pump out;
    struct log_pump err;
    struct log_tail tail; /* of stderr */
};

/* Makes a zeroed member one that has not been started. */
void crew_member_init(struct crew_member *member, int32_t rank);

/* Opens the log and starts the process. The sinks are borrowed until crew_member_release().
 * On failure the member is as after init. */
enum status crew_member_start(struct crew_member *member, const struct crew_config *config,
                              struct sink *out, struct sink *err);

/* Whether it has just ended; takes over its last output and closes its log. */
bool crew_member_reap(struct crew_member *member);

/* Safe after init, and twice. The process has been reaped, or never started. */
void crew_member_release(struct crew_member *member);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_AGENT_CREW_MEMBER_H */
