/* The manifest of a checkpoint: what is written is read, and what is wrong is refused by name. */
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
#include "stages/checkpoint/manifest.h"
#include "stages/checkpoint/sum.h"
#include "tests/stages/checkpoint_folder.h"

#define FILES 4

static char config_text[] = "{\"model\": {\"num_layers\": 4, \"init_std\": 0.02}, "
                            "\"parallel\": {\"pp\": 2, \"tp\": 1, \"dp\": 2}, \"n\": [1, 2]}";

static struct manifest_sum sums[FILES] = {
    {.bytes = 5, .xxh3 = 0x0123456789abcdefU},
    {.bytes = 0, .xxh3 = 0},
    {.bytes = 7, .xxh3 = UINT64_MAX},
    {.bytes = 1, .xxh3 = 1},
};

static struct manifest example(void)
{
    return (struct manifest){
        .step = 10,
        .updates = 8,
        .consumed = 400000000000,
        .sequences = 96,
        .data = {.bytes = 3073, .xxh3 = 0xfedcba9876543210U},
        .skipped = 2,
        .skipped_in_a_row = 1,
        .scale = {.dynamic = true, .scale = 1.0 / 3.0, .good_steps = 3, .hysteresis_left = 2},
        .threads = 3,
        .variant = "cpu-v3 \"quoted\"",
        .layout = {.pp = 2, .tp = 1, .dp = 2},
        .config = config_text,
        .files = sums,
    };
}

static void write_example(void)
{
    const struct manifest manifest = example();

    assert_int_equal(manifest_write(checkpoint_folder(), &manifest), STATUS_OK);
}

static void what_is_written_is_read(void **state)
{
    const struct manifest manifest = example();
    struct manifest read;

    (void)state;
    write_example();
    assert_int_equal(manifest_read(checkpoint_folder(), &read), STATUS_OK);
    assert_true(read.step == 10 && read.updates == 8 && read.consumed == 400000000000);
    assert_true(read.sequences == 96 && read.skipped == 2 && read.skipped_in_a_row == 1);
    assert_true(read.data.bytes == 3073 && read.data.xxh3 == 0xfedcba9876543210U);
    assert_true(read.scale.dynamic && read.scale.scale == 1.0 / 3.0 && read.scale.good_steps == 3 &&
                read.scale.hysteresis_left == 2);
    assert_true(read.threads == 3);
    assert_string_equal(read.variant, manifest.variant);
    assert_memory_equal(&read.layout, &manifest.layout, sizeof(read.layout));
    assert_int_equal(manifest_files(&read), FILES);
    assert_memory_equal(read.files, sums, sizeof(sums));
    assert_non_null(strstr(read.config, "\"num_layers\":4"));
    manifest_release(&read);
    manifest_release(&read);
}

static void files_are_named_by_their_place_and_not_by_rank(void **state)
{
    /* rank = tp + TP·(dp + DP·pp) */
    const struct grid_shape layout = {.pp = 2, .tp = 3, .dp = 2};
    char name[SHARD_NAME_BYTES];

    (void)state;
    manifest_shard_name(&layout, 0, name);
    assert_string_equal(name, "shard-pp0-tp0-dp0.safetensors");
    manifest_shard_name(&layout, 2 + 3 * (1 + 2 * 1), name);
    assert_string_equal(name, "shard-pp1-tp2-dp1.safetensors");
}

static void assert_refused(const char *words)
{
    struct manifest read;

    assert_int_equal(manifest_read(checkpoint_folder(), &read), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, MANIFEST_NAME));
    if (strstr(status_last()->message, words) == NULL) {
        fail_msg("expected \"%s\" in: %s", words, status_last()->message);
    }
    manifest_release(&read);
}

/* The text of the manifest with the first `old` in it replaced. */
static void rewrite(const char *old, const char *new)
{
    char *text = NULL;
    size_t count = 0;
    char longer[8192];
    const char *at = NULL;

    write_example();
    assert_int_equal(file_read(checkpoint_folder_path(MANIFEST_NAME), 4096, &text, &count),
                     STATUS_OK);
    at = strstr(text, old);
    assert_non_null(at);
    (void)snprintf(longer, sizeof(longer), "%.*s%s%s", (int)(at - text), text, new,
                   at + strlen(old));
    checkpoint_folder_write(MANIFEST_NAME, longer);
    free(text);
}

