#include "collectives/control_message.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "collectives/control_clock.h"
#include "collectives/process_watch.h"

/* No clock says more: sums and differences of two times fit. */
#define MOST_NS (INT64_C(1) << 60)

static const char *const words[] = {
#define X(name, word) [CONTROL_KIND_##name] = (word),
    CONTROL_KIND_TABLE(X)
#undef X
};

void control_head_put(struct message_pack *pack, enum control_kind kind, uint64_t job, int32_t rank)
{
    message_pack_begin(pack);
    message_put_int(pack, "version", CONTROL_VERSION);
    message_put_text(pack, "kind", words[kind]);
    message_put_uint(pack, "job", job);
    message_put_int(pack, "rank", rank);
}

/* An integer that fits an int32. */
static enum status get_int32(const struct message_view *view, const char *name, int32_t least,
                             int32_t most, int32_t *value_out)
{
    int64_t value = 0;

    TRY(message_get_int(view, name, least, most, &value));
    *value_out = (int32_t)value;
    return STATUS_OK;
}

static enum status get_bool(const struct message_view *view, const char *name, bool *value_out)
{
    int64_t value = 0;

    TRY(message_get_int(view, name, 0, 1, &value));
    *value_out = value != 0;
    return STATUS_OK;
}

static enum status get_status(const struct message_view *view, enum status *status_out)
{
    int64_t value = 0;

    TRY(message_get_int(view, "status", STATUS_ERR_NUMERIC, STATUS_OK, &value));
    *status_out = (enum status)value;
    return STATUS_OK;
}

enum status control_head_get(const struct message_view *view, struct control_head *head)
{
    char word[16];

    TRY(message_get_int(view, "version", 0, INT32_MAX, &head->version));
    TRY(message_get_text(view, "kind", word, sizeof(word)));
    TRY(message_get_uint(view, "job", &head->job));
    TRY(get_int32(view, "rank", INT32_MIN, INT32_MAX, &head->rank));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i]) == 0) {
            head->kind = (enum control_kind)i;
            return STATUS_OK;
        }
    }
    return status_note(STATUS_ERR_FORMAT, "message of rank %d: unknown kind '%s'", (int)head->rank,
                       word);
}

void control_place_here(struct control_place *place)
{
    memset(place, 0, sizeof(*place));
    if (gethostname(place->host, sizeof(place->host) - 1) != 0) {
        (void)snprintf(place->host, sizeof(place->host), "?");
    }
    place->pid = (int64_t)getpid();
    place->space = process_space();
    place->clock = control_clock_name();
}

void control_place_put(struct message_pack *pack, const struct control_place *place)
{
    message_put_text(pack, "host", place->host);
    message_put_int(pack, "pid", place->pid);
    message_put_uint(pack, "space", place->space);
    message_put_uint(pack, "clock", place->clock);
}

enum status control_place_get(const struct message_view *view, struct control_place *place)
{
    TRY(message_get_text(view, "host", place->host, sizeof(place->host)));
    TRY(message_get_int(view, "pid", 1, INT32_MAX, &place->pid));
    TRY(message_get_uint(view, "space", &place->space));
    return message_get_uint(view, "clock", &place->clock);
}

void control_hello_put(struct message_pack *pack, const struct control_hello *hello)
{
    message_put_int(pack, "world", hello->world);
    message_put_uint(pack, "config", hello->config_hash);
    message_put_text(pack, "variant", hello->variant);
    message_put_text(pack, "device", hello->device);
    control_place_put(pack, &hello->place);
}

enum status control_hello_get(const struct message_view *view, struct control_hello *hello)
{
    TRY(get_int32(view, "world", 1, INT32_MAX, &hello->world));
    TRY(message_get_uint(view, "config", &hello->config_hash));
    TRY(message_get_text(view, "variant", hello->variant, sizeof(hello->variant)));
    TRY(message_get_text(view, "device", hello->device, sizeof(hello->device)));
    return control_place_get(view, &hello->place);
}

