/* The table of keys against the text of the contract, key by key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mixedprec/grad_scaler.h"
#include "stages/config_schema.h"
#include "stages/config_suggest.h"
#include "stages/config_write.h"

/* As the design writes the file: a key, or a key and its default. */
static const char contract[] =
    "model.num_layers\nmodel.hidden_size\nmodel.num_heads\nmodel.ffn_hidden_size: 4h\n"
    "model.seq_len\nmodel.max_positions: seq_len\nmodel.vocab_size\nmodel.num_tokentypes: 0\n"
    "model.tied_embeddings: true\nmodel.dropout: 0.0\nmodel.init_std: 0.02\n"
    "model.layer_norm_eps: 1.0e-5\n"
    "parallel.pp: 1\nparallel.tp: 1\nparallel.dp: 1\nparallel.virtual_stages: 1\n"
    "parallel.schedule: 1f1b\nparallel.early_send: auto\nparallel.extra_in_flight: 0\n"
    "parallel.sequence_slices: 1\nparallel.lane_depth: auto\nparallel.layers_per_stage: auto\n"
    "parallel.sequence_parallel: false\nparallel.zero_stage: 0\nparallel.overlap_grad_reduce: "
    "auto\nparallel.embedding_sync: auto\n"
    "parallel.device: auto\n"
    "train.steps\ntrain.micro_batch_size\ntrain.num_microbatches\ntrain.global_batch_size\n"
    "train.seed: 1234\ntrain.recompute: none\ntrain.threads: auto\ntrain.memory_limit: none\n"
    "train.deterministic: false\ntrain.eval_every: 0\ntrain.eval_steps: 0\n"
    "train.log_every: 1\ntrain.log_num_zeros: false\ntrain.log_params_norm: false\n"
    "train.run_dir\n"
    "optimizer.name: adam\noptimizer.lr\noptimizer.min_lr: 0\noptimizer.warmup_steps: 0\n"
    "optimizer.decay_steps: steps\noptimizer.wsd_decay_steps: decay_steps/10\n"
    "optimizer.lr_schedule: cosine\noptimizer.weight_decay: 0.1\n"
    "optimizer.weight_decay_schedule: constant\noptimizer.end_weight_decay: weight_decay\n"
    "optimizer.weight_decay_steps: decay_steps\noptimizer.beta1: 0.9\n"
    "optimizer.beta2: 0.95\noptimizer.eps: 1.0e-8\noptimizer.momentum: 0.9\n"
    "optimizer.grad_clip: 1.0\n"
    "precision.dtype: fp32\nprecision.tf32: false\nprecision.loss_scale: auto\n"
    "precision.initial_scale: 65536\n"
    "precision.growth_interval: 1000\nprecision.growth_factor: 2\n"
    "precision.backoff_factor: 0.5\nprecision.hysteresis: 2\nprecision.min_scale: 1\n"
    "precision.max_skipped_in_a_row: 50\n"
    "data.train\ndata.valid\ndata.test\ndata.split: [0.95, 0.05, 0]\ndata.format: auto\n"
    "data.tokenizer: byte\ndata.shuffle: true\n"
    "checkpoint.dir\ncheckpoint.every: 0\ncheckpoint.keep: 2\ncheckpoint.resume: auto\n"
    "checkpoint.allow_change: []\ncheckpoint.import\ncheckpoint.import_prefix: \n"
    "trace.enabled: false\ntrace.first_step: 1\ntrace.last_step: all\ntrace.max_mb: 64\n"
    "trace.nvtx: false\n"
    "control.bind: local\ncontrol.port: 0\ncontrol.secret_file\ncontrol.heartbeat_s: 2\n"
    "control.dead_after_s: 10\ncontrol.stall_after_s: auto\ncontrol.start_timeout_s: 600\n";

