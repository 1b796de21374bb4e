#include "tensor/gemm_tile.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>

#include "tensor/dtype.h"
#include "tensor/gemm.h"
#include "tensor/kernels.h"
#include "tensor/stream.h"

/* A library call packs whole register blocks; see ROW_GRAIN in gemm.c. */
#define GRAIN_ROWS    8
#define GRAIN_COLUMNS 48
#define GRAIN_DEPTH   16

_Static_assert(GEMM_BLOCK_ROWS % GRAIN_ROWS == 0, "shares of whole grains stay within a block");
_Static_assert(GEMM_BLOCK_COLUMNS % GRAIN_COLUMNS == 0, "likewise");
_Static_assert(GEMM_BLOCK_DEPTH % GRAIN_DEPTH == 0, "likewise");

/* One of M, N, K: so many equal parts of it make blocks. */
struct axis {
    size_t elems;
    size_t grain;
    int parts;
};

struct range {
    size_t begin;
    size_t elems;
};

/* A or B. In memory it has `ld` elements between lines; a line runs along K or across it. */
struct operand {
    const void *data;
    enum dtype type;
    size_t ld;
    bool along; /* a line is of elements that follow each other in K */
    float *scratch;
    int held_across; /* which block is in scratch; -1: none */
    int held_cut;
};

/* Where the library finds a block. */
struct block {
    const float *data;
    size_t ld;
};

/* kernel_ops.convert, of any variant: all have the same bits. Without a stream it cannot fail. */
typedef enum status (*convert_fn)(void *out, enum dtype out_type, const void *in,
                                  enum dtype in_type, size_t elems, struct stream *stream);

struct work {
    const struct gemm *gemm;
    convert_fn convert;
    struct axis rows;
    struct axis columns;
    struct axis depth;
    struct operand a;
    struct operand b;
    float *c_scratch; /* a block of a 16-bit C before it is rounded */
    int code;         /* the library's first failure */
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

static struct axis axis_of(size_t elems, size_t most, size_t grain)
{
    return (struct axis){.elems = elems, .grain = grain, .parts = (int)((elems + most - 1) / most)};
}

static struct range range_of(const struct axis *axis, int part)
{
    size_t begin = 0;
    size_t end = 0;

