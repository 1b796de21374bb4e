#include "config_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[] = "/tmp/weir-config-XXXXXX";
static char path[64];

int config_rig_open(void **state)
{
    (void)state;
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/rig.yaml", directory);
    return 0;
}

int config_rig_close(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(directory);
}

const char *config_rig_path(void)
{
    return path;
}

const char *config_rig_legal(void)
{
    return "model: {num_layers: 6, hidden_size: 64, num_heads: 4, seq_len: 32}\n"
           "parallel:\n"
           "  pp: 4\n"
           "train:\n"
           "  steps: 100\n"
           "  micro_batch_size: 2\n"
           "  num_microbatches: 4\n"
           "optimizer: {lr: 3e-4}\n"
           "data: {train: text.txt}\n";
}

enum status config_rig_load(const char *text, const char *first, const char *second,
                            struct config **config)
{
    char *words[2] = {first != NULL ? strdup(first) : NULL, second != NULL ? strdup(second) : NULL};
    enum status status = STATUS_OK;
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    *config = NULL;
    status = config_load(path, words, (first != NULL ? 1 : 0) + (second != NULL ? 1 : 0), config);
    free(words[0]);
    free(words[1]);
    return status;
}

void config_rig_refuses(const char *text, const char *override, const char *words)
{
    struct config *config = NULL;
    enum status status = config_rig_load(text, override, NULL, &config);
    const char *message = status_last()->message;

    config_destroy(&config);
    if (status != STATUS_ERR_REFUSED || strstr(message, words) == NULL) {
        fail_msg("%s%s: got %s, \"%s\"; expected a refusal with \"%s\"",
                 override != NULL ? override : "", override != NULL ? "" : text,
                 status_name(status), message, words);
    }
}
