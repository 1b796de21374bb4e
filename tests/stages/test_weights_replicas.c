/* Weights of which replicas have slices: one file of fp32 main params, whoever owns them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "stages/checkpoint/safetensors.h"
#include "stages/checkpoint/weights.h"
#include "tests/stages/sharded_weights.h"
#include "tests/stages/weights_folder.h"

/* Which rank of one stage. */
struct place {
    int32_t shard;
    int32_t shards;
    int32_t replica;
    int32_t replicas;
    bool all; /* tensors are sliced, not the first alone */
};

/* What a rank has in bf16: copies that are all NaN, and main params of what it owns. Where every replica
 * has all of a tensor, only the first has it right. */
static void make_rank(struct params *params, const struct place *place, bool filled)
{
    params_init(params, DTYPE_BF16, 2);
    for (int32_t i = 0; i < SHARDED_WEIGHTS; i++) {
        struct param part = sharded_weights_part(i, place->shard, place->shards);

        assert_int_equal(params_add(params, &part), STATUS_OK);
        if (i == 0 && !place->all) {
            struct params first = {.table = params->table, .count = 1};

            params_shard(&first, place->replicas, place->replica);
        }
    }
    if (place->all) {
        params_shard(params, place->replicas, place->replica);
    }
    params_measure(params);
    assert_int_equal(params_place(params), STATUS_OK);
    memset(params->weights.memory, 0xFF, params->weights.planned_bytes);
    memset(params->main.memory, 0xFF, params->main.planned_bytes);
    for (int32_t i = 0; i < SHARDED_WEIGHTS && filled; i++) {
        struct param whole = params->table[i];

        if (whole.sliced || place->replica == 0) {
            whole.weight = calloc(whole.elems + 1, sizeof(float));
            assert_non_null(whole.weight);
            sharded_weights_fill(&whole, i);
            memcpy(whole.main, (float *)whole.weight + whole.own_first,
                   whole.own_elems * sizeof(float));
            free(whole.weight);
        }
    }
}

static struct weights_file file_of(const struct place *place)
{
    return (struct weights_file){.directory = weights_folder(),
                                 .stages = 1,
                                 .shard = place->shard,
                                 .replica = place->replica};
}

/* The second replica last: where it wrote what is the first's, it would be seen. */
static void export_by(int32_t shards, int32_t replicas, bool all)
{
    const struct place none = {.shards = shards};
    const struct weights_file first = file_of(&none);

    for (int32_t rank = 0; rank < shards * replicas; rank++) {
        struct place place = {rank % shards, shards, rank / shards, replicas, all};
        struct weights_file file = file_of(&place);
        struct params params;

        make_rank(&params, &place, true);
        if (rank == 0) {
            assert_int_equal(weights_export_begin(&first, &params), STATUS_OK);
        }
        assert_int_equal(weights_export_write(&file, &params), STATUS_OK);
        params_release(&params);
    }
    assert_int_equal(weights_export_end(&first), STATUS_OK);
}

static void check_file(void)
{
    struct safetensors *file = NULL;

    assert_int_equal(safetensors_open(weights_inside("model.safetensors"), &file), STATUS_OK);
    for (int32_t i = 0; i < SHARDED_WEIGHTS; i++) {
        const struct sharded_weight *tensor = &sharded_weights[i];
        const struct safetensors_entry *entry = safetensors_find(file, tensor->name);

        assert_non_null(entry);
        for (int64_t e = 0; e < tensor->rows * tensor->cols; e++) {
            float found = 0.0F;

            memcpy(&found, (const char *)entry->data + 4 * e, sizeof(found));
            assert_true(found == sharded_weights_value(i, e / tensor->cols, e % tensor->cols));
        }
    }
    safetensors_close(&file);
}

static void replicas_write_main_params_slice_by_slice(void **state)
{
    (void)state;
    for (int32_t shards = 1; shards <= 2; shards++) {
        for (int32_t replicas = 1; replicas <= 3; replicas++) {
            export_by(shards, replicas, false);
            check_file();
            export_by(shards, replicas, true);
            check_file();
        }
    }
}

/* Into a model of 16 bits: exact in main params, rounded in the copy. */
static void replicas_read_their_slices_and_round_the_rest(void **state)
{
    const struct head_memory head = {.copy = NULL};
    const struct model_shape shape = {.V = 257};

    (void)state;
    export_by(2, 1, false);
    for (int32_t rank = 0; rank < 6; rank++) {
        const struct place place = {rank % 2, 2, rank / 2, 3, true};
        struct params found;
        struct params expected;
        struct params whole;

        make_rank(&found, &place, false);
        make_rank(&expected, &place, true);
        sharded_weights_make(&whole, place.shard, 2, true);
        assert_int_equal(
            weights_import(weights_inside("model.safetensors"), "", &found, &head, &shape, NULL),
            STATUS_OK);
        for (int32_t i = 0; i < SHARDED_WEIGHTS; i++) {
            const struct param *param = &found.table[i];
            const uint16_t *halves = param->weight;

            assert_memory_equal(param->main, expected.table[i].main,
                                param->own_elems * sizeof(float));
            for (size_t e = 0; e < param->elems; e++) {
                assert_int_equal(halves[e],
                                 dtype_to_bf16(((const float *)whole.table[i].weight)[e]));
            }
        }
        sharded_weights_drop(&whole);
        params_release(&found);
        params_release(&expected);
    }
}

#define CLEAN(test) \
    cmocka_unit_test_setup_teardown(test, weights_folder_make, weights_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLEAN(replicas_write_main_params_slice_by_slice),
        CLEAN(replicas_read_their_slices_and_round_the_rest),
    };

    return cmocka_run_group_tests_name("weights_replicas", tests, NULL, NULL);
}
