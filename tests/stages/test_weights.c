/* Weights in and out of files: whole, in shards, between layouts, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/checkpoint/safetensors.h"
#include "stages/checkpoint/weights.h"
#include "tests/stages/weights_folder.h"

/* 2 of the embedding, 12 of each of 3 layers, 2 of the final norm. */
#define TENSORS 40

/* V·C + positions·C + L·(12·C² + 13·C) + 2·C with V 11, C 8, positions 6, L 3. */
#define ELEMS (11 * 8 + 6 * 8 + 3 * (12 * 64 + 13 * 8) + 16)

/* A shape without shards. */
#define WHOLE_SHAPE(T_, C_, H_, F_, V_, L_, positions_)                                      \
    {                                                                                        \
        .B = 1, .T = (T_), .C = (C_), .H = (H_), .D = (C_) / (H_), .F = (F_), .V = (V_),     \
        .L = (L_), .positions = (positions_), .eps = 1e-5F, .init_std = 0.02F, .tied = true, \
        .shards = 1, .heads = (H_), .width = (C_), .inner = (F_), .vocab = (V_)              \
    }

static const struct model_shape small = WHOLE_SHAPE(5, 8, 2, 32, 11, 3, 6);

static const struct chunk_range everything = {.layers = 3, .has_embedding = true, .has_head = true};

/* Parameters of `range`, drawn from `seed`, with the head's copy where there is one. */
static void make_rank(struct params *params, struct head_memory *head,
                      const struct model_shape *shape, const struct chunk_range *range,
                      uint64_t seed)
{
    *params = (struct params){.table = NULL};
    *head = (struct head_memory){.copy = NULL};
    assert_int_equal(parameters_add(params, shape, range), STATUS_OK);
    params_measure(params);
    assert_int_equal(params_place(params), STATUS_OK);
    assert_int_equal(params_initialize(params, seed), STATUS_OK);
    arena_measure(&head->arena, "head");
    head_memory_carve(head, shape, range->has_embedding, range->has_head);
    assert_int_equal(arena_allocate(&head->arena, true), STATUS_OK);
    head_memory_carve(head, shape, range->has_embedding, range->has_head);
}

static void drop_rank(struct params *params, struct head_memory *head)
{
    params_release(params);
    arena_release(&head->arena);
}

/* The file of a stage without tensor parallelism. */
static void export_file(int32_t stage, int32_t stages, const struct params *params)
{
    const struct weights_file file = {
        .directory = weights_folder(), .stage = stage, .stages = stages};

    assert_int_equal(weights_export_begin(&file, params), STATUS_OK);
    assert_int_equal(weights_export_write(&file, params), STATUS_OK);
    assert_int_equal(weights_export_end(&file), STATUS_OK);
}

/* Each tensor of `params` has the values of its namesake in `model`. */
static void assert_values(const struct params *params, const struct params *model)
{
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *found = &params->table[i];
        const struct param *expected = params_find(model, found->name);

        assert_non_null(expected);
        assert_int_equal(found->elems, expected->elems);
        assert_memory_equal(found->weight, expected->weight, found->elems * sizeof(float));
    }
}

static void one_stage_writes_the_names_and_shapes_of_the_format(void **state)
{
    static const struct {
        const char *name;
        int32_t dims;
        int64_t shape[2];
    } expected[] = {
        {"wte.weight", 2, {11, 8}},
        {"wpe.weight", 2, {6, 8}},
        {"h.0.ln_1.weight", 1, {8, 0}},
        {"h.1.attn.c_attn.weight", 2, {8, 24}},
        {"h.1.attn.c_attn.bias", 1, {24, 0}},
        {"h.1.attn.c_proj.weight", 2, {8, 8}},
        {"h.2.mlp.c_fc.weight", 2, {8, 32}},
        {"h.2.mlp.c_fc.bias", 1, {32, 0}},
        {"h.2.mlp.c_proj.weight", 2, {32, 8}},
        {"ln_f.bias", 1, {8, 0}},
    };
    struct params params;
    struct head_memory head;
    struct safetensors *file = NULL;

    (void)state;
    make_rank(&params, &head, &small, &everything, 1);
    export_file(0, 1, &params);
    assert_int_equal(safetensors_open(weights_inside("model.safetensors"), &file), STATUS_OK);
    assert_int_equal(safetensors_count(file), TENSORS);
    assert_null(safetensors_find(file, "lm_head.weight"));
    assert_string_equal(safetensors_metadata(file, "format"), "pt");
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const struct safetensors_entry *entry = safetensors_find(file, expected[i].name);

        assert_non_null(entry);
        assert_int_equal(entry->dtype, SAFETENSORS_F32);
        assert_int_equal(entry->dims, expected[i].dims);
        assert_memory_equal(entry->shape, expected[i].shape,
                            (size_t)entry->dims * sizeof(entry->shape[0]));
        assert_memory_equal(entry->data, params_find(&params, expected[i].name)->weight,
                            entry->bytes);
    }
    safetensors_close(&file);
    drop_rank(&params, &head);
}

