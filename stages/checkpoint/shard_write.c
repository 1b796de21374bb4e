/* The writing half of stages/checkpoint/shard.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "stages/checkpoint/shard.h"
#include "stages/checkpoint/sum.h"

#define ENTRIES_EACH 3   /* of a tensor: main, two moments */
#define PLACE_BYTES  320 /* of a tensor's place as JSON: eight numbers */

bool shard_has(const struct param *param, int32_t replica)
{
    return param->own_elems > 0 && (param->sliced || replica == 0);
}

/* The tables from which a file is made. */
struct tables {
    struct safetensors_entry *entries; /* owns */
    size_t entry_count;
    struct safetensors_note *notes; /* owns */
    char (*places)[PLACE_BYTES];    /* owns; values of the notes */
    size_t note_count;
};

static void release(struct tables *tables)
{
    free(tables->entries);
    free(tables->notes);
    free(tables->places);
}

static void add_entry(struct tables *tables, const struct param *param, const char *kind,
                      const float *data)
{
    struct safetensors_entry *entry = &tables->entries[tables->entry_count];

    if (data == NULL) {
        return;
    }
    *entry = (struct safetensors_entry){
        .dtype = SAFETENSORS_F32,
        .dims = 1,
        .shape = {(int64_t)param->own_elems},
        .bytes = param->own_elems * sizeof(float),
        .data = data,
    };
    (void)snprintf(entry->name, sizeof(entry->name), "%s.%s", param->name, kind);
    tables->entry_count++;
}

static void add_place(struct tables *tables, const struct param *param)
{
    const struct param_shard *shard = &param->shard;
    char *place = tables->places[tables->note_count];
    int used =
        snprintf(place, PLACE_BYTES,
                 "{\"shape\": [%lld, %lld], \"rows\": %lld, \"cols\": %lld, \"blocks\": %lld, "
                 "\"first_row\": %lld, \"first_col\": %lld, \"first\": %zu, \"elems\": %zu}",
                 (long long)shard->whole_rows, (long long)shard->whole_cols, (long long)param->rows,
                 (long long)param->cols, (long long)shard->blocks, (long long)shard->first_row,
                 (long long)shard->first_col, param->own_first, param->own_elems);

    ENSURE(used > 0 && used < PLACE_BYTES, "place of %s", param->name);
    tables->notes[tables->note_count++] =
        (struct safetensors_note){.key = param->name, .value = place};
}

static int compare_entries(const void *left, const void *right)
{
    const struct safetensors_entry *a = left;
    const struct safetensors_entry *b = right;

    return strcmp(a->name, b->name);
}

/* Entries in the order in which the file has them. */
static enum status make_tables(const struct shard_writing *writing, struct tables *tables)
{
    size_t count = (size_t)writing->params->count;

    tables->entries = calloc(ENTRIES_EACH * count + 1, sizeof(*tables->entries));
    tables->notes = calloc(count + 1, sizeof(*tables->notes));
    tables->places = calloc(count + 1, sizeof(*tables->places));
    if (tables->entries == NULL || tables->notes == NULL || tables->places == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "writing %s: table of %zu tensors", writing->path,
                           count);
    }
    for (size_t i = 0; i < count; i++) {
        const struct param *param = &writing->params->table[i];

        if (shard_has(param, writing->replica)) {
            add_entry(tables, param, "main", param->main);
            add_entry(tables, param, "moment1", param->moment1);
            add_entry(tables, param, "moment2", param->moment2);
            add_place(tables, param);
        }
    }
    qsort(tables->entries, tables->entry_count, sizeof(*tables->entries), compare_entries);
    return STATUS_OK;
}

/* A file that is summed as it grows. */
struct output {
    struct file_writer writer;
    struct sum *sum;
    size_t done;
    size_t drained; /* of them, handed to the disk */
    const struct fault_writing *fault;
    const struct piece_watch *watch;
    struct piece_reader reader; /* of the tensors' memory */
};

static enum status put_piece(struct output *output, const void *bytes, size_t count)
{
    size_t room = fault_room(output->fault, output->done, count);

    sum_add(output->sum, bytes, count);
    TRY(file_writer_put(&output->writer, bytes, room));
    output->done += room;
    TRY(room == count ? STATUS_OK : fault_write(output->fault, output->writer.temporary));
    if (output->done - output->drained >= PIECES_DRAIN_BYTES) {
        TRY(file_writer_drain(&output->writer));
        output->drained = output->done;
    }
    pieces_tell(output->watch);
    return STATUS_OK;
}

static enum status put(struct output *output, const void *bytes, size_t count)
{
    size_t done = 0;

    while (done < count) {
        size_t piece = pieces_next(count - done);

        TRY(put_piece(output, (const char *)bytes + done, piece));
        done += piece;
    }
    return STATUS_OK;
}

static enum status put_tensor(struct output *output, const struct safetensors_entry *entry)
{
    size_t done = 0;

    while (done < entry->bytes) {
        size_t piece = pieces_next(entry->bytes - done);
        const void *bytes = NULL;

        TRY(piece_read(&output->reader, (const char *)entry->data + done, piece, &bytes));
        TRY(put_piece(output, bytes, piece));
        done += piece;
    }
    return STATUS_OK;
}

static enum status put_all(struct output *output, const struct safetensors_layout *layout,
                           const struct tables *tables)
{
    TRY(put(output, layout->header, layout->header_bytes));
    for (size_t i = 0; i < tables->entry_count; i++) {
        ENSURE(layout->at[i] == output->done, "%s lies at %zu and is written at %zu",
               tables->entries[i].name, layout->at[i], output->done);
        TRY(put_tensor(output, &tables->entries[i]));
    }
    return STATUS_OK;
}

static enum status write_file(const struct shard_writing *writing,
                              const struct safetensors_layout *layout, const struct tables *tables,
                              struct manifest_sum *sum_out)
{
    struct output output = {.fault = writing->fault,
                            .watch = writing->watch,
                            .reader = {.device = writing->params->device}};
    enum status status = STATUS_OK;

    TRY(sum_open(&output.sum));
    TRY_OR(done, status, file_writer_open(writing->path, &output.writer));
    TRY_OR(done, status, put_all(&output, layout, tables));
    TRY_OR(done, status, file_writer_commit(&output.writer));
    pieces_tell(output.watch);
    *sum_out = (struct manifest_sum){
        .bytes = output.done,
        .xxh3 = sum_value(output.sum),
    };
done:
    file_writer_discard(&output.writer);
    sum_close(&output.sum);
    piece_reader_release(&output.reader);
    return status;
}

enum status shard_write(const struct shard_writing *writing, struct manifest_sum *sum_out)
{
    struct tables tables = {.entries = NULL};
    struct safetensors_layout layout = {.header = NULL};
    enum status status = make_tables(writing, &tables);

    if (status >= 0) {
        status = safetensors_layout_make(writing->path, tables.entries, tables.entry_count,
                                         tables.notes, tables.note_count, &layout);
    }
    if (status >= 0) {
        status = write_file(writing, &layout, &tables, sum_out);
    }
    safetensors_layout_release(&layout);
    release(&tables);
    return status;
}