static void every_key_and_default_is_that_of_the_contract(void **state)
{
    char table[2 * sizeof(contract)] = "";
    size_t used = 0;

    (void)state;
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);
        int wrote =
            snprintf(table + used, sizeof(table) - used, "%s.%s%s%s\n", key->section, key->name,
                     key->fallback != NULL ? ": " : "", key->fallback != NULL ? key->fallback : "");

        assert_true(wrote > 0 && (size_t)wrote < sizeof(table) - used);
        used += (size_t)wrote;
    }
    assert_string_equal(table, contract);
}

static void every_key_is_found_by_name_and_says_what_it_is(void **state)
{
    char legal[256];

    (void)state;
    for (size_t i = 0; i < config_schema_count(); i++) {
        const struct config_key *key = config_schema_at(i);

        assert_ptr_equal(config_schema_find(key->section, key->name), key);
        assert_int_equal(config_schema_index(key), i);
        assert_true(strlen(key->help) > 0);
        config_schema_legal(key, legal, sizeof(legal));
        assert_true(strlen(legal) > 0);
    }
    assert_null(config_schema_find("parallel", "steps"));
    assert_null(config_schema_find("", ""));
    assert_true(config_schema_has_section("control"));
    assert_false(config_schema_has_section("contr"));
}

static void legal_values_are_said_in_words(void **state)
{
    char legal[256];

    (void)state;
    config_schema_legal(config_schema_find("parallel", "pp"), legal, sizeof(legal));
    assert_string_equal(legal, "an integer from 1 to 1024");
    config_schema_legal(config_schema_find("train", "threads"), legal, sizeof(legal));
    assert_string_equal(legal, "an integer from 1 to 1024, or auto");
    config_schema_legal(config_schema_find("optimizer", "beta1"), legal, sizeof(legal));
    assert_string_equal(legal, "a number from 0, below 1");
    config_schema_legal(config_schema_find("data", "format"), legal, sizeof(legal));
    assert_string_equal(legal, "one of auto, text, samples");
    config_schema_later(config_schema_find("data", "format"), legal, sizeof(legal));
    assert_string_equal(legal, "megatron, llmc, uint16");
    config_schema_legal(config_schema_find("parallel", "schedule"), legal, sizeof(legal));
    assert_string_equal(legal, "one of gpipe, 1f1b, interleaved_1f1b, bfs, zb_h1, zb_h2, izb, "
                               "zb_v, v_half, v_min, seq1f1b, auto, file:PATH");
    config_schema_legal(config_schema_find("train", "recompute"), legal, sizeof(legal));
    assert_string_equal(legal,
                        "one of none, selective, full, or a list of them, one a virtual stage");
    config_schema_legal(config_schema_find("precision", "loss_scale"), legal, sizeof(legal));
    assert_string_equal(legal, "a number from 1e-18 to 1e+18, or auto");
    assert_true(config_schema_find("precision", "loss_scale")->low >= GRAD_SCALER_SMALLEST);
    assert_true(config_schema_find("precision", "loss_scale")->high <= GRAD_SCALER_LARGEST);
    config_schema_legal(config_schema_find("data", "format"), legal, 8);
    assert_string_equal(legal, "one of ");
}

static const char *change_of(const char *section, const char *name)
{
    static const char *const texts[] = {
        [CHANGE_TAKEN] = "taken",
        [CHANGE_ASKED] = "asked",
        [CHANGE_LAYOUT] = "layout",
        [CHANGE_REFUSED] = "refused",
    };

    return texts[config_schema_find(section, name)->change];
}

/* As the design has it: the model's shape stays; seed, data, global batch and optimizer have to
 * be named; schedule, learning rate and steps are taken. Who holds what (layout) cannot change yet. The kind of the optimizer stays too: its
 * moments and their bias correction are of one kind. */