static void what_one_stage_writes_any_stage_reads_back(void **state)
{
    static const struct chunk_range ranges[] = {
        {.first_layer = 0, .layers = 3, .has_embedding = true, .has_head = true},
        {.first_layer = 0, .layers = 1, .has_embedding = true},
        {.first_layer = 1, .layers = 1},
        {.first_layer = 2, .layers = 0},
        {.first_layer = 2, .layers = 1, .has_head = true},
    };
    struct params model;
    struct head_memory model_head;

    (void)state;
    make_rank(&model, &model_head, &small, &everything, 1);
    export_file(0, 1, &model);
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        struct params params;
        struct head_memory head;

        make_rank(&params, &head, &small, &ranges[i], 2);
        assert_int_equal(
            weights_import(weights_inside("model.safetensors"), "", &params, &head, &small, NULL),
            STATUS_OK);
        assert_values(&params, &model);
        if (ranges[i].has_head && !ranges[i].has_embedding) {
            assert_memory_equal(head.copy, params_find(&model, "wte.weight")->weight,
                                sizeof(float) * 11 * 8);
        }
        drop_rank(&params, &head);
    }
    drop_rank(&model, &model_head);
}

/* A shard that `range` writes and reads back; with the head alone, the word embedding is in
 * another's shard. */
static void export_shard(int32_t stage, int32_t stages, const struct chunk_range *range)
{
    struct params params;
    struct params again;
    struct head_memory head;
    struct head_memory head_again;
    char name[64];

    make_rank(&params, &head, &small, range, 1);
    export_file(stage, stages, &params);
    if (head.copy == NULL) {
        make_rank(&again, &head_again, &small, range, 2);
        (void)snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", stage + 1, stages);
        assert_int_equal(
            weights_import(weights_inside(name), "", &again, &head_again, &small, NULL), STATUS_OK);
        assert_values(&again, &params);
        drop_rank(&again, &head_again);
    }
    drop_rank(&params, &head);
}

/* The shards of stages that hold `stage_of`'s layers, and an index that names each tensor's file
 * once. */
static void export_and_check_shards(int32_t stages, const int32_t *stage_of,
                                    const struct chunk_range *ranges)
{
    const struct config_model model = {.layer_norm_eps = 1e-5};
    json_t *index = NULL;
    const json_t *map = NULL;
    size_t tensors = 0;

    for (int32_t stage = 0; stage < stages; stage++) {
        export_shard(stage, stages, &ranges[stage]);
    }
    assert_int_equal(
        weights_export_index(weights_folder(), &(struct weights_index){.stages = stages,
                                                                       .stage_of = stage_of,
                                                                       .shape = &small,
                                                                       .model = &model}),
        STATUS_OK);
    index = weights_read_json("model.safetensors.index.json");
    map = json_object_get(index, "weight_map");
    assert_int_equal(json_object_size(map), TENSORS);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
        4 * ELEMS);
    for (int32_t stage = 0; stage < stages; stage++) {
        struct safetensors *file = NULL;
        char name[64];

        (void)snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", stage + 1, stages);
        assert_int_equal(safetensors_open(weights_inside(name), &file), STATUS_OK);
        for (size_t i = 0; i < safetensors_count(file); i++) {
            const json_t *where = json_object_get(map, safetensors_at(file, i)->name);

            assert_string_equal(json_string_value(where), name);
        }
        tensors += safetensors_count(file);
        safetensors_close(&file);
    }
    assert_int_equal(tensors, TENSORS);
    json_decref(index);
}

