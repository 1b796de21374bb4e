#include "tensor/cuda/gemm_cuda.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tensor/cuda/scale_rows.h"
#include "tensor/gemm.h"
#include "tensor/stream.h"

/* What a pointer is said to be a multiple of, at most. Arenas keep more, but a part of a tensor need not, and the
 * algorithm should not depend on where a tensor lies. */
#define MOST_ALIGNMENT 16U

/* All that the library's answer depends on. */
struct plan_key {
    uint64_t form; /* ops, types and alignments */
    uint64_t M;
    uint64_t N;
    uint64_t K;
    uint64_t lda;
    uint64_t ldb;
    uint64_t ldc;
};

/*
 * The library counts in columns: what is C (M,N) by rows is Cᵀ (N,M) by columns, without a copy. So it is asked for
 * Cᵀ = op(B)ᵀ · op(A)ᵀ, where B comes first and each transposition stays what it is.
 */
struct plan {
    bool made;
    struct plan_key key;
    cublasLtMatmulDesc_t product; /* owns these */
    cublasLtMatrixLayout_t first; /* B */
    cublasLtMatrixLayout_t second;
    cublasLtMatrixLayout_t result;
    cublasLtMatmulAlgo_t algo;
};

struct gemm_cuda {
    cublasLtHandle_t library;              /* owns these */
    cublasLtMatmulPreference_t preference; /* but for the alignments that of all plans */
    void *workspace;
    bool tf32;
    size_t plan_count;
    struct plan plans[GEMM_CUDA_PLANS]; /* open-addressed */
};

/* The code of the failure, from the first call that had one. */
static cublasStatus_t first_of(cublasStatus_t before, cublasStatus_t now)
{
    return before != CUBLAS_STATUS_SUCCESS ? before : now;
}

static enum status start_failure(const char *what, cublasStatus_t code)
{
    return status_fail(STATUS_ERR_CUDA, "starting cuBLASLt: %s: %s", what,
                       cublasLtGetStatusString(code));
}

static enum status product_failure(const struct gemm *gemm, enum status status, const char *what,
                                   cublasStatus_t code)
{
    char text[GEMM_TEXT_BYTES];

    return status_fail(status, "matrix product %s: %s: %s", gemm_text(gemm, text), what,
                       cublasLtGetStatusString(code));
}

enum status gemm_cuda_create(bool tf32, struct gemm_cuda **gemm_out)
{
    const uint64_t workspace_bytes = GEMM_CUDA_WORKSPACE_BYTES;
    /* Partial sums of a split K stay in fp32. */
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    struct gemm_cuda *gemm = calloc(1, sizeof(*gemm));
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    cudaError_t error = cudaSuccess;

    if (gemm == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "starting cuBLASLt: %zu bytes", sizeof(*gemm));
    }
    gemm->tf32 = tf32;
    code = cublasLtCreate(&gemm->library);
    if (code == CUBLAS_STATUS_SUCCESS) {
        code = cublasLtMatmulPreferenceCreate(&gemm->preference);
    }
    if (code == CUBLAS_STATUS_SUCCESS) {
        code = cublasLtMatmulPreferenceSetAttribute(gemm->preference,
                                                    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &workspace_bytes, sizeof(workspace_bytes));
        code = first_of(code, cublasLtMatmulPreferenceSetAttribute(
                                  gemm->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                  &schemes, sizeof(schemes)));
    }
    if (code != CUBLAS_STATUS_SUCCESS) {
        gemm_cuda_destroy(&gemm);
        return start_failure("handle and preferences", code);
    }
    error = cudaMalloc(&gemm->workspace, GEMM_CUDA_WORKSPACE_BYTES);
    if (error != cudaSuccess) {
        (void)cudaGetLastError(); /* it is reported here, not at the next launch */
        gemm_cuda_destroy(&gemm);
        return status_fail(error == cudaErrorMemoryAllocation ? STATUS_ERR_NO_MEMORY
                                                              : STATUS_ERR_CUDA,
                           "workspace of cuBLASLt, %zu bytes: %s", GEMM_CUDA_WORKSPACE_BYTES,
                           cudaGetErrorString(error));
    }
    *gemm_out = gemm;
    return STATUS_OK;
}

