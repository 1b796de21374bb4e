#include "tensor/gemm.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tensor/gemm_tile.h"
#include "tensor/stream.h"

/* The library's register blocks on x86 have edges that divide these; a tile that ends within one
 * wastes the rest of it. */
#define ROW_GRAIN    8
#define COLUMN_GRAIN 48

/* Below this many multiply-adds, handing out the work costs more than it saves. */
#define ALONE_LIMIT ((size_t)1 << 19)

/* Packing a row or a column of a tile costs about as much as this many of its elements. */
#define EDGE_COST 64.0

struct grid {
    int rows;    /* the tiles of C stand in so many rows */
    int columns; /* of so many tiles; rows × columns is the team */
};

struct split {
    const struct gemm *gemm;
    struct grid grid;
    struct stream *stream;
    atomic_int failed; /* the library's status where it is not success, from any member */
};

const char *gemm_text(const struct gemm *gemm, char text[GEMM_TEXT_BYTES])
{
    (void)snprintf(text, GEMM_TEXT_BYTES,
                   "%s%s of %zu x %zu x %zu (M, N, K), %s x %s to %s, lda %zu, ldb %zu, ldc %zu",
                   gemm->op_a == GEMM_PLAIN ? "N" : "T", gemm->op_b == GEMM_PLAIN ? "N" : "T",
                   gemm->M, gemm->N, gemm->K, dtype_text(gemm->a_type), dtype_text(gemm->b_type),
                   dtype_text(gemm->c_type), gemm->lda, gemm->ldb, gemm->ldc);
    return text;
}

static enum status library_failure(const struct gemm *gemm, int code)
{
    char text[GEMM_TEXT_BYTES];

    return status_fail(STATUS_ERR_INVALID, "matrix product %s: oneDNN answered status %d",
                       gemm_text(gemm, text), code);
}

static enum status check_distance(const struct gemm *gemm, const char *name, size_t distance,
                                  size_t row)
{
    char text[GEMM_TEXT_BYTES];

    if (distance >= row) {
        return STATUS_OK;
    }
    return status_fail(STATUS_ERR_INVALID,
                       "matrix product %s: %s is %zu, expected at least the %zu elements of a row",
                       gemm_text(gemm, text), name, distance, row);
}

/* Blocks of a 16-bit operand reach the library with distances of their own, so what is wrong with
 * the caller's is found here. */
enum status gemm_check(const struct gemm *gemm)
{
    TRY(check_distance(gemm, "lda", gemm->lda, gemm->op_a == GEMM_PLAIN ? gemm->K : gemm->M));
    TRY(check_distance(gemm, "ldb", gemm->ldb, gemm->op_b == GEMM_PLAIN ? gemm->N : gemm->K));
    return check_distance(gemm, "ldc", gemm->ldc, gemm->N);
}

/* What is left of the formula where the product is empty: c = beta · c. Zero is the same bits, all
 * zero, in every type. */
static void scale_c(const struct gemm *gemm)
{
    for (size_t row = 0; row < gemm->M; row++) {
        void *c = dtype_at(gemm->c, gemm->c_type, row * gemm->ldc);
        if (gemm->beta == 0.0F) {
            memset(c, 0, gemm->N * dtype_bytes(gemm->c_type));
            continue;
        }
        for (size_t column = 0; column < gemm->N; column++) {
            ((float *)c)[column] *= gemm->beta;
        }
    }
}

static bool all_fp32(const struct gemm *gemm)
{
    return gemm->a_type == DTYPE_FP32 && gemm->b_type == DTYPE_FP32 && gemm->c_type == DTYPE_FP32;
}

static enum status run_whole(const struct gemm *gemm, float *scratch)
{
    if (gemm->M == 0 || gemm->N == 0) {
        return STATUS_OK;
    }
    if (gemm->K == 0) {
        scale_c(gemm);
        return STATUS_OK;
    }
    const int code = gemm_tile_run(gemm, scratch);
    return code == 0 ? STATUS_OK : library_failure(gemm, code);
}