void control_beat_put(struct message_pack *pack, const struct control_beat *beat)
{
    message_put_int(pack, "step", beat->progress.step);
    message_put_int(pack, "phase", beat->progress.phase);
    message_put_int(pack, "action", beat->progress.action);
    message_put_int(pack, "waits", beat->progress.waits ? 1 : 0);
    message_put_int(pack, "device", beat->progress.device);
    message_put_int(pack, "inside", beat->progress.inside ? 1 : 0);
    message_put_int(pack, "stands", beat->progress.stands ? 1 : 0);
    message_put_int(pack, "still_ns", beat->still_ns);
    message_put_int(pack, "in_round", beat->in_round ? 1 : 0);
}

enum status control_beat_get(const struct message_view *view, struct control_beat *beat)
{
    TRY(message_get_int(view, "step", INT64_MIN, INT64_MAX, &beat->progress.step));
    TRY(get_int32(view, "phase", INT32_MIN, INT32_MAX, &beat->progress.phase));
    TRY(get_int32(view, "action", INT32_MIN, INT32_MAX, &beat->progress.action));
    TRY(get_bool(view, "waits", &beat->progress.waits));
    TRY(get_int32(view, "device", INT32_MIN, INT32_MAX, &beat->progress.device));
    TRY(get_bool(view, "inside", &beat->progress.inside));
    TRY(get_bool(view, "stands", &beat->progress.stands));
    TRY(message_get_int(view, "still_ns", 0, INT64_MAX, &beat->still_ns));
    return get_bool(view, "in_round", &beat->in_round);
}

void control_cause_put(struct message_pack *pack, const struct control_cause *cause)
{
    message_put_int(pack, "status", cause->status);
    message_put_int(pack, "whose", cause->rank);
    message_put_text(pack, "cause", cause->text);
}

enum status control_cause_get(const struct message_view *view, struct control_cause *cause)
{
    TRY(get_status(view, &cause->status));
    TRY(get_int32(view, "whose", -1, INT32_MAX, &cause->rank));
    return message_get_text(view, "cause", cause->text, sizeof(cause->text));
}

/* Text as long as the reader takes it. */
static void put_cut(struct message_pack *pack, const char *name, const char *text, size_t bytes)
{
    char cut[CONTROL_TEXT_BYTES];

    (void)snprintf(cut, bytes < sizeof(cut) ? bytes : sizeof(cut), "%s", text);
    message_put_text(pack, name, cut);
}

void control_part_put(struct message_pack *pack, const struct control_part *part)
{
    const struct control_round *round = part->round;
    size_t values = (size_t)round->value_count;

    put_cut(pack, "name", round->name, ROUND_NAME_BYTES);
    message_put_uint(pack, "number", round->number);
    message_put_uint(pack, "shape", part->shape);
    message_put_uints(pack, "keys", part->keys, values);
    message_put_doubles(pack, "numbers", part->numbers, values);
    message_put_uints(pack, "bits", part->bits, values);
    put_cut(pack, "note", round->note != NULL ? round->note : "", CONTROL_TEXT_BYTES);
    if (part->names != NULL) {
        message_put_uints(pack, "ops", part->ops, (size_t)round->key_count);
        message_put_texts(pack, "names", part->names, (size_t)round->key_count);
    }
}

static enum status get_keys(const struct message_view *view, struct round *round)
{
    uint64_t ops[CONTROL_KEYS_MOST];
    size_t count = 0;

    TRY(message_get_array(view, "names", CONTROL_KEYS_MOST, &count));
    TRY(message_get_uints(view, "ops", ops, count));
    TRY(round_reserve_keys(round, (int32_t)count));
    for (size_t i = 0; i < count; i++) {
        char name[CONTROL_TEXT_BYTES];

        TRY(message_get_text_at(view, "names", i, name, sizeof(name)));
        if (ops[i] > (uint64_t)CONTROL_SAME) {
            return status_note(STATUS_ERR_FORMAT, "key '%s' has an unknown operation", name);
        }
        round_set_key(round, (int32_t)i, (enum control_op)ops[i], name);
    }
    return STATUS_OK;
}

