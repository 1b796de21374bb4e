#include "stages/checkpoint/store.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"
#include "stages/checkpoint/manifest.h"

#define LATEST            "latest"
#define LATEST_BYTES_MOST 256
#define PREFIX            "step-"
#define PARTIAL           ".partial"
#define DISCARDED         ".discarded"

/* What the name of a checkpoint's folder ends in. */
enum ending {
    ENDING_WHOLE,
    ENDING_PARTIAL,
    ENDING_DISCARDED
};

static const char *const endings[] = {"", PARTIAL, DISCARDED};

static void name_of(int64_t step, enum ending ending, char *name)
{
    (void)snprintf(name, STORE_NAME_BYTES, PREFIX "%08lld%s", (long long)step, endings[ending]);
}

static enum status path_of(const char *directory, int64_t step, enum ending ending, char *path)
{
    char name[STORE_NAME_BYTES];

    name_of(step, ending, name);
    return folder_path(directory, name, path);
}

void store_name(int64_t step, char *name)
{
    name_of(step, ENDING_WHOLE, name);
}

enum status store_partial_path(const char *directory, int64_t step, char *path)
{
    return path_of(directory, step, ENDING_PARTIAL, path);
}

static enum status whole_path(const char *directory, int64_t step, char *path)
{
    return path_of(directory, step, ENDING_WHOLE, path);
}

/* Whether `name` is one that name_of() makes. */
static bool read_name(const char *name, int64_t *step_out, enum ending *ending_out)
{
    char expected[STORE_NAME_BYTES];
    char *end = NULL;

    if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) != 0) {
        return false;
    }
    *step_out = strtoll(name + sizeof(PREFIX) - 1, &end, 10);
    *ending_out = ENDING_WHOLE;
    for (int ending = ENDING_PARTIAL; ending <= ENDING_DISCARDED; ending++) {
        if (strcmp(end, endings[ending]) == 0) {
            *ending_out = (enum ending)ending;
        }
    }
    name_of(*step_out, *ending_out, expected);
    return *step_out >= 0 && strcmp(name, expected) == 0;
}

/* The checkpoints of a directory. */
struct listing {
    int64_t *steps; /* owns; whole ones, ascending */
    size_t count;
    int64_t *partials; /* owns */
    size_t partial_count;
    int64_t *discarded; /* owns */
    size_t discarded_count;
};

static void release(struct listing *listing)
{
    free(listing->steps);
    free(listing->partials);
    free(listing->discarded);
    *listing = (struct listing){.steps = NULL};
}

static int compare_steps(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;

    return a < b ? -1 : a > b;
}

static bool append(int64_t **steps, size_t *count, int64_t step)
{
    int64_t *longer = realloc(*steps, (*count + 1) * sizeof(**steps));

    if (longer != NULL) {
        longer[(*count)++] = step;
        *steps = longer;
    }
    return longer != NULL;
}

/* Only what has its manifest is whole: a folder that somebody has half removed is not. */
static bool has_manifest(const char *directory, int64_t step)
{
    char name[STORE_NAME_BYTES];
    char path[FILE_PATH_BYTES];
    int used = 0;

    store_name(step, name);
    used = snprintf(path, sizeof(path), "%s/%s/" MANIFEST_NAME, directory, name);
    return used > 0 && used < FILE_PATH_BYTES && access(path, F_OK) == 0;
}

static enum status list(const char *directory, struct listing *listing)
{
    DIR *folder = opendir(directory);
    const struct dirent *entry = NULL;
    bool good = true;

    *listing = (struct listing){.steps = NULL};
    if (folder == NULL && (errno == ENOENT || errno == ENOTDIR)) {
        return STATUS_OK;
    }
    if (folder == NULL) {
        return status_fail(STATUS_ERR_REFUSED, "checkpoint.dir: cannot read %s: %s", directory,
                           strerror(errno));
    }
    while (good && (entry = readdir(folder)) != NULL) {
        int64_t step = 0;
        enum ending ending = ENDING_WHOLE;

        if (!read_name(entry->d_name, &step, &ending)) {
            continue;
        }
        if (ending == ENDING_PARTIAL) {
            good = append(&listing->partials, &listing->partial_count, step);
        } else if (ending == ENDING_DISCARDED) {
            good = append(&listing->discarded, &listing->discarded_count, step);
        } else if (has_manifest(directory, step)) {
            good = append(&listing->steps, &listing->count, step);
        }
    }
    (void)closedir(folder);
    if (!good) {
        release(listing);
        return status_fail(STATUS_ERR_NO_MEMORY, "checkpoint.dir: no memory to list %s", directory);
    }
    if (listing->count > 0) {
        qsort(listing->steps, listing->count, sizeof(*listing->steps), compare_steps);
    }
    return STATUS_OK;
}