static void a_changed_number_or_word_is_found_by_the_sum(void **state)
{
    static const char *const changes[][2] = {
        {"\"step\": 10", "\"step\": 11"},
        {"0123456789abcdef", "0123456789abcdee"},
        {"fedcba9876543210", "fedcba9876543211"},
        {"\"bytes\": 3073", "\"bytes\": 3072"},
        {"\"num_layers\": 4", "\"num_layers\": 5"},
        {"\"dynamic\": true", "\"dynamic\": false"},
        {"\"skipped\": 2", "\"skipped\": 2, \"more\": 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        rewrite(changes[i][0], changes[i][1]);
        assert_refused("expected the XXH3 sum");
    }
    rewrite("\"format\": 1", "\"format\": 2");
    assert_refused("format");
}

/* A manifest of an object as a whole, with the sum that it should have. */
static void write_object(json_t *object)
{
    uint64_t sum = 0;
    char hex[17];
    char *text = NULL;

    (void)json_object_del(object, "xxh3");
    text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    assert_non_null(text);
    sum = sum_of(text, strlen(text));
    free(text);
    (void)snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)sum);
    assert_int_equal(json_object_set_new(object, "xxh3", json_string(hex)), 0);
    text = json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    checkpoint_folder_write(MANIFEST_NAME, text);
    free(text);
}

