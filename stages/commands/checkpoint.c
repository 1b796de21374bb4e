/* checkpoint -- `weir checkpoint inspect|verify DIR`: what a checkpoint holds, and whether it is whole. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"
#include "stages/checkpoint/contents.h"
#include "stages/checkpoint/store.h"
#include "stages/commands/command.h"
#include "stages/nearest.h"

static void print_help(void)
{
    (void)printf("usage: weir checkpoint inspect DIR\n"
                 "       weir checkpoint verify DIR\n"
                 "\n"
                 "  inspect  where the run stood, how it was laid out, and each tensor\n"
                 "  verify   reads all of it: sizes and XXH3 sums of its files, and whether they "
                 "make up the\n"
                 "           whole model; says what is wrong, and ends with 1 then\n"
                 "\n"
                 "DIR is one checkpoint (…/step-00000010), or a directory of them, or a run "
                 "directory: then\n"
                 "the one to go on from.\n");
}

static enum status refuse_none(const char *directory)
{
    return status_fail(STATUS_ERR_REFUSED,
                       "%s: there is no checkpoint: expected a folder with " MANIFEST_NAME
                       ", or one of such folders",
                       directory);
}

/* The checkpoint that the user's DIR means. */
static enum status find_checkpoint(const char *directory, struct store_place *place)
{
    char path[FILE_PATH_BYTES];

    TRY(folder_path(directory, MANIFEST_NAME, path));
    if (access(path, F_OK) == 0) {
        place->found = true;
        (void)snprintf(place->path, sizeof(place->path), "%s", directory);
        return STATUS_OK;
    }
    TRY(store_find(directory, place));
    if (!place->found) {
        TRY(folder_path(directory, "checkpoints", path));
        TRY(store_find(path, place));
    }
    return place->found ? STATUS_OK : refuse_none(directory);
}

static uint64_t total_bytes(const struct manifest *manifest)
{
    uint64_t bytes = 0;

    for (int32_t rank = 0; rank < manifest_files(manifest); rank++) {
        bytes += manifest->files[rank].bytes;
    }
    return bytes;
}

static void print_head(const char *path, const struct manifest *manifest)
{
    const struct grid_shape *layout = &manifest->layout;

    (void)printf("%s\n", path);
    (void)printf("step         %" PRId64 ": %" PRId64 " updates, %" PRId64 " skipped\n",
                 manifest->step, manifest->updates, manifest->skipped);
    (void)printf("data         %" PRId64 " samples consumed: epoch %" PRId64 ", sequence %" PRId64
                 " of %" PRId64 "\n",
                 manifest->consumed, manifest->consumed / manifest->sequences + 1,
                 manifest->consumed % manifest->sequences + 1, manifest->sequences);
    (void)printf("             of a file of %" PRIu64 " bytes, XXH3 %016" PRIx64 "\n",
                 manifest->data.bytes, manifest->data.xxh3);
    (void)printf("layout       pp %d, tp %d, dp %d; %" PRId64 " threads a rank; %s\n", layout->pp,
                 layout->tp, layout->dp, manifest->threads, manifest->variant);
    (void)printf("loss scale   %g, %" PRId64 " good steps, hysteresis %" PRId64 "\n",
                 manifest->scale.scale, manifest->scale.good_steps,
                 manifest->scale.hysteresis_left);
    (void)printf("files        %d, %.1f MiB\n", manifest_files(manifest),
                 (double)total_bytes(manifest) / (1 << 20));
}

static void print_tensors(const struct contents *contents)
{
    (void)printf("parameters   %" PRId64 " in %d tensors\n\n", contents->elems, contents->count);
    (void)printf("%-28s %16s %6s %8s\n", "tensor", "shape", "parts", "moments");
    for (int32_t i = 0; i < contents->count; i++) {
        const struct contents_tensor *tensor = &contents->tensors[i];
        char shape[48];

        (void)snprintf(shape, sizeof(shape), "%" PRId64 " x %" PRId64, tensor->rows, tensor->cols);
        (void)printf("%-28s %16s %6d %8d\n", tensor->name, shape, tensor->parts, tensor->moments);
    }
}

static enum status look(const char *path, bool verify)
{
    struct manifest manifest;
    struct contents contents = {.tensors = NULL};
    enum status status = manifest_read(path, &manifest);

    if (status >= 0) {
        status = manifest_check_sizes(path, &manifest);
    }
    if (status >= 0) {
        status = contents_read(path, &manifest, verify, &contents);
    }
    if (status >= 0 && verify) {
        status = contents_check_model(path, &manifest, &contents);
    }
    if (status >= 0 && verify) {
        (void)printf("%s is whole: step %" PRId64 ", %d files, %.1f MiB, %" PRId64
                     " parameters in %d tensors\n",
                     path, manifest.step, manifest_files(&manifest),
                     (double)total_bytes(&manifest) / (1 << 20), contents.elems, contents.count);
    } else if (status >= 0) {
        print_head(path, &manifest);
        print_tensors(&contents);
    }
    contents_release(&contents);
    manifest_release(&manifest);
    return status;
}

enum status command_checkpoint(int argc, char **argv)
{
    static const char *const words[] = {"inspect", "verify"};
    struct store_place place = {.found = false};
    const char *near = NULL;

    if (argc < 2) {
        print_help();
        return status_fail(STATUS_ERR_REFUSED, "weir checkpoint: inspect or verify?");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return STATUS_OK;
    }
    if (strcmp(argv[1], words[0]) != 0 && strcmp(argv[1], words[1]) != 0) {
        near = nearest_name(argv[1], words, 2);
        return status_fail(STATUS_ERR_REFUSED,
                           "weir checkpoint: cannot do \"%s\"; expected inspect or verify%s%s%s",
                           argv[1], near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                           near != NULL ? "?" : "");
    }
    if (argc != 3) {
        return status_fail(STATUS_ERR_REFUSED, "weir checkpoint %s: expected one DIR", argv[1]);
    }
    TRY(find_checkpoint(argv[2], &place));
    if (place.warning[0] != '\0') {
        log_warn("%s", place.warning);
    }
    return look(place.path, strcmp(argv[1], "verify") == 0);
}