/* The step that `latest` names; -1 where there is no such file. */
static enum status read_latest(const char *directory, int64_t *step_out)
{
    char path[FILE_PATH_BYTES];
    char *text = NULL;
    size_t count = 0;
    enum ending ending = ENDING_WHOLE;
    enum status status = STATUS_OK;

    *step_out = -1;
    TRY(folder_path(directory, LATEST, path));
    if (access(path, F_OK) != 0) {
        return STATUS_OK;
    }
    TRY(file_read(path, LATEST_BYTES_MOST, &text, &count));
    text[strcspn(text, "\r\n")] = '\0';
    if (!read_name(text, step_out, &ending) || ending != ENDING_WHOLE) {
        status = status_fail(STATUS_ERR_REFUSED,
                             "%s: expected the name of a checkpoint beside it, as step-00000010, "
                             "found \"%.64s\"",
                             path, text);
    }
    free(text);
    return status;
}

static enum status take(const char *directory, int64_t step, struct store_place *place)
{
    place->found = true;
    place->step = step;
    return whole_path(directory, step, place->path);
}

static enum status take_newest(const char *directory, int64_t named, struct store_place *place)
{
    struct listing listing;
    char newest[STORE_NAME_BYTES];
    char name[STORE_NAME_BYTES];
    enum status status = STATUS_OK;

    TRY(list(directory, &listing));
    if (listing.count > 0) {
        status = take(directory, listing.steps[listing.count - 1], place);
        store_name(place->step, newest);
        store_name(named, name);
        (void)snprintf(
            place->warning, sizeof(place->warning),
            "%.256s/latest %s%s; %s is the newest whole checkpoint there", directory,
            named < 0 ? "is missing" : "names what is not there: ", named < 0 ? "" : name, newest);
    } else if (named >= 0) {
        store_name(named, name);
        status = status_fail(STATUS_ERR_REFUSED,
                             "%s/latest names %s, which is not there, and there is no other "
                             "checkpoint",
                             directory, name);
    }
    release(&listing);
    return status;
}

enum status store_find(const char *directory, struct store_place *place_out)
{
    char path[FILE_PATH_BYTES];
    int64_t named = -1;

    *place_out = (struct store_place){.found = false};
    TRY(read_latest(directory, &named));
    if (named >= 0) {
        TRY(whole_path(directory, named, path));
    }
    return named >= 0 && folder_exists(path) ? take(directory, named, place_out)
                                             : take_newest(directory, named, place_out);
}

bool store_has_any(const char *directory)
{
    char path[FILE_PATH_BYTES];
    struct listing listing;
    bool any = false;

    if (folder_path(directory, LATEST, path) < 0 || list(directory, &listing) < 0) {
        return true;
    }
    any = listing.count > 0 || access(path, F_OK) == 0;
    release(&listing);
    return any;
}

/* Why not is told, and is not what the caller has failed by. */
static bool is_usable(const char *path)
{
    const struct status_record kept = *status_last();
    struct manifest manifest;
    bool usable = manifest_read(path, &manifest) >= 0 && manifest_check_sizes(path, &manifest) >= 0;

    manifest_release(&manifest);
    status_adopt(&kept);
    return usable;
}

bool store_find_older(const char *directory, int64_t step, char *path)
{
    struct listing listing;
    size_t older = 0;
    bool found = false;

    if (list(directory, &listing) < 0) {
        return false;
    }
    while (older < listing.count && listing.steps[older] < step) {
        older++;
    }
    for (size_t i = older; i > 0 && !found; i--) {
        found = whole_path(directory, listing.steps[i - 1], path) == STATUS_OK && is_usable(path);
    }
    release(&listing);
    return found;
}

static size_t add_names(const int64_t *steps, size_t count, enum ending ending, size_t used,
                        char *text, size_t text_bytes)
{
    for (size_t i = 0; i < count && used < text_bytes; i++) {
        char name[STORE_NAME_BYTES];

        name_of(steps[i], ending, name);
        used +=
            (size_t)snprintf(text + used, text_bytes - used, "%s%s", used == 0 ? "" : ", ", name);
    }
    return used;
}

int32_t store_partials(const char *directory, char *text, size_t text_bytes)
{
    struct listing listing;
    size_t used = 0;
    int32_t count = 0;

    text[0] = '\0';
    if (list(directory, &listing) < 0) {
        return 0;
    }
    used = add_names(listing.partials, listing.partial_count, ENDING_PARTIAL, 0, text, text_bytes);
    (void)add_names(listing.discarded, listing.discarded_count, ENDING_DISCARDED, used, text,
                    text_bytes);
    count = (int32_t)(listing.partial_count + listing.discarded_count);
    release(&listing);
    return count;
}

