/* What is written is complete and reads back to the same configuration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_rig.h"
#include "stages/config_schema.h"

static char *write_yaml(const struct config *config)
{
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *stream = open_memstream(&text, &text_bytes);

    assert_non_null(stream);
    assert_int_equal(config_write_yaml(config, stream), STATUS_OK);
    assert_int_equal(fclose(stream), 0);
    return text;
}

/* Everything in struct config, padding included: both came from calloc and the same code. */
static void assert_round_trip(const char *first, const char *second)
{
    struct config *config = NULL;
    struct config *again = NULL;
    char *text = NULL;
    char *text_again = NULL;

    assert_int_equal(config_rig_load(config_rig_legal(), first, second, &config), STATUS_OK);
    text = write_yaml(config);
    assert_int_equal(config_rig_load(text, NULL, NULL, &again), STATUS_OK);
    assert_memory_equal(config, again, sizeof(*config));
    assert_true(config_hash(config) == config_hash(again));
    text_again = write_yaml(again);
    assert_string_equal(text, text_again);
    free(text);
    free(text_again);
    config_destroy(&config);
    config_destroy(&again);
}

static void what_is_written_reads_back_to_the_same_configuration(void **state)
{
    (void)state;
    assert_round_trip(NULL, NULL);
    assert_round_trip("optimizer.lr=0.1234567890123456789", "optimizer.eps=1e-300");
    assert_round_trip("data.train=\"quoted\" \\ # : \xc3\xa9 {}.txt", "data.split=0.7,0.2,0.1");
    assert_round_trip("train.memory_limit=3G", "train.threads=7");
    assert_round_trip("trace.last_step=9", "control.stall_after_s=0.1");
    assert_round_trip("parallel.layers_per_stage=0,1,2,3", "parallel.early_send=false");
    assert_round_trip("train.seed=9223372036854775807", "optimizer.lr_schedule=wsd");
    assert_round_trip("checkpoint.import=init.safetensors", "checkpoint.import_prefix=init.");
    assert_round_trip("parallel.pp=1024", "parallel.embedding_sync=zmq");
    assert_round_trip("parallel.tp=2", "parallel.embedding_sync=data_plane");
    assert_round_trip("parallel.dp=8", "model.tied_embeddings=false");
    assert_round_trip("parallel.schedule=interleaved_1f1b", "parallel.virtual_stages=3");
    assert_round_trip("parallel.schedule=file:plan.csv", "parallel.virtual_stages=2");
    assert_round_trip("precision.dtype=bf16", "parallel.zero_stage=3");
    assert_round_trip("parallel.sequence_parallel=true", "parallel.tp=2");
    assert_round_trip("precision.dtype=fp16", "precision.hysteresis=3");
    assert_round_trip("precision.dtype=fp16", "precision.loss_scale=1024");
    assert_round_trip("train.recompute=full", "model.dropout=0.1");
    assert_round_trip("train.recompute=[full, none, selective, none]", "train.log_num_zeros=true");
    assert_round_trip("optimizer.name=sgd", "optimizer.momentum=0");
    assert_round_trip("optimizer.weight_decay_schedule=linear", "optimizer.end_weight_decay=0.5");
    assert_round_trip("checkpoint.allow_change=seed,data,optimizer.beta1", "checkpoint.every=7");
    assert_round_trip("checkpoint.dir=a b", "checkpoint.resume=never");
    assert_round_trip("parallel.schedule=file:../a \"b\": # {}.csv", NULL);
}

static void every_key_is_written_in_the_order_of_the_table(void **state)
{
    struct config *config = NULL;
    char *text = NULL;
    const char *at = NULL;

    (void)state;
    assert_int_equal(config_rig_load(config_rig_legal(), NULL, NULL, &config), STATUS_OK);
    text = write_yaml(config);
    at = text;
    for (size_t i = 0; i < config_schema_count(); i++) {
        char line[128];

        (void)snprintf(line, sizeof(line), "\n  %s: ", config_schema_at(i)->name);
        at = strstr(at, line);
        assert_non_null(at);
        at++;
    }
    assert_non_null(strstr(text, "\n  layers_per_stage: [2, 2, 1, 1]\n"));
    assert_non_null(strstr(text, "\n  global_batch_size: 8\n"));
    assert_non_null(strstr(text, "\n  threads: auto\n"));
    assert_non_null(strstr(text, "\n  run_dir: \"runs/rig\"\n"));
    free(text);
    config_destroy(&config);
}

static void json_holds_the_same_by_section(void **state)
{
    struct config *config = NULL;
    char *text = NULL;
    json_t *root = NULL;
    json_t *parallel = NULL;

    (void)state;
    assert_int_equal(config_rig_load(config_rig_legal(), "data.train=a\"b", NULL, &config),
                     STATUS_OK);
    assert_int_equal(config_write_json(config, &text), STATUS_OK);
    assert_null(strchr(text, '\n'));
    root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        assert_non_null(json_object_get(json_object_get(root, key->section), key->name));
    }
    parallel = json_object_get(root, "parallel");
    assert_int_equal(json_integer_value(json_object_get(parallel, "pp")), 4);
    assert_int_equal(json_array_size(json_object_get(parallel, "layers_per_stage")), 4);
    assert_string_equal(json_string_value(json_object_get(parallel, "schedule")), "1f1b");
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "data"), "train")),
                        "a\"b");
    assert_true(json_real_value(json_object_get(json_object_get(root, "optimizer"), "lr")) == 3e-4);
    assert_true(json_is_true(json_object_get(json_object_get(root, "model"), "tied_embeddings")));
    json_decref(root);
    free(text);
    config_destroy(&config);
}