static void each_key_says_what_a_resumed_run_may_do_with_it(void **state)
{
    (void)state;
    assert_string_equal(change_of("model", "num_layers"), "refused");
    assert_string_equal(change_of("model", "tied_embeddings"), "refused");
    assert_string_equal(change_of("model", "vocab_size"), "refused");
    assert_string_equal(change_of("train", "seed"), "asked");
    assert_string_equal(change_of("train", "global_batch_size"), "asked");
    assert_string_equal(change_of("data", "train"), "asked");
    assert_string_equal(change_of("data", "shuffle"), "asked");
    assert_string_equal(change_of("optimizer", "name"), "refused");
    assert_string_equal(change_of("optimizer", "beta1"), "asked");
    assert_string_equal(change_of("optimizer", "weight_decay"), "asked");
    assert_string_equal(change_of("optimizer", "end_weight_decay"), "asked");
    assert_string_equal(change_of("optimizer", "weight_decay_steps"), "asked");
    assert_string_equal(change_of("optimizer", "lr"), "taken");
    assert_string_equal(change_of("optimizer", "decay_steps"), "taken");
    assert_string_equal(change_of("train", "steps"), "taken");
    assert_string_equal(change_of("train", "micro_batch_size"), "taken");
    assert_string_equal(change_of("parallel", "pp"), "layout");
    assert_string_equal(change_of("parallel", "tp"), "layout");
    assert_string_equal(change_of("parallel", "dp"), "layout");
    assert_string_equal(change_of("parallel", "virtual_stages"), "layout");
    assert_string_equal(change_of("parallel", "layers_per_stage"), "layout");
    assert_string_equal(change_of("parallel", "zero_stage"), "layout");
    assert_string_equal(change_of("parallel", "sequence_parallel"), "taken");
    assert_string_equal(change_of("parallel", "schedule"), "taken");
    assert_string_equal(change_of("train", "run_dir"), "taken");
}

static void assert_suggestion(const char *section, const char *name, const char *expected)
{
    char hint[512];

    config_suggest(section, name, hint, sizeof(hint));
    assert_string_equal(hint, expected);
}

static void a_slip_gets_the_nearest_key(void **state)
{
    (void)state;
    assert_suggestion("parallel", "pipe", "did you mean parallel.pp?");
    assert_suggestion("train", "stpes", "did you mean train.steps?");
    assert_suggestion("train", "lr", "did you mean optimizer.lr?");
    assert_suggestion("paralel", "pp", "did you mean parallel.pp?");
    assert_suggestion("optimiser", NULL, "did you mean optimizer?");
    assert_suggestion("num_layers", NULL, "did you mean model.num_layers?");
    assert_suggestion("trace", "qwertyuiop",
                      "keys of trace: enabled, first_step, last_step, max_mb, nvtx");
    assert_suggestion("qwertyuiop", "zz",
                      "sections: model, parallel, train, optimizer, precision, data, checkpoint, "
                      "trace, control");
}

static void a_key_longer_than_any_is_no_overrun(void **state)
{
    char name[1000];
    char hint[64];

    (void)state;
    memset(name, 'p', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    config_suggest("parallel", name, hint, sizeof(hint));
    assert_true(strncmp(hint, "keys of parallel: ", 18) == 0);
    assert_true(strlen(hint) < sizeof(hint));
}

static void the_defaults_are_printed_for_a_file_to_start_from(void **state)
{
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *stream = open_memstream(&text, &text_bytes);

    (void)state;
    assert_non_null(stream);
    assert_int_equal(config_write_defaults(stream), STATUS_OK);
    assert_int_equal(fclose(stream), 0);
    assert_true(strncmp(text, "model:\n  # num_layers: required; ", 33) == 0);
    assert_non_null(strstr(text, "\nparallel:\n  pp: 1\n"));
    assert_non_null(strstr(text, "\n  split: [0.95, 0.05, 0]\n"));
    assert_non_null(strstr(text, "\n  import_prefix: \"\"\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_and_default_is_that_of_the_contract),
        cmocka_unit_test(every_key_is_found_by_name_and_says_what_it_is),
        cmocka_unit_test(legal_values_are_said_in_words),
        cmocka_unit_test(each_key_says_what_a_resumed_run_may_do_with_it),
        cmocka_unit_test(a_slip_gets_the_nearest_key),
        cmocka_unit_test(a_key_longer_than_any_is_no_overrun),
        cmocka_unit_test(the_defaults_are_printed_for_a_file_to_start_from),
    };

    return cmocka_run_group_tests_name("config_schema", tests, NULL, NULL);
}
