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
    uint64_t form;   /* ops, types and alignments */
    uint64_t ending; /* which epilogue, and the alignment of what it reads */
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
    bool refused; /* there is no algorithm with this epilogue */
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

/* NULL without an epilogue. */
static const void *operand_of(const struct gemm_cuda_epilogue *epilogue)
{
    if (epilogue == NULL) {
        return NULL;
    }
    return epilogue->bias != NULL ? epilogue->bias : epilogue->gelu_input;
}

static cublasLtEpilogue_t ending_of(const struct gemm_cuda_epilogue *epilogue)
{
    if (epilogue == NULL) {
        return CUBLASLT_EPILOGUE_DEFAULT;
    }
    return epilogue->bias != NULL ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DGELU;
}

static struct plan_key key_of(const struct gemm *gemm, const struct gemm_cuda_epilogue *epilogue)
{
    const uint64_t parts[] = {gemm->op_a,
                              gemm->op_b,
                              gemm->a_type,
                              gemm->b_type,
                              gemm->c_type,
                              alignment_of(gemm->a),
                              alignment_of(gemm->b),
                              alignment_of(gemm->c)};
    struct plan_key key = {.ending = (uint64_t)ending_of(epilogue) << 8 |
                                     alignment_of(operand_of(epilogue)),
                           .M = gemm->M,
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
    const uint64_t words[] = {key->form, key->ending, key->M,   key->N,
                              key->K,    key->lda,    key->ldb, key->ldc};
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

/* Where the epilogue finds what it reads. */
static cublasStatus_t point_epilogue(const struct plan *plan, cublasLtEpilogue_t ending,
                                     const void *operand)
{
    return cublasLtMatmulDescSetAttribute(plan->product,
                                          ending == CUBLASLT_EPILOGUE_BIAS
                                              ? CUBLASLT_MATMUL_DESC_BIAS_POINTER
                                              : CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                          &operand, sizeof(operand));
}

/* A plan is chosen for every operand of one alignment, and the library reads the alignment off the pointer: what it is shown
 * here is an address with just that, and no operand. Each product points to its own (point_epilogue()). */
static cublasStatus_t describe_epilogue(const struct plan *plan, const struct gemm *gemm,
                                        const struct gemm_cuda_epilogue *epilogue)
{
    const cublasLtEpilogue_t ending = ending_of(epilogue);
    const int64_t distance = (int64_t)gemm->ldc;
    const uint64_t place = alignment_of(operand_of(epilogue));
    const void *operand = NULL;
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;

    if (epilogue == NULL) {
        return CUBLAS_STATUS_SUCCESS;
    }
    memcpy(&operand, &place, sizeof(operand));
    code = cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &ending,
                                          sizeof(ending));
    if (ending == CUBLASLT_EPILOGUE_DGELU) {
        code = first_of(code, cublasLtMatmulDescSetAttribute(plan->product,
                                                             CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                                             &distance, sizeof(distance)));
    }
    return first_of(code, point_epilogue(plan, ending, operand));
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

/* What the library says of an epilogue that it does not have. */
static bool is_refusal(cublasStatus_t code)
{
    return code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_INVALID_VALUE;
}

/* Leaves the place empty where it fails. */
static enum status make_plan(struct gemm_cuda *own, struct plan *plan, const struct gemm *gemm,
                             const struct gemm_cuda_epilogue *epilogue)
{
    cublasLtMatmulHeuristicResult_t found;
    cublasStatus_t code = first_of(describe(plan, gemm, own->tf32), prefer_alignment(own, gemm));
    int count = 0;

    if (code == CUBLAS_STATUS_SUCCESS) {
        code = describe_epilogue(plan, gemm, epilogue);
    }
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
        if (epilogue == NULL || !is_refusal(code)) {
            return product_failure(gemm, STATUS_ERR_UNSUPPORTED, "cuBLASLt has no algorithm", code);
        }
        plan->refused = true;
    } else {
        plan->algo = found.algo;
    }
    plan->key = key_of(gemm, epilogue);
    plan->made = true;
    own->plan_count++;
    return STATUS_OK;
}

static enum status check_product(const struct gemm *gemm, const struct gpu_queue *queue)
{
    ENSURE(queue != NULL && queue->gemm != NULL,
           "a product of the GPU on a stream of another kind");
    ENSURE(gemm->beta == 0.0F || gemm->c_type == DTYPE_FP32, "beta %g with a C of %s",
           (double)gemm->beta, dtype_text(gemm->c_type));
    return gemm_check(gemm);
}

/* Of a product that is not empty. */
static enum status find_plan(struct gemm_cuda *own, const struct gemm *gemm,
                             const struct gemm_cuda_epilogue *epilogue, struct plan **plan_out)
{
    const struct plan_key key = key_of(gemm, epilogue);

    *plan_out = find_place(own, &key);
    return (*plan_out)->made ? STATUS_OK : make_plan(own, *plan_out, gemm, epilogue);
}

static enum status multiply(const struct gemm_cuda *own, const struct plan *plan,
                            const struct gemm *gemm, const struct gpu_queue *queue)
{
    const cublasStatus_t code = cublasLtMatmul(
        own->library, plan->product, &gemm->alpha, gemm->b, plan->first, gemm->a, plan->second,
        &gemm->beta, gemm->c, plan->result, gemm->c, plan->result, &plan->algo, own->workspace,
        GEMM_CUDA_WORKSPACE_BYTES, (cudaStream_t)queue->handle);

    return code == CUBLAS_STATUS_SUCCESS
               ? STATUS_OK
               : product_failure(gemm, STATUS_ERR_CUDA, "cuBLASLt failed", code);
}

enum status gemm_cuda_run(const struct gemm *gemm, struct stream *stream)
{
    const struct gpu_queue *queue = stream_queue(stream);
    struct plan *plan = NULL;

