/* control_link_clock -- the control thread's side of a measurement of the clock. */
#include "base/clock.h"
#include "collectives/control_link_state.h"

int64_t control_link_now(const struct control_link *link)
{
    return link->config->now != NULL ? link->config->now(link->config->context) : clock_now_ns();
}

enum status control_link_ping(struct control_link *link)
{
    struct clock_probe *probe = &link->probe;
    const struct clock_probe before = *probe;

    if (probe->left == 0 || probe->awaited) {
        return STATUS_OK;
    }
    control_link_begin(link, CONTROL_KIND_CLOCK);
    clock_probe_send(probe, control_link_now(link));
    control_ping_put(link->pack, probe->number);
    enum status status = control_link_send(link);

    if (status != STATUS_OK) {
        *probe = before; /* the queue is full: at the next turn */
    }
    return status;
}

void control_link_ask_clock(struct control_link *link, uint64_t asked)
{
    link->probe_asked = asked;
    if (link->config->now == NULL && control_clock_is_shared(&link->here, &link->host)) {
        desk_lay_clock(link->desk, asked, &(struct control_clock){.differs = false});
    } else {
        clock_probe_begin(&link->probe, CONTROL_CLOCK_ROUNDS);
    }
}

enum status control_link_hear_clock(struct control_link *link, int64_t come_ns)
{
    struct control_pong pong;

    TRY(control_pong_get(link->view, &pong));
    if (clock_probe_take(&link->probe, &pong, come_ns)) {
        desk_lay_clock(link->desk, link->probe_asked, &link->probe.best);
    }
    return control_link_ping(link);
}