    stream_share(axis->elems, axis->grain, part, axis->parts, &begin, &end);
    return (struct range){.begin = begin, .elems = end - begin};
}

/* Lines lie a little further apart than they are long, so that no power of two is between them:
 * the library reads across lines, and equal places of many lines would share a cache set. */
static size_t scratch_ld(size_t line)
{
    return (line + 15) / 16 * 16 + GEMM_SCRATCH_PAD;
}

static struct block block_of(struct operand *operand, const struct work *work,
                             const struct axis *across_axis, int across, int cut)
{
    const struct range over = range_of(across_axis, across);
    const struct range down = range_of(&work->depth, cut);
    const struct range line = operand->along ? down : over;
    const struct range lines = operand->along ? over : down;
    const size_t ld = scratch_ld(line.elems);
    const size_t first = lines.begin * operand->ld + line.begin;

    if (operand->type == DTYPE_FP32) {
        return (struct block){.data = (const float *)operand->data + first, .ld = operand->ld};
    }
    if (operand->held_across != across || operand->held_cut != cut) {
        for (size_t i = 0; i < lines.elems; i++) {
            const void *from =
                dtype_const_at(operand->data, operand->type, first + i * operand->ld);
            (void)work->convert(operand->scratch + i * ld, DTYPE_FP32, from, operand->type,
                                line.elems, NULL);
        }
        operand->held_across = across;
        operand->held_cut = cut;
    }
    return (struct block){.data = operand->scratch, .ld = ld};
}

/* One block of C in the sum over one cut of K. */
static void multiply(struct work *work, int row, int column, int cut)
{
    const struct gemm *gemm = work->gemm;
    const struct range rows = range_of(&work->rows, row);
    const struct range columns = range_of(&work->columns, column);
    const struct block a = block_of(&work->a, work, &work->rows, row, cut);
    const struct block b = block_of(&work->b, work, &work->columns, column, cut);
    struct gemm block = {
        .op_a = gemm->op_a,
        .op_b = gemm->op_b,
        .M = rows.elems,
        .N = columns.elems,
        .K = range_of(&work->depth, cut).elems,
        .alpha = gemm->alpha,
        .beta = cut == 0 ? gemm->beta : 1.0F,
        .a = a.data,
        .b = b.data,
        .lda = a.ld,
        .ldb = b.ld,
    };

    if (gemm->c_type == DTYPE_FP32) {
        block.c = (float *)gemm->c + rows.begin * gemm->ldc + columns.begin;
        block.ldc = gemm->ldc;
    } else {
        block.c = work->c_scratch;
        block.ldc = scratch_ld(columns.elems);
    }
    const int code = library_sgemm(&block);
    work->code = work->code == dnnl_success ? code : work->code;
}

/* All of K for one block of a 16-bit C, and the block where it belongs. */
static void multiply_and_round(struct work *work, int row, int column)
{
    const struct gemm *gemm = work->gemm;
    const struct range rows = range_of(&work->rows, row);
    const struct range columns = range_of(&work->columns, column);
    const size_t ld = scratch_ld(columns.elems);

    for (int cut = 0; cut < work->depth.parts; cut++) {
        multiply(work, row, column, cut);
    }
    for (size_t i = 0; i < rows.elems; i++) {
        const size_t first = (rows.begin + i) * gemm->ldc + columns.begin;
        (void)work->convert(dtype_at(gemm->c, gemm->c_type, first), gemm->c_type,
                            work->c_scratch + i * ld, DTYPE_FP32, columns.elems, NULL);
    }
}

/* What is widened when the rows' loop is the outer one: A's blocks once, B's in every turn; and
 * the other way round. In units of K elements. */
static bool rows_go_outside(const struct work *work)
{
    const double a = work->a.type == DTYPE_FP32 ? 0.0 : (double)work->rows.elems;
    const double b = work->b.type == DTYPE_FP32 ? 0.0 : (double)work->columns.elems;

    return a + b * work->rows.parts <= a * work->columns.parts + b;
}

/* All blocks of C: for one cut of K, or (cut < 0) whole. */
static void run_blocks(struct work *work, int cut)
{
    const bool rows_outside = rows_go_outside(work);
    const int outer = rows_outside ? work->rows.parts : work->columns.parts;
    const int inner = rows_outside ? work->columns.parts : work->rows.parts;

    for (int i = 0; i < outer; i++) {
        for (int j = 0; j < inner; j++) {
            const int row = rows_outside ? i : j;
            const int column = rows_outside ? j : i;
            if (cut < 0) {
                multiply_and_round(work, row, column);
            } else {
                multiply(work, row, column, cut);
            }
        }
    }
}

static struct operand operand_of(const void *data, enum dtype type, size_t ld, bool along)
{
    return (struct operand){
        .data = data, .type = type, .ld = ld, .along = along, .held_across = -1};
}

int gemm_tile_run(const struct gemm *tile, float *scratch)
{
    if (tile->a_type == DTYPE_FP32 && tile->b_type == DTYPE_FP32 && tile->c_type == DTYPE_FP32) {
        return library_sgemm(tile);
    }
    struct work work = {
        .gemm = tile,
        .convert = kernels_cpu()->convert,
        .rows = axis_of(tile->M, GEMM_BLOCK_ROWS, GRAIN_ROWS),
        .columns = axis_of(tile->N, GEMM_BLOCK_COLUMNS, GRAIN_COLUMNS),
        .depth = axis_of(tile->K, GEMM_BLOCK_DEPTH, GRAIN_DEPTH),
        .a = operand_of(tile->a, tile->a_type, tile->lda, tile->op_a == GEMM_PLAIN),
        .b = operand_of(tile->b, tile->b_type, tile->ldb, tile->op_b == GEMM_TRANSPOSED),
        .code = dnnl_success,
    };

    work.a.scratch = scratch;
    work.b.scratch = work.a.scratch + GEMM_SCRATCH_A_FLOATS;
    work.c_scratch = work.b.scratch + GEMM_SCRATCH_B_FLOATS;
    if (tile->c_type != DTYPE_FP32) {
        run_blocks(&work, -1);
        return work.code;
    }
    for (int cut = 0; cut < work.depth.parts; cut++) {
        run_blocks(&work, cut);
    }
    return work.code;
}