enum status gemm_run_alone(const struct gemm *gemm)
{
    ENSURE(all_fp32(gemm), "a 16-bit product outside a stream, which has the scratch for it");
    TRY(gemm_check(gemm));
    return run_whole(gemm, NULL);
}

static size_t largest_share(size_t count, size_t grain, int parts)
{
    size_t begin = 0;
    size_t end = 0;

    stream_share(count, grain, 0, parts, &begin, &end);
    return end - begin;
}

/* The grid whose largest tile costs least: least area first of all, and among tiles of about the
 * same area the most nearly square, because each edge has to be packed. Rows win a tie. */
static struct grid choose_grid(const struct gemm *gemm, int threads)
{
    struct grid best = {.rows = threads, .columns = 1};
    double best_cost = -1.0;

    for (int columns = 1; columns <= threads; columns++) {
        if (threads % columns != 0) {
            continue;
        }
        const double high = (double)largest_share(gemm->M, ROW_GRAIN, threads / columns);
        const double wide = (double)largest_share(gemm->N, COLUMN_GRAIN, columns);
        const double cost = high * wide + EDGE_COST * (high + wide);
        if (best_cost < 0.0 || cost < best_cost) {
            best = (struct grid){.rows = threads / columns, .columns = columns};
            best_cost = cost;
        }
    }
    return best;
}

static void run_tile(void *context, int part, int parts)
{
    struct split *split = context;
    struct gemm tile = *split->gemm;
    size_t row = 0;
    size_t row_end = 0;
    size_t column = 0;
    size_t column_end = 0;

    (void)parts;
    stream_share(tile.M, ROW_GRAIN, part / split->grid.columns, split->grid.rows, &row, &row_end);
    stream_share(tile.N, COLUMN_GRAIN, part % split->grid.columns, split->grid.columns, &column,
                 &column_end);
    if (row == row_end || column == column_end) {
        return;
    }
    tile.a = dtype_const_at(tile.a, tile.a_type, tile.op_a == GEMM_PLAIN ? row * tile.lda : row);
    tile.b =
        dtype_const_at(tile.b, tile.b_type, tile.op_b == GEMM_PLAIN ? column : column * tile.ldb);
    tile.c = dtype_at(tile.c, tile.c_type, row * tile.ldc + column);
    tile.M = row_end - row;
    tile.N = column_end - column;
    const int code = gemm_tile_run(&tile, stream_scratch(split->stream, part));
    if (code != 0) {
        atomic_store(&split->failed, code);
    }
}

enum status gemm_run(const struct gemm *gemm, struct stream *stream)
{
    const int threads = stream_threads(stream);
    struct split split = {.gemm = gemm, .stream = stream};

    ENSURE(gemm->beta == 0.0F || gemm->c_type == DTYPE_FP32, "beta %g with a C of %s",
           (double)gemm->beta, dtype_text(gemm->c_type));
    ENSURE(all_fp32(gemm) || stream_scratch_floats(stream) >= GEMM_SCRATCH_FLOATS,
           "%s x %s to %s needs scratch of %zu floats, reserved are %zu", dtype_text(gemm->a_type),
           dtype_text(gemm->b_type), dtype_text(gemm->c_type), GEMM_SCRATCH_FLOATS,
           stream_scratch_floats(stream));
    TRY(gemm_check(gemm));
    /* Each factor is below the limit before the next product is made, so none overflows. */
    if (threads == 1 || gemm->M == 0 || gemm->N == 0 || gemm->K == 0 ||
        (gemm->M < ALONE_LIMIT && gemm->N < ALONE_LIMIT && gemm->M * gemm->N < ALONE_LIMIT &&
         gemm->K < ALONE_LIMIT && gemm->M * gemm->N * gemm->K < ALONE_LIMIT)) {
        return run_whole(gemm, stream_scratch(stream, 0));
    }
    split.grid = choose_grid(gemm, threads);
    stream_run(stream, run_tile, &split);
    const int code = atomic_load(&split.failed);
    return code == 0 ? STATUS_OK : library_failure(gemm, code);
}