static uint64_t alignment_of(const void *pointer)
{
    const uint64_t lowest = (uintptr_t)pointer & (~(uintptr_t)pointer + 1);

    return lowest == 0 || lowest > MOST_ALIGNMENT ? MOST_ALIGNMENT : lowest;
}

static struct plan_key key_of(const struct gemm *gemm)
{
    const uint64_t parts[] = {gemm->op_a,
                              gemm->op_b,
                              gemm->a_type,
                              gemm->b_type,
                              gemm->c_type,
                              alignment_of(gemm->a),
                              alignment_of(gemm->b),
                              alignment_of(gemm->c)};
    struct plan_key key = {.M = gemm->M,
                           .N = gemm->N,
                           .K = gemm->K,
                           .lda = gemm->lda,
                           .ldb = gemm->ldb,
                           .ldc = gemm->ldc};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        key.form = key.form << 8 | parts[i];
    }
    return key;
}

static size_t home_of(const struct plan_key *key)
{
    const uint64_t words[] = {key->form, key->M, key->N, key->K, key->lda, key->ldb, key->ldc};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return (size_t)hash % GEMM_CUDA_PLANS;
}

static void drop(struct plan *plan)
{
    if (plan->product != NULL) {
        (void)cublasLtMatmulDescDestroy(plan->product);
    }
    if (plan->first != NULL) {
        (void)cublasLtMatrixLayoutDestroy(plan->first);
    }
    if (plan->second != NULL) {
        (void)cublasLtMatrixLayoutDestroy(plan->second);
    }
    if (plan->result != NULL) {
        (void)cublasLtMatrixLayoutDestroy(plan->result);
    }
    memset(plan, 0, sizeof(*plan));
}

/* The plan of the key, or the place for it: the first that is free, where none is the one at home, emptied. */
static struct plan *find_place(struct gemm_cuda *own, const struct plan_key *key)
{
    const size_t home = home_of(key);

    for (size_t i = 0; i < GEMM_CUDA_PLANS; i++) {
        struct plan *plan = &own->plans[(home + i) % GEMM_CUDA_PLANS];

        if (!plan->made || memcmp(&plan->key, key, sizeof(*key)) == 0) {
            return plan;
        }
    }
    drop(&own->plans[home]);
    return &own->plans[home];
}

static cudaDataType_t library_type(enum dtype type)
{
    switch (type) {
    case DTYPE_BF16:
        return CUDA_R_16BF;
    case DTYPE_FP16:
        return CUDA_R_16F;
    default:
        return CUDA_R_32F;
    }
}

/* A matrix of `rows` by rows is one of `rows` columns to the library. */
static cublasStatus_t layout_make(cublasLtMatrixLayout_t *layout, enum dtype type, size_t rows,
                                  size_t columns, size_t distance)
{
    return cublasLtMatrixLayoutCreate(layout, library_type(type), columns, rows, (int64_t)distance);
}

static cublasStatus_t describe(struct plan *plan, const struct gemm *gemm, bool tf32)
{
    const bool a_plain = gemm->op_a == GEMM_PLAIN;
    const bool b_plain = gemm->op_b == GEMM_PLAIN;
    const cublasOperation_t first_op = b_plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasOperation_t second_op = a_plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasComputeType_t compute =
        tf32 && gemm->a_type == DTYPE_FP32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasStatus_t code = cublasLtMatmulDescCreate(&plan->product, compute, CUDA_R_32F);

    if (code != CUBLAS_STATUS_SUCCESS) {
        return code;
    }
    code = cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &first_op,
                                          sizeof(first_op));
    code = first_of(code, cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSB,
                                                         &second_op, sizeof(second_op)));
    code = first_of(code, layout_make(&plan->first, gemm->b_type, b_plain ? gemm->K : gemm->N,
                                      b_plain ? gemm->N : gemm->K, gemm->ldb));
    code = first_of(code, layout_make(&plan->second, gemm->a_type, a_plain ? gemm->M : gemm->K,
                                      a_plain ? gemm->K : gemm->M, gemm->lda));
    return first_of(code, layout_make(&plan->result, gemm->c_type, gemm->M, gemm->N, gemm->ldc));
}

