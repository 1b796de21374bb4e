/* The files beside the weights: which tensor is where, and what kind of model it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "stages/checkpoint/weights.h"
#include "tests/stages/weights_folder.h"

static const struct config_model model = {.num_layers = 3,
                                          .hidden_size = 8,
                                          .num_heads = 2,
                                          .ffn_hidden_size = 32,
                                          .seq_len = 5,
                                          .max_positions = 6,
                                          .vocab_size = 11,
                                          .tied_embeddings = true,
                                          .init_std = 0.02,
                                          .layer_norm_eps = 1e-5};

static void export_index(const struct config_model *of, int32_t stages, const int32_t *stage_of)
{
    struct config config = {.model = *of,
                            .train = {.micro_batch_size = 1},
                            .parallel = {.tp = 1, .sequence_slices = 1}};
    struct model_shape shape;
    struct weights_index index = {
        .stages = stages, .stage_of = stage_of, .shape = &shape, .model = of};

    model_shape_of(&config, 0, &shape);
    assert_int_equal(weights_export_index(weights_folder(), &index), STATUS_OK);
}

static void the_config_says_what_kind_of_model_it_is(void **state)
{
    static const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"vocab_size", 11}, {"n_positions", 6}, {"n_embd", 8},
                   {"n_layer", 3},     {"n_head", 2},      {"n_inner", 32}};
    static const int32_t stage_of[] = {0, 0, 0};
    json_t *config = NULL;

    (void)state;
    export_index(&model, 1, stage_of);
    assert_int_not_equal(access(weights_inside("model.safetensors.index.json"), F_OK), 0);
    config = weights_read_json("config.json");
    assert_string_equal(json_string_value(json_object_get(config, "model_type")), "gpt2");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0)),
        "GPT2LMHeadModel");
    /* The tanh form of GELU, as it is trained here. */
    assert_string_equal(json_string_value(json_object_get(config, "activation_function")),
                        "gelu_new");
    assert_true(json_is_true(json_object_get(config, "tie_word_embeddings")));
    assert_true(json_real_value(json_object_get(config, "layer_norm_epsilon")) == 1e-5);
    assert_true(json_real_value(json_object_get(config, "initializer_range")) == 0.02);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        assert_int_equal(json_integer_value(json_object_get(config, numbers[i].key)),
                         numbers[i].value);
    }
    json_decref(config);
}

/* As a user wrote them, and not as the nearest binary fraction in 17 digits. */
static void numbers_are_written_as_short_as_they_read_back(void **state)
{
    static const int32_t stage_of[] = {0, 0, 0};
    struct config_model other = model;
    json_t *config = NULL;
    char *text = NULL;
    size_t bytes = 0;

    (void)state;
    export_index(&model, 1, stage_of);
    assert_int_equal(file_read(weights_inside("config.json"), 4096, &text, &bytes), STATUS_OK);
    assert_non_null(strstr(text, "\"initializer_range\": 0.02,"));
    assert_non_null(strstr(text, "\"layer_norm_epsilon\": 1e-5,"));
    free(text);
    /* 1/3 needs 16 digits, this neighbour of 0.1 needs 17. */
    other.layer_norm_eps = 0.10000000000000002;
    other.init_std = 1.0 / 3.0;
    export_index(&other, 1, stage_of);
    config = weights_read_json("config.json");
    assert_true(json_real_value(json_object_get(config, "layer_norm_epsilon")) ==
                0.10000000000000002);
    assert_true(json_real_value(json_object_get(config, "initializer_range")) == 1.0 / 3.0);
    json_decref(config);
}

static void a_head_of_its_own_is_said(void **state)
{
    static const int32_t stage_of[] = {0, 0, 0};
    struct config_model untied = model;
    json_t *config = NULL;

    (void)state;
    untied.tied_embeddings = false;
    export_index(&untied, 1, stage_of);
    config = weights_read_json("config.json");
    assert_true(json_is_false(json_object_get(config, "tie_word_embeddings")));
    json_decref(config);
}

/* Two ranks of two chunks: the layers of a rank need not follow each other. */
static void a_stage_with_several_runs_of_layers_has_all_their_tensors(void **state)
{
    static const int32_t stage_of[] = {0, 1, 0};
    static const struct {
        const char *name;
        int stage;
    } expected[] = {
        {"wte.weight", 1},          {"wpe.weight", 1},          {"h.0.ln_1.weight", 1},
        {"h.1.ln_1.weight", 2},     {"h.1.mlp.c_proj.bias", 2}, {"h.2.attn.c_attn.weight", 1},
        {"h.2.mlp.c_proj.bias", 1}, {"ln_f.weight", 2},         {"ln_f.bias", 2},
    };
    json_t *index = NULL;
    json_t *map = NULL;
    size_t counts[2] = {0, 0};
    const char *name = NULL;
    json_t *value = NULL;

    (void)state;
    export_index(&model, 2, stage_of);
    index = weights_read_json("model.safetensors.index.json");
    map = json_object_get(index, "weight_map");
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        char file[64];

        (void)snprintf(file, sizeof(file), "model-0000%d-of-00002.safetensors", expected[i].stage);
        assert_string_equal(json_string_value(json_object_get(map, expected[i].name)), file);
    }
    json_object_foreach(map, name, value)
    {
        counts[strstr(json_string_value(value), "model-00001") != NULL ? 0 : 1]++;
    }
    /* 12 tensors a layer, two of the embeddings, two of the final norm. */
    assert_int_equal(counts[0], 2 + 2 * 12);
    assert_int_equal(counts[1], 12 + 2);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
        4 * (11 * 8 + 6 * 8 + 3 * (12 * 64 + 13 * 8) + 16));
    json_decref(index);
}

#define CLEAN(test) \
    cmocka_unit_test_setup_teardown(test, weights_folder_make, weights_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLEAN(the_config_says_what_kind_of_model_it_is),
        CLEAN(numbers_are_written_as_short_as_they_read_back),
        CLEAN(a_head_of_its_own_is_said),
        CLEAN(a_stage_with_several_runs_of_layers_has_all_their_tensors),
    };

    return cmocka_run_group_tests_name("weights_index", tests, NULL, NULL);
}
