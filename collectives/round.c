#include "collectives/round.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* One key, and what has been folded into it so far. */
struct fold {
    enum control_op op;
    char name[ROUND_NAME_BYTES];
    int32_t gives;
    int32_t first_rank; /* who gave first */
    uint64_t bits;      /* what it gave */
};

struct round {
    int32_t world;
    struct round_slot *slots; /* (world) owns, with their arrays */
    int32_t key_count;        /* of rank 0's round */
    int32_t key_capacity;
    struct fold *folds; /* (key_capacity) owns */
    double *numbers;    /* (key_capacity) owns */
};

enum status round_create(int32_t world, struct round **round_out)
{
    struct round *round = calloc(1, sizeof(*round));

    if (round != NULL) {
        round->slots = calloc((size_t)world, sizeof(*round->slots));
    }
    if (round == NULL || round->slots == NULL) {
        round_destroy(&round);
        return status_fail(STATUS_ERR_NO_MEMORY, "rounds of %d ranks: %zu bytes", (int)world,
                           (size_t)world * sizeof(struct round_slot));
    }
    round->world = world;
    *round_out = round;
    return STATUS_OK;
}

void round_destroy(struct round **round)
{
    if (*round == NULL) {
        return;
    }
    for (int32_t rank = 0; rank < (*round)->world; rank++) {
        free((*round)->slots[rank].keys);
        free((*round)->slots[rank].numbers);
        free((*round)->slots[rank].bits);
    }
    free((*round)->slots);
    free((*round)->folds);
    free((*round)->numbers);
    free(*round);
    *round = NULL;
}

/* Replaces the array at `array` by one of `elems` elements; what was in it is gone. */
static bool renew(void *array, size_t elems, size_t elem_bytes)
{
    void *old = NULL;
    void *fresh = calloc(elems, elem_bytes);

    if (fresh == NULL) {
        return false;
    }
    memcpy(&old, array, sizeof(old));
    free(old);
    memcpy(array, &fresh, sizeof(fresh));
    return true;
}

enum status round_reserve_keys(struct round *round, int32_t key_count)
{
    ENSURE(key_count >= 0 && key_count <= CONTROL_KEYS_MOST, "%d keys", (int)key_count);
    if (key_count > round->key_capacity) {
        round->key_count = 0;
        round->key_capacity = 0;
        if (!renew((void *)&round->folds, (size_t)key_count, sizeof(*round->folds)) ||
            !renew((void *)&round->numbers, (size_t)key_count, sizeof(*round->numbers))) {
            return status_fail(STATUS_ERR_NO_MEMORY, "round of %d keys", (int)key_count);
        }
        round->key_capacity = key_count;
    }
    round->key_count = key_count;
    return STATUS_OK;
}

void round_set_key(struct round *round, int32_t index, enum control_op op, const char *name)
{
    ENSURE(index >= 0 && index < round->key_count, "key %d", (int)index);
    round->folds[index].op = op;
    (void)snprintf(round->folds[index].name, ROUND_NAME_BYTES, "%s", name);
}

enum status round_open_slot(struct round *round, int32_t rank, int32_t value_count,
                            struct round_slot **slot_out)
{
    ENSURE(rank >= 0 && rank < round->world, "rank %d", (int)rank);
    ENSURE(value_count >= 0 && value_count <= CONTROL_KEYS_MOST, "%d values", (int)value_count);
    struct round_slot *slot = &round->slots[rank];

    if (value_count > slot->capacity) {
        slot->capacity = 0;
        if (!renew((void *)&slot->keys, (size_t)value_count, sizeof(*slot->keys)) ||
            !renew((void *)&slot->numbers, (size_t)value_count, sizeof(*slot->numbers)) ||
            !renew((void *)&slot->bits, (size_t)value_count, sizeof(*slot->bits))) {
            return status_fail(STATUS_ERR_NO_MEMORY, "rank %d: round of %d values", (int)rank,
                               (int)value_count);
        }
        slot->capacity = value_count;
    }
    slot->value_count = value_count;
    *slot_out = slot;
    return STATUS_OK;
}

const struct round_slot *round_slot_of(const struct round *round, int32_t rank)
{
    ENSURE(rank >= 0 && rank < round->world, "rank %d", (int)rank);
    return &round->slots[rank];
}

int32_t round_given(const struct round *round, int32_t *first_out)
{
    int32_t given = 0;

    *first_out = -1;
    for (int32_t rank = 0; rank < round->world; rank++) {
        if (round->slots[rank].given) {
            *first_out = given == 0 ? rank : *first_out;
            given++;
        }
    }
    return given;
}

/* The first failure of a round is its answer. */
static bool fail(struct round_result *result, enum status status)
{
    result->status = status;
    return false;
}

