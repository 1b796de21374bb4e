#include "tensor/gemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>
#include <string.h>

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
    atomic_int failed; /* a dnnl_status_t that is not success, from any member */
};

static int library_sgemm(const struct gemm *gemm)
{
    /* Per thread, and cheap: a caller that never ran on a team must not start the library's. */
    omp_set_num_threads(1);
    return (int)dnnl_sgemm(gemm->op_a == GEMM_PLAIN ? 'N' : 'T',
                           gemm->op_b == GEMM_PLAIN ? 'N' : 'T', (dnnl_dim_t)gemm->M,
                           (dnnl_dim_t)gemm->N, (dnnl_dim_t)gemm->K, gemm->alpha, gemm->a,
                           (dnnl_dim_t)gemm->lda, gemm->b, (dnnl_dim_t)gemm->ldb, gemm->beta,
                           gemm->c, (dnnl_dim_t)gemm->ldc);
}

static enum status library_failure(const struct gemm *gemm, int code)
{
    return status_fail(STATUS_ERR_INVALID,
                       "matrix product %s%s of %zu x %zu x %zu (M, N, K), lda %zu, ldb %zu, ldc "
                       "%zu: oneDNN answered status %d",
                       gemm->op_a == GEMM_PLAIN ? "N" : "T", gemm->op_b == GEMM_PLAIN ? "N" : "T",
                       gemm->M, gemm->N, gemm->K, gemm->lda, gemm->ldb, gemm->ldc, code);
}

/* What is left of the formula where the product is empty: c = beta · c. */
static void scale_c(const struct gemm *gemm)
{
    for (size_t row = 0; row < gemm->M; row++) {
        float *c = gemm->c + row * gemm->ldc;
        if (gemm->beta == 0.0F) {
            memset(c, 0, gemm->N * sizeof(*c));
            continue;
        }
        for (size_t column = 0; column < gemm->N; column++) {
            c[column] *= gemm->beta;
        }
    }
}

enum status gemm_run_alone(const struct gemm *gemm)
{
    if (gemm->M == 0 || gemm->N == 0) {
        return STATUS_OK;
    }
    if (gemm->K == 0) {
        scale_c(gemm);
        return STATUS_OK;
    }
    const int code = library_sgemm(gemm);
    return code == dnnl_success ? STATUS_OK : library_failure(gemm, code);
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
    tile.a += tile.op_a == GEMM_PLAIN ? row * tile.lda : row;
    tile.b += tile.op_b == GEMM_PLAIN ? column : column * tile.ldb;
    tile.c += row * tile.ldc + column;
    tile.M = row_end - row;
    tile.N = column_end - column;
    const int code = library_sgemm(&tile);
    if (code != dnnl_success) {
        atomic_store(&split->failed, code);
    }
}

enum status gemm_run(const struct gemm *gemm, struct stream *stream)
{
    const int threads = stream_threads(stream);
    struct split split = {.gemm = gemm};

    /* Each factor is below the limit before the next product is made, so none overflows. */
    if (threads == 1 || gemm->M == 0 || gemm->N == 0 || gemm->K == 0 ||
        (gemm->M < ALONE_LIMIT && gemm->N < ALONE_LIMIT && gemm->M * gemm->N < ALONE_LIMIT &&
         gemm->K < ALONE_LIMIT && gemm->M * gemm->N * gemm->K < ALONE_LIMIT)) {
        return gemm_run_alone(gemm);
    }
    split.grid = choose_grid(gemm, threads);
    stream_run(stream, run_tile, &split);
    const int code = atomic_load(&split.failed);
    return code == dnnl_success ? STATUS_OK : library_failure(gemm, code);
}