/* Without it nobody knows whether the run goes on with the text that it began with. */
static void a_manifest_without_its_training_set_is_refused_by_name(void **state)
{
    static const char *const values[][2] = {
        {NULL, ": data: expected an object with bytes and xxh3"},
        {"7", ": data: expected an object with bytes and xxh3"},
        {"{}", "bytes: expected an integer from 0"},
        {"{\"bytes\": -1, \"xxh3\": \"0123456789abcdef\"}", "bytes: expected an integer from 0"},
        {"{\"bytes\": 5}", ": data: expected an xxh3 of 16 hexadecimal digits"},
        {"{\"bytes\": 5, \"xxh3\": \"0123456789abcde\"}", ": data: expected an xxh3 of 16"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        json_t *object = NULL;

        write_example();
        object = json_load_file(checkpoint_folder_path(MANIFEST_NAME), 0, NULL);
        assert_non_null(object);
        (void)json_object_del(object, "data");
        if (values[i][0] != NULL) {
            json_t *value = json_loads(values[i][0], JSON_DECODE_ANY, NULL);

            assert_int_equal(json_object_set_new(object, "data", value), 0);
        }
        write_object(object);
        json_decref(object);
        assert_refused(values[i][1]);
    }
}

/* Fields are checked whatever the sum says, so they are written wrong here. */
static void assert_written_wrong(struct manifest manifest, const char *field)
{
    assert_int_equal(manifest_write(checkpoint_folder(), &manifest), STATUS_OK);
    assert_refused(field);
}

static void fields_that_cannot_be_are_refused_by_name(void **state)
{
    struct manifest manifest = example();

    (void)state;
    manifest.updates = 11;
    assert_written_wrong(manifest, "updates");
    manifest = example();
    manifest.sequences = 0;
    assert_written_wrong(manifest, "sequences");
    manifest = example();
    manifest.skipped_in_a_row = 3;
    assert_written_wrong(manifest, "skipped_in_a_row");
    manifest = example();
    manifest.scale.scale = 0.0;
    assert_written_wrong(manifest, "loss_scale.scale");
    manifest = example();
    manifest.threads = 0;
    assert_written_wrong(manifest, "threads");
    manifest = example();
    manifest.consumed = -1;
    assert_written_wrong(manifest, "consumed_samples");
}

/* Numbers that would overflow what is reckoned with them, and such as no run comes to. The sum of each of
 * these manifests is right. */
static void counts_that_no_run_comes_to_are_refused_by_name(void **state)
{
    const int64_t far = ((int64_t)1 << 40) + 1;
    struct manifest manifest = example();

    (void)state;
    manifest.step = far;
    manifest.updates = far - 2;
    manifest.consumed = far - 1;
    assert_written_wrong(manifest, ": step: expected an integer from 0 to 1099511627776");
    manifest = example();
    manifest.consumed = far;
    assert_written_wrong(manifest, "consumed_samples: expected an integer from 10 to");
    manifest.consumed = 9;
    assert_written_wrong(manifest, "consumed_samples: expected an integer from 10 to");
    manifest = example();
    manifest.sequences = INT64_MAX;
    assert_written_wrong(manifest, "sequences");
    manifest = example();
    manifest.scale.good_steps = far;
    assert_written_wrong(manifest, "good_steps");
    manifest = example();
    manifest.scale.hysteresis_left = far;
    assert_written_wrong(manifest, "hysteresis_left");
    /* 8 updates in 10 steps. */
    manifest = example();
    manifest.skipped = 3;
    assert_written_wrong(manifest, ": skipped: expected an integer from 2 to 2");
    manifest.skipped = 1;
    assert_written_wrong(manifest, ": skipped: expected an integer from 2 to 2");
    manifest = example();
    manifest.step = 0;
    manifest.updates = 0;
    assert_written_wrong(manifest, "consumed_samples: expected an integer from 0 to 0");
}

/* The files are those of the layout, so a rank of the configuration's would have none. */
static void a_layout_that_is_not_the_configurations_is_refused_by_name(void **state)
{
    struct manifest manifest = example();

    (void)state;
    manifest.layout = (struct grid_shape){.pp = 1, .tp = 1, .dp = 2};
    assert_written_wrong(manifest, "config.parallel.pp: expected 1");
    manifest.layout = (struct grid_shape){.pp = 2, .tp = 2, .dp = 1};
    assert_written_wrong(manifest, "config.parallel.tp: expected 2");
    manifest.layout = (struct grid_shape){.pp = 2, .tp = 1, .dp = 1};
    assert_written_wrong(manifest, "config.parallel.dp: expected 1");
    manifest = example();
    manifest.config = (char[]){"{\"model\": {}}"};
    assert_written_wrong(manifest, "config.parallel.pp: expected 2");
}

static void what_is_no_manifest_is_refused(void **state)
{
    struct manifest read;
    char *text = NULL;
    size_t count = 0;

    (void)state;
    assert_int_equal(manifest_read(checkpoint_folder(), &read), STATUS_ERR_REFUSED);
    manifest_release(&read);
    checkpoint_folder_write(MANIFEST_NAME, "");
    assert_refused("line");
    checkpoint_folder_write(MANIFEST_NAME, "[1]");
    assert_refused("object");
    /* Cut short anywhere, it is no JSON. */
    write_example();
    assert_int_equal(file_read(checkpoint_folder_path(MANIFEST_NAME), 4096, &text, &count),
                     STATUS_OK);
    for (size_t end = 1; end + 1 < count; end += 97) {
        char kept = text[end];

        text[end] = '\0';
        checkpoint_folder_write(MANIFEST_NAME, text);
        assert_refused("line");
        text[end] = kept;
    }
    free(text);
}

static void a_missing_file_and_one_of_another_size_are_named(void **state)
{
    const struct manifest manifest = example();

    (void)state;
    checkpoint_folder_write("shard-pp0-tp0-dp0.safetensors", "five.");
    checkpoint_folder_write("shard-pp0-tp0-dp1.safetensors", "");
    checkpoint_folder_write("shard-pp1-tp0-dp0.safetensors", "seven..");
    assert_int_equal(manifest_check_sizes(checkpoint_folder(), &manifest), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "shard-pp1-tp0-dp1.safetensors"));
    assert_non_null(strstr(status_last()->message, "missing"));
    checkpoint_folder_write("shard-pp1-tp0-dp1.safetensors", "x");
    assert_int_equal(manifest_check_sizes(checkpoint_folder(), &manifest), STATUS_OK);
    checkpoint_folder_write("shard-pp1-tp0-dp0.safetensors", "six...");
    assert_int_equal(manifest_check_sizes(checkpoint_folder(), &manifest), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "shard-pp1-tp0-dp0.safetensors"));
    assert_non_null(strstr(status_last()->message, "expected 7 bytes, found 6"));
}

#define FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, checkpoint_folder_make, checkpoint_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER(what_is_written_is_read),
        cmocka_unit_test(files_are_named_by_their_place_and_not_by_rank),
        FOLDER(a_changed_number_or_word_is_found_by_the_sum),
        FOLDER(a_manifest_without_its_training_set_is_refused_by_name),
        FOLDER(fields_that_cannot_be_are_refused_by_name),
        FOLDER(counts_that_no_run_comes_to_are_refused_by_name),
        FOLDER(a_layout_that_is_not_the_configurations_is_refused_by_name),
        FOLDER(what_is_no_manifest_is_refused),
        FOLDER(a_missing_file_and_one_of_another_size_are_named),
    };

    return cmocka_run_group_tests_name("manifest", tests, NULL, NULL);
}