static bool same_round(const struct round *round, struct round_result *result)
{
    const struct round_slot *first = &round->slots[0];

    for (int32_t rank = 1; rank < round->world; rank++) {
        const struct round_slot *slot = &round->slots[rank];

        if (strcmp(slot->name, first->name) != 0 || slot->number != first->number) {
            (void)snprintf(result->text, sizeof(result->text),
                           "rank %d is in %s %" PRIu64 ", rank 0 in %s %" PRIu64, (int)rank,
                           slot->name, slot->number, first->name, first->number);
            return fail(result, STATUS_ERR_FORMAT);
        }
        if (slot->shape != first->shape) {
            (void)snprintf(result->text, sizeof(result->text),
                           "%s %" PRIu64 ": rank %d has other keys than rank 0", first->name,
                           first->number, (int)rank);
            return fail(result, STATUS_ERR_FORMAT);
        }
    }
    return true;
}

static bool fold_once(const struct round *round, const struct fold *fold, int32_t rank,
                      struct round_result *result)
{
    const struct round_slot *slot = &round->slots[rank];

    if (fold->gives > 0) {
        (void)snprintf(result->text, sizeof(result->text),
                       "%s %" PRIu64 ": '%s' must be given once, ranks %d and %d give it",
                       slot->name, slot->number, fold->name, (int)fold->first_rank, (int)rank);
        return fail(result, STATUS_ERR_FORMAT);
    }
    return true;
}

static bool fold_same(const struct round *round, const struct fold *fold, int32_t rank,
                      uint64_t bits, struct round_result *result)
{
    const struct round_slot *slot = &round->slots[rank];

    if (fold->gives > 0 && fold->bits != bits) {
        (void)snprintf(result->text, sizeof(result->text),
                       "%s %" PRIu64 ": '%s' must be the same everywhere, rank %d has 0x%016" PRIx64
                       ", rank %d has 0x%016" PRIx64,
                       slot->name, slot->number, fold->name, (int)fold->first_rank, fold->bits,
                       (int)rank, bits);
        return fail(result, STATUS_ERR_REFUSED);
    }
    return true;
}

static bool fold_value(struct round *round, int32_t rank, int32_t index,
                       struct round_result *result)
{
    const struct round_slot *slot = &round->slots[rank];
    uint64_t key = slot->keys[index];
    double given = slot->numbers[index];
    bool good = true;

    if (key >= (uint64_t)round->key_count) {
        (void)snprintf(result->text, sizeof(result->text),
                       "%s %" PRIu64 ": rank %d gives key %" PRIu64 " of %d", slot->name,
                       slot->number, (int)rank, key, (int)round->key_count);
        return fail(result, STATUS_ERR_FORMAT);
    }
    struct fold *fold = &round->folds[key];
    double *number = &round->numbers[key];

    switch (fold->op) {
    case CONTROL_SUM:
        *number += given;
        break;
    case CONTROL_MAX:
        *number = fold->gives == 0 || isnan(given) || given > *number ? given : *number;
        break;
    case CONTROL_ONCE:
        good = fold_once(round, fold, rank, result);
        *number = given;
        break;
    case CONTROL_SAME:
        good = fold_same(round, fold, rank, slot->bits[index], result);
        break;
    }
    if (fold->gives++ == 0) {
        fold->first_rank = rank;
        fold->bits = slot->bits[index];
    }
    return good;
}

static bool fold_rank(struct round *round, int32_t rank, struct round_result *result)
{
    for (int32_t i = 0; i < round->slots[rank].value_count; i++) {
        if (!fold_value(round, rank, i, result)) {
            return false;
        }
    }
    if (result->note_rank < 0 && round->slots[rank].note[0] != '\0') {
        result->note_rank = rank;
        memcpy(result->note, round->slots[rank].note, sizeof(result->note));
    }
    return true;
}

static bool all_given(const struct round *round, struct round_result *result)
{
    for (int32_t key = 0; key < round->key_count; key++) {
        if (round->folds[key].op == CONTROL_ONCE && round->folds[key].gives == 0) {
            (void)snprintf(result->text, sizeof(result->text),
                           "%s %" PRIu64 ": '%s' must be given once, no rank gives it",
                           round->slots[0].name, round->slots[0].number, round->folds[key].name);
            return fail(result, STATUS_ERR_FORMAT);
        }
    }
    return true;
}

void round_reduce(struct round *round, struct round_result *result)
{
    memset(result, 0, sizeof(*result));
    result->note_rank = -1;
    for (int32_t key = 0; key < round->key_count; key++) {
        round->folds[key].gives = 0;
        round->numbers[key] = 0.0;
    }
    bool good = same_round(round, result);

    for (int32_t rank = 0; good && rank < round->world; rank++) {
        good = fold_rank(round, rank, result);
    }
    if (good) {
        (void)all_given(round, result);
    }
    result->key_count = round->key_count;
    result->numbers = round->numbers;
    for (int32_t rank = 0; rank < round->world; rank++) {
        round->slots[rank].given = false;
    }
}

static uint64_t mix(uint64_t hash, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

uint64_t round_shape(const struct control_key *keys, int32_t key_count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (int32_t i = 0; i < key_count; i++) {
        char op = (char)('0' + (int)keys[i].op);

        hash = mix(hash, &op, 1);
        hash = mix(hash, keys[i].name, strlen(keys[i].name) + 1);
    }
    return hash;
}