static enum status remove_those(const char *directory, const int64_t *steps, size_t count,
                                enum ending ending)
{
    for (size_t i = 0; i < count; i++) {
        char path[FILE_PATH_BYTES];

        TRY(path_of(directory, steps[i], ending, path));
        TRY(folder_remove(path));
    }
    return STATUS_OK;
}

static enum status remove_partials(const char *directory)
{
    struct listing listing;
    enum status status = STATUS_OK;

    TRY(list(directory, &listing));
    status = remove_those(directory, listing.partials, listing.partial_count, ENDING_PARTIAL);
    if (status >= 0) {
        status =
            remove_those(directory, listing.discarded, listing.discarded_count, ENDING_DISCARDED);
    }
    release(&listing);
    return status;
}

enum status store_begin(const char *directory, int64_t step)
{
    char path[FILE_PATH_BYTES];

    TRY(file_make_directories(directory));
    TRY(remove_partials(directory));
    TRY(store_partial_path(directory, step, path));
    return file_make_directories(path);
}

enum status store_publish(const char *directory, int64_t step)
{
    char partial[FILE_PATH_BYTES];
    char whole[FILE_PATH_BYTES];
    char latest[FILE_PATH_BYTES];
    char name[STORE_NAME_BYTES];
    char line[STORE_NAME_BYTES + 1];

    TRY(store_partial_path(directory, step, partial));
    TRY(whole_path(directory, step, whole));
    TRY(folder_path(directory, LATEST, latest));
    TRY(folder_sync(partial));
    TRY(folder_replace(partial, whole));
    TRY(folder_sync(directory));
    store_name(step, name);
    (void)snprintf(line, sizeof(line), "%s\n", name);
    return file_write(latest, line, strlen(line));
}

/* In two moves, so that a death between them leaves what nobody takes for a checkpoint. */
static enum status remove_whole(const char *directory, int64_t step)
{
    char partial[FILE_PATH_BYTES];
    char whole[FILE_PATH_BYTES];

    TRY(store_partial_path(directory, step, partial));
    TRY(whole_path(directory, step, whole));
    TRY(folder_remove(partial));
    TRY(folder_replace(whole, partial));
    return folder_remove(partial);
}

enum status store_prune(const char *directory, int64_t step, int64_t keep)
{
    struct listing listing;
    int64_t latest = -1;
    size_t older = 0;
    enum status status = STATUS_OK;

    TRY(read_latest(directory, &latest));
    TRY(list(directory, &listing));
    while (older < listing.count && listing.steps[older] < step) {
        older++;
    }
    for (size_t i = 0; status >= 0 && (int64_t)(older - i) > keep - 1 && i < older; i++) {
        status = listing.steps[i] != latest ? remove_whole(directory, listing.steps[i]) : STATUS_OK;
    }
    release(&listing);
    return status;
}

void store_discard(const char *directory, int64_t step)
{
    char partial[FILE_PATH_BYTES];
    char discarded[FILE_PATH_BYTES];

    if (store_partial_path(directory, step, partial) < 0 ||
        path_of(directory, step, ENDING_DISCARDED, discarded) < 0) {
        return;
    }
    folder_discard(discarded); /* of an earlier attempt */
    /* Either this move comes first or the one of store_publish(): never does a whole name stand for a folder
     * that is being emptied. */
    (void)rename(partial, discarded);
    folder_discard(discarded);
}

/* All that is weir's in a folder that no run looks into. */
static enum status empty(const char *directory)
{
    struct listing listing;
    char path[FILE_PATH_BYTES];
    enum status status = STATUS_OK;

    TRY(folder_path(directory, LATEST, path));
    if (unlink(path) != 0 && errno != ENOENT) {
        return status_fail(STATUS_ERR_IO, "removing %s: %s", path, strerror(errno));
    }
    TRY(remove_partials(directory));
    TRY(list(directory, &listing));
    status = remove_those(directory, listing.steps, listing.count, ENDING_WHOLE);
    release(&listing);
    return status;
}

enum status store_clear(const char *directory)
{
    char removed[FILE_PATH_BYTES];
    int used = snprintf(removed, sizeof(removed), "%s.removed", directory);

    if (!folder_exists(directory) || used < 0 || used >= FILE_PATH_BYTES) {
        return STATUS_OK;
    }
    /* In one move, so that no death on the way leaves a part of them to go on from. */
    TRY(folder_replace(directory, removed));
    TRY(empty(removed));
    if (rmdir(removed) != 0 && rename(removed, directory) != 0) {
        return status_fail(STATUS_ERR_IO, "removing the checkpoints in %s: %s", directory,
                           strerror(errno));
    }
    return STATUS_OK;
}