/* Ranks compare the hash: any value that differs must show, a name must not. */
static void the_hash_differs_with_every_value(void **state)
{
    static const char *const changes[] = {"model.num_layers=7",
                                          "parallel.pp=3",
                                          "parallel.schedule=gpipe",
                                          "parallel.schedule=file:plan.csv",
                                          "train.seed=1235",
                                          "parallel.early_send=true",
                                          "parallel.tp=2",
                                          "parallel.dp=2",
                                          "parallel.embedding_sync=data_plane",
                                          "model.tied_embeddings=false",
                                          "data.shuffle=false",
                                          "optimizer.beta1=0.91",
                                          "train.run_dir=elsewhere",
                                          "parallel.layers_per_stage=2,1,2,1",
                                          "data.split=0.9,0.1,0",
                                          "train.threads=1",
                                          "trace.enabled=true",
                                          "precision.dtype=bf16",
                                          "precision.dtype=fp16",
                                          "precision.growth_interval=7",
                                          "model.dropout=0.5",
                                          "optimizer.name=sgd",
                                          "optimizer.weight_decay_schedule=cosine",
                                          "parallel.zero_stage=1",
                                          "train.recompute=full",
                                          "train.recompute=full,none,none,none",
                                          "train.log_params_norm=true",
                                          "checkpoint.keep=3",
                                          "checkpoint.allow_change=seed"};
    struct config *config = NULL;
    uint64_t hash = 0;

    (void)state;
    assert_int_equal(config_rig_load(config_rig_legal(), NULL, NULL, &config), STATUS_OK);
    hash = config_hash(config);
    config_destroy(&config);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        assert_int_equal(config_rig_load(config_rig_legal(), changes[i], NULL, &config), STATUS_OK);
        assert_true(config_hash(config) != hash);
        config_destroy(&config);
    }
    assert_int_equal(config_rig_load(config_rig_legal(), changes[3], NULL, &config), STATUS_OK);
    uint64_t plan_hash = config_hash(config);

    config_destroy(&config);
    assert_int_equal(
        config_rig_load(config_rig_legal(), "parallel.schedule=file:plan.csw", NULL, &config),
        STATUS_OK);
    assert_true(config_hash(config) != plan_hash);
    config_destroy(&config);
    assert_int_equal(config_rig_load(config_rig_legal(), "--overwrite", NULL, &config), STATUS_OK);
    assert_true(config_hash(config) == hash);
    config_destroy(&config);
}

static void the_plan_has_the_shape_of_the_configuration(void **state)
{
    struct plan_shape shape;
    struct config *config = NULL;

    (void)state;
    assert_int_equal(config_rig_load(config_rig_legal(), "parallel.schedule=gpipe", NULL, &config),
                     STATUS_OK);
    config_plan_shape(config, &shape);
    assert_int_equal(shape.schedule, SCHEDULE_GPIPE);
    assert_int_equal(shape.ranks, 4);
    assert_int_equal(shape.microbatches, 4);
    assert_int_equal(shape.virtual_stages, 1);
    assert_int_equal(shape.lane_depth, 2);
    assert_true(shape.early_send);
    assert_true(shape.embedding_sync);
    config_destroy(&config);
    assert_int_equal(
        config_rig_load(config_rig_legal(), "parallel.pp=1", "parallel.early_send=false", &config),
        STATUS_OK);
    config_plan_shape(config, &shape);
    assert_false(shape.early_send);
    assert_false(shape.embedding_sync);
    assert_false(shape.reduce);
    config_destroy(&config);
    assert_int_equal(config_rig_load(config_rig_legal(), "parallel.schedule=interleaved_1f1b",
                                     "parallel.virtual_stages=2", &config),
                     STATUS_OK);
    config_plan_shape(config, &shape);
    assert_int_equal(shape.schedule, SCHEDULE_INTERLEAVED_1F1B);
    assert_int_equal(shape.ranks, 4);
    assert_int_equal(shape.virtual_stages, 2);
    assert_true(shape.embedding_sync);
    config_destroy(&config);
    assert_int_equal(config_rig_load(config_rig_legal(), "model.tied_embeddings=false",
                                     "parallel.dp=2", &config),
                     STATUS_OK);
    config_plan_shape(config, &shape);
    assert_false(shape.embedding_sync);
    assert_true(shape.reduce);
    config_destroy(&config);
    for (int tp = 1; tp <= 2; tp++) {
        assert_int_equal(config_rig_load(config_rig_legal(), "parallel.sequence_parallel=true",
                                         tp == 2 ? "parallel.tp=2" : NULL, &config),
                         STATUS_OK);
        config_plan_shape(config, &shape);
        assert_int_equal(shape.reduce, tp == 2);
        config_destroy(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back_to_the_same_configuration),
        cmocka_unit_test(every_key_is_written_in_the_order_of_the_table),
        cmocka_unit_test(json_holds_the_same_by_section),
        cmocka_unit_test(the_hash_differs_with_every_value),
        cmocka_unit_test(the_plan_has_the_shape_of_the_configuration),
    };

    return cmocka_run_group_tests_name("config_write", tests, config_rig_open, config_rig_close);
}