static enum status get_slot(const struct message_view *view, struct round_slot *slot)
{
    size_t values = (size_t)slot->value_count;

    TRY(message_get_text(view, "name", slot->name, sizeof(slot->name)));
    TRY(message_get_uint(view, "number", &slot->number));
    TRY(message_get_uint(view, "shape", &slot->shape));
    TRY(message_get_text(view, "note", slot->note, sizeof(slot->note)));
    TRY(message_get_uints(view, "keys", slot->keys, values));
    TRY(message_get_doubles(view, "numbers", slot->numbers, values));
    return message_get_uints(view, "bits", slot->bits, values);
}

enum status control_part_get(const struct message_view *view, int32_t rank, struct round *round)
{
    struct round_slot *slot = NULL;
    size_t values = 0;

    if (round_slot_of(round, rank)->given) {
        return status_note(STATUS_ERR_FORMAT, "rank %d gives twice for one round", (int)rank);
    }
    TRY(message_get_array(view, "keys", CONTROL_KEYS_MOST, &values));
    TRY(round_open_slot(round, rank, (int32_t)values, &slot));
    TRY(get_slot(view, slot));
    if (rank == 0) {
        TRY(get_keys(view, round));
    }
    slot->given = true;
    return STATUS_OK;
}

void control_outcome_put(struct message_pack *pack, const struct control_outcome *outcome,
                         const double *numbers, int32_t key_count)
{
    message_put_text(pack, "name", outcome->name);
    message_put_uint(pack, "number", outcome->number);
    message_put_int(pack, "status", outcome->status);
    message_put_text(pack, "text", outcome->text);
    message_put_int(pack, "stop", outcome->stop_signal);
    message_put_int(pack, "note_rank", outcome->note_rank);
    message_put_text(pack, "note", outcome->note);
    message_put_doubles(pack, "numbers", numbers, (size_t)key_count);
}

enum status control_outcome_get(const struct message_view *view, struct control_outcome *outcome,
                                double *numbers, int32_t key_count)
{
    TRY(message_get_text(view, "name", outcome->name, sizeof(outcome->name)));
    TRY(message_get_uint(view, "number", &outcome->number));
    TRY(get_status(view, &outcome->status));
    TRY(message_get_text(view, "text", outcome->text, sizeof(outcome->text)));
    TRY(get_int32(view, "stop", 0, INT32_MAX, &outcome->stop_signal));
    TRY(get_int32(view, "note_rank", -1, INT32_MAX, &outcome->note_rank));
    TRY(message_get_text(view, "note", outcome->note, sizeof(outcome->note)));
    if (outcome->status != STATUS_OK) {
        return STATUS_OK;
    }
    return message_get_doubles(view, "numbers", numbers, (size_t)key_count);
}

void control_ping_put(struct message_pack *pack, uint64_t number)
{
    message_put_uint(pack, "number", number);
}

enum status control_ping_get(const struct message_view *view, uint64_t *number_out)
{
    return message_get_uint(view, "number", number_out);
}

void control_pong_put(struct message_pack *pack, const struct control_pong *pong)
{
    message_put_uint(pack, "number", pong->number);
    message_put_int(pack, "heard_ns", pong->heard_ns);
    message_put_int(pack, "said_ns", pong->said_ns);
}

enum status control_pong_get(const struct message_view *view, struct control_pong *pong)
{
    TRY(message_get_uint(view, "number", &pong->number));
    TRY(message_get_int(view, "heard_ns", -MOST_NS, MOST_NS, &pong->heard_ns));
    return message_get_int(view, "said_ns", pong->heard_ns, MOST_NS, &pong->said_ns);
}