    TRY(check_product(gemm, queue));
    if (gemm->M == 0 || gemm->N == 0) {
        return STATUS_OK;
    }
    if (gemm->K == 0) {
        return scale_rows_cuda(gemm->c, gemm->c_type, gemm->M, gemm->N, gemm->ldc, gemm->beta,
                               stream);
    }
    TRY(find_plan(queue->gemm, gemm, NULL, &plan));
    return multiply(queue->gemm, plan, gemm, queue);
}

/* What the library documents of the matrix that gelu' reads. */
#define GELU_INPUT_DISTANCE 8

enum status gemm_cuda_run_with(const struct gemm *gemm, const struct gemm_cuda_epilogue *epilogue,
                               struct stream *stream, bool *made_out)
{
    const struct gpu_queue *queue = stream_queue(stream);
    struct plan *plan = NULL;
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;

    ENSURE((epilogue->bias != NULL) != (epilogue->gelu_input != NULL), "not one epilogue");
    ENSURE(gemm->alpha == 1.0F && gemm->beta == 0.0F, "alpha %g, beta %g", (double)gemm->alpha,
           (double)gemm->beta);
    TRY(check_product(gemm, queue));
    *made_out = false;
    if (gemm->M == 0 || gemm->N == 0 || gemm->K == 0 ||
        (epilogue->gelu_input != NULL && gemm->ldc % GELU_INPUT_DISTANCE != 0)) {
        return STATUS_OK;
    }
    TRY(find_plan(queue->gemm, gemm, epilogue, &plan));
    if (plan->refused) {
        return STATUS_OK;
    }
    *made_out = true;
    code = point_epilogue(plan, ending_of(epilogue), operand_of(epilogue));
    if (code != CUBLAS_STATUS_SUCCESS) {
        return product_failure(gemm, STATUS_ERR_CUDA, "cuBLASLt failed", code);
    }
    return multiply(queue->gemm, plan, gemm, queue);
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