static void shards_and_their_index_hold_each_tensor_once(void **state)
{
    static const int32_t two[] = {0, 0, 1};
    static const struct chunk_range two_ranges[] = {
        {.first_layer = 0, .layers = 2, .has_embedding = true},
        {.first_layer = 2, .layers = 1, .has_head = true},
    };
    static const int32_t four[] = {1, 1, 1};
    static const struct chunk_range four_ranges[] = {
        {.first_layer = 0, .layers = 0, .has_embedding = true},
        {.first_layer = 0, .layers = 3},
        {.first_layer = 3, .layers = 0},
        {.first_layer = 3, .layers = 0, .has_head = true},
    };

    (void)state;
    export_and_check_shards(2, two, two_ranges);
    export_and_check_shards(4, four, four_ranges);
}

/* A copy of model.safetensors as bad.safetensors, with one entry changed by `change`, refused
 * with `words` by a rank that holds everything. */
static void assert_refused_after(const char *name, void (*change)(struct safetensors_entry *),
                                 const char *words)
{
    struct safetensors_entry entries[TENSORS];
    struct params params;
    struct head_memory head;
    struct safetensors *file = NULL;
    const char *message = status_last()->message;
    int changed = 0;

    make_rank(&params, &head, &small, &everything, 1);
    export_file(0, 1, &params);
    assert_int_equal(safetensors_open(weights_inside("model.safetensors"), &file), STATUS_OK);
    for (size_t i = 0; i < TENSORS; i++) {
        entries[i] = *safetensors_at(file, i);
        if (strcmp(entries[i].name, name) == 0) {
            change(&entries[i]);
            changed++;
        }
    }
    assert_int_equal(changed, 1);
    assert_int_equal(
        safetensors_write(weights_inside("bad.safetensors"), entries, TENSORS, NULL, 0), STATUS_OK);
    safetensors_close(&file);
    assert_int_equal(
        weights_import(weights_inside("bad.safetensors"), "", &params, &head, &small, NULL),
        STATUS_ERR_REFUSED);
    assert_non_null(strstr(message, "bad.safetensors"));
    assert_non_null(strstr(message, name));
    if (strstr(message, words) == NULL) {
        fail_msg("\"%s\" holds no \"%s\"", message, words);
    }
    drop_rank(&params, &head);
}

static void rename_it(struct safetensors_entry *entry)
{
    entry->name[0] = 'x';
}

static void transpose_it(struct safetensors_entry *entry)
{
    int64_t rows = entry->shape[0];

    entry->shape[0] = entry->shape[1];
    entry->shape[1] = rows;
}

static void flatten_it(struct safetensors_entry *entry)
{
    entry->shape[0] *= entry->shape[1];
    entry->dims = 1;
}

static void make_it_a_matrix(struct safetensors_entry *entry)
{
    entry->shape[1] = entry->shape[0];
    entry->shape[0] = 1;
    entry->dims = 2;
}

static void make_it_integers(struct safetensors_entry *entry)
{
    entry->dtype = SAFETENSORS_I32;
}

static void drop_a_row(struct safetensors_entry *entry)
{
    entry->shape[0]--;
    entry->bytes -= (size_t)entry->shape[1] * sizeof(float);
}

static void a_tensor_that_is_missing_or_other_is_refused_by_name(void **state)
{
    (void)state;
    assert_refused_after("h.1.ln_2.bias", rename_it, "no tensor h.1.ln_2.bias");
    assert_refused_after("h.1.mlp.c_fc.weight", transpose_it,
                         "expected F32 8 × 32, found F32 [32, 8]");
    assert_refused_after("wte.weight", drop_a_row, "expected F32 11 × 8, found F32 [10, 8]");
    assert_refused_after("h.0.attn.c_proj.weight", flatten_it, "found F32 [64]");
    assert_refused_after("ln_f.weight", make_it_a_matrix, "found F32 [1, 8]");
    assert_refused_after("wpe.weight", make_it_integers, "found another type, [6, 8]");
}

static void a_wrong_prefix_is_refused_with_what_was_looked_for(void **state)
{
    struct params params;
    struct head_memory head;
    const char *message = status_last()->message;

    (void)state;
    make_rank(&params, &head, &small, &everything, 1);
    export_file(0, 1, &params);
    assert_int_equal(weights_import(weights_inside("model.safetensors"), "transformer.", &params,
                                    &head, &small, NULL),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(message, "no tensor transformer.wte.weight"));
    assert_non_null(strstr(message, "checkpoint.import_prefix is \"transformer.\""));
    assert_int_equal(
        weights_import(weights_inside("none.safetensors"), "", &params, &head, &small, NULL),
        STATUS_ERR_REFUSED);
    assert_non_null(strstr(message, "none.safetensors"));
    drop_rank(&params, &head);
}