static cublasStatus_t prefer_alignment(struct gemm_cuda *own, const struct gemm *gemm)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *pointer;
    } pointers[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, gemm->b},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, gemm->a},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, gemm->c},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, gemm->c}};
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;

    for (size_t i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++) {
        const uint32_t bytes = (uint32_t)alignment_of(pointers[i].pointer);

        code = first_of(code, cublasLtMatmulPreferenceSetAttribute(
                                  own->preference, pointers[i].attribute, &bytes, sizeof(bytes)));
    }
    return code;
}

/* Leaves the place empty where it fails. */
static enum status make_plan(struct gemm_cuda *own, struct plan *plan, const struct gemm *gemm)
{
    cublasLtMatmulHeuristicResult_t found;
    cublasStatus_t code = first_of(describe(plan, gemm, own->tf32), prefer_alignment(own, gemm));
    int count = 0;

    if (code == CUBLAS_STATUS_SUCCESS) {
        code = cublasLtMatmulAlgoGetHeuristic(own->library, plan->product, plan->first,
                                              plan->second, plan->result, plan->result,
                                              own->preference, 1, &found, &count);
    }
    if (code == CUBLAS_STATUS_SUCCESS) {
        code = count > 0 ? found.state : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (code != CUBLAS_STATUS_SUCCESS) {
        drop(plan);
        return product_failure(gemm, STATUS_ERR_UNSUPPORTED, "cuBLASLt has no algorithm", code);
    }
    plan->algo = found.algo;
    plan->key = key_of(gemm);
    plan->made = true;
    own->plan_count++;
    return STATUS_OK;
}

enum status gemm_cuda_run(const struct gemm *gemm, struct stream *stream)
{
    const struct gpu_queue *queue = stream_queue(stream);
    const struct plan_key key = key_of(gemm);
    struct gemm_cuda *own = NULL;
    struct plan *plan = NULL;
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;

    ENSURE(queue != NULL && queue->gemm != NULL,
           "a product of the GPU on a stream of another kind");
    ENSURE(gemm->beta == 0.0F || gemm->c_type == DTYPE_FP32, "beta %g with a C of %s",
           (double)gemm->beta, dtype_text(gemm->c_type));
    TRY(gemm_check(gemm));
    if (gemm->M == 0 || gemm->N == 0) {
        return STATUS_OK;
    }
    if (gemm->K == 0) {
        return scale_rows_cuda(gemm->c, gemm->c_type, gemm->M, gemm->N, gemm->ldc, gemm->beta,
                               stream);
    }
    own = queue->gemm;
    plan = find_place(own, &key);
    if (!plan->made) {
        TRY(make_plan(own, plan, gemm));
    }
    code = cublasLtMatmul(own->library, plan->product, &gemm->alpha, gemm->b, plan->first, gemm->a,
                          plan->second, &gemm->beta, gemm->c, plan->result, gemm->c, plan->result,
                          &plan->algo, own->workspace, GEMM_CUDA_WORKSPACE_BYTES,
                          (cudaStream_t)queue->handle);
    return code == CUBLAS_STATUS_SUCCESS
               ? STATUS_OK
               : product_failure(gemm, STATUS_ERR_CUDA, "cuBLASLt failed", code);
}

void gemm_cuda_version(char *text, size_t bytes)
{
    const size_t version = cublasLtGetVersion();

    (void)snprintf(text, bytes, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

size_t gemm_cuda_plans(const struct gemm_cuda *gemm)
{
    return gemm->plan_count;
}

void gemm_cuda_destroy(struct gemm_cuda **gemm)
{
    struct gemm_cuda *gone = *gemm;

    if (gone == NULL) {
        return;
    }
    for (size_t i = 0; i < GEMM_CUDA_PLANS; i++) {
        drop(&gone->plans[i]);
    }
    if (gone->preference != NULL) {
        (void)cublasLtMatmulPreferenceDestroy(gone->preference);
    }
    if (gone->library != NULL) {
        (void)cublasLtDestroy(gone->library);
    }
    (void)cudaFree(gone->workspace);
    free(gone);
    *gemm = NULL;
}