/* The last stage has no embedding of its own: its head's copy has to be in the file too. */
static void a_head_without_its_embedding_in_the_file_is_refused(void **state)
{
    static const struct chunk_range last = {.first_layer = 2, .layers = 1, .has_head = true};
    struct params params;
    struct head_memory head;

    (void)state;
    make_rank(&params, &head, &small, &last, 1);
    export_file(1, 2, &params);
    assert_int_equal(weights_import(weights_inside("model-00002-of-00002.safetensors"), "", &params,
                                    &head, &small, NULL),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "no tensor wte.weight"));
    drop_rank(&params, &head);
}

/* First, second and last value of a tensor, read from the file by another program. */
struct oracle {
    const char *name;
    float first;
    float second;
    float last;
};

static void assert_oracle(const char *path, const struct model_shape *shape,
                          const struct oracle *oracle, size_t count)
{
    const struct chunk_range range = {
        .layers = (int32_t)shape->L, .has_embedding = true, .has_head = true};
    struct params params;
    struct head_memory head;

    make_rank(&params, &head, shape, &range, 1);
    assert_int_equal(weights_import(path, "init.", &params, &head, shape, NULL), STATUS_OK);
    for (size_t i = 0; i < count; i++) {
        const struct param *param = params_find(&params, oracle[i].name);

        assert_non_null(param);
        assert_true(((const float *)param->weight)[0] == oracle[i].first);
        assert_true(((const float *)param->weight)[1] == oracle[i].second);
        assert_true(((const float *)param->weight)[param->elems - 1] == oracle[i].last);
    }
    drop_rank(&params, &head);
}

static void both_reference_files_are_read_under_their_prefix(void **state)
{
    static const struct model_shape a = WHOLE_SHAPE(32, 64, 4, 256, 256, 4, 32);
    static const struct oracle of_a[] = {
        {"wte.weight", -0x1.06c5cap-5F, 0x1.501172p-10F, -0x1.04e67cp-6F},
        {"h.1.attn.c_attn.weight", -0x1.87a4dap-10F, 0x1.27d35ep-7F, -0x1.20877cp-10F},
        {"h.2.mlp.c_proj.weight", 0x1.1fbd92p-7F, -0x1.cd0942p-8F, 0x1.579dfcp-7F},
        {"h.0.attn.c_attn.bias", 0x1.14a98cp-6F, -0x1.9be45ep-7F, 0x1.2de2dep-9F},
        {"ln_f.weight", 0x1.b480e4p-1F, 0x1.0ed342p+0F, 0x1.f68f72p-1F},
    };
    static const struct model_shape b = WHOLE_SHAPE(20, 48, 6, 192, 131, 3, 20);
    static const struct oracle of_b[] = {
        {"wte.weight", 0x1.1857e4p-7F, -0x1.761aa6p-7F, -0x1.eaa03cp-7F},
        {"h.1.attn.c_attn.weight", -0x1.3324d4p-7F, -0x1.030d24p-6F, 0x1.95cfe6p-7F},
        {"h.2.mlp.c_proj.weight", 0x1.c5c5a8p-7F, -0x1.adafap-9F, 0x1.52b938p-7F},
        {"h.0.attn.c_attn.bias", -0x1.1b0bc2p-6F, 0x1.918ad4p-6F, -0x1.a9925cp-6F},
        {"ln_f.weight", 0x1.b71d1ap-1F, 0x1.075994p+0F, 0x1.e2ee34p-1F},
    };

    (void)state;
    assert_oracle(TEST_REFERENCE_DIR "/gpt2_a.safetensors", &a, of_a, 5);
    assert_oracle(TEST_REFERENCE_DIR "/gpt2_b_masked.safetensors", &b, of_b, 5);
}

#define CLEAN(test) \
    cmocka_unit_test_setup_teardown(test, weights_folder_make, weights_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLEAN(one_stage_writes_the_names_and_shapes_of_the_format),
        CLEAN(what_one_stage_writes_any_stage_reads_back),
        CLEAN(shards_and_their_index_hold_each_tensor_once),
        CLEAN(a_tensor_that_is_missing_or_other_is_refused_by_name),
        CLEAN(a_wrong_prefix_is_refused_with_what_was_looked_for),
        CLEAN(a_head_without_its_embedding_in_the_file_is_refused),
        cmocka_unit_test(both_reference_files_are_read_under_their_prefix),
    };

    return cmocka_run_group_tests_name("weights", tests, NULL, NULL);
}
