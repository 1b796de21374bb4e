#include "tests/emulated/fake_cublaslt.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include <cublasLt.h>

#include "tensor/dtype.h"
#include "tests/emulated/fake_cuda.hpp"

struct fake_lt_handle {
};

struct fake_lt_product {
    cublasComputeType_t compute;
    cublasOperation_t op_a;
    cublasOperation_t op_b;
    cublasLtEpilogue_t ending;
    void *bias;
    void *aux;
    int64_t aux_distance;
};

struct fake_lt_layout {
    cudaDataType_t type;
    uint64_t rows;
    uint64_t columns;
    int64_t distance;
};

struct fake_lt_preference {
    uint64_t workspace_bytes;
    uint32_t schemes;
    uint32_t alignment[4]; /* of A, B, C, D */
};

namespace
{

std::atomic<size_t> left{0};
thread_local size_t refused_rows;
thread_local bool endings_refused;
thread_local size_t endings;
thread_local size_t asked;

/* What the fake keeps in an algorithm: for which product it was given. */
struct choice {
    uint64_t print;
    uint32_t alignment[4];
    uint32_t operand_alignment; /* of what the epilogue reads, as its pointer had it */
};

static_assert(sizeof(choice) <= sizeof(cublasLtMatmulAlgo_t), "a choice fits");

cublasStatus_t refuse(cublasStatus_t status, const char *why)
{
    std::fprintf(stderr, "fake_cublaslt: %s\n", why);
    return status;
}

template <typename T, typename... ARGS> cublasStatus_t create(T **out, ARGS... args)
{
    *out = new T{args...};
    left++;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t destroy(T *gone)
{
    delete gone;
    left--;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t set(T *field, const void *value, size_t bytes)
{
    if (value == nullptr || bytes != sizeof(*field)) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute of another size");
    }
    std::memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

uint64_t mix(uint64_t print, uint64_t value)
{
    return (print ^ value) * UINT64_C(0x100000001b3) + 1;
}

uint64_t print_of(const fake_lt_product *product, const fake_lt_layout *const layouts[4])
{
    uint64_t print = mix(mix(mix(7, product->compute), product->op_a), product->op_b);

    print = mix(mix(print, product->ending), (uint64_t)product->aux_distance);
    for (int i = 0; i < 4; i++) {
        print = mix(mix(print, layouts[i]->type), layouts[i]->rows);
        print = mix(mix(print, layouts[i]->columns), (uint64_t)layouts[i]->distance);
    }
    return print;
}

size_t bytes_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

/* What the library multiplies with sums in fp32. */
bool types_fit(cudaDataType_t a, cudaDataType_t b, cudaDataType_t c)
{
    return a == b && (c == a || c == CUDA_R_32F);
}

cublasStatus_t check_shapes(const fake_lt_product *product, const fake_lt_layout *const layouts[4])
{
    const fake_lt_layout *a = layouts[0];
    const fake_lt_layout *b = layouts[1];
    const fake_lt_layout *d = layouts[3];
    const uint64_t rows = product->op_a == CUBLAS_OP_N ? a->rows : a->columns;
    const uint64_t depth = product->op_a == CUBLAS_OP_N ? a->columns : a->rows;
    const uint64_t b_depth = product->op_b == CUBLAS_OP_N ? b->rows : b->columns;
    const uint64_t columns = product->op_b == CUBLAS_OP_N ? b->columns : b->rows;

    for (int i = 0; i < 4; i++) {
        if (layouts[i]->rows == 0 || layouts[i]->columns == 0 ||
            layouts[i]->distance < (int64_t)layouts[i]->rows) {
            return refuse(CUBLAS_STATUS_INVALID_VALUE, "an empty matrix, or columns that overlap");
        }
    }
    if (d->rows != rows || d->columns != columns || depth != b_depth || layouts[2]->rows != rows ||
        layouts[2]->columns != columns) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "shapes that do not fit each other");
    }
    if (product->ending != CUBLASLT_EPILOGUE_DEFAULT && endings_refused) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (product->ending == CUBLASLT_EPILOGUE_DGELU &&
        (product->aux_distance < (int64_t)rows || product->aux_distance % 8 != 0)) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "a distance of gelu's input that is not whole");
    }
    if (!types_fit(a->type, b->type, d->type) || layouts[2]->type != d->type ||
        rows == refused_rows) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* What the epilogue reads; NULL without. */
const void *operand_of(const fake_lt_product *product)
{
    if (product->ending == CUBLASLT_EPILOGUE_DEFAULT) {
        return nullptr;
    }
    return product->ending == CUBLASLT_EPILOGUE_BIAS ? product->bias : product->aux;
}

uint32_t alignment_of(const void *pointer)
{
    const uintptr_t place = (uintptr_t)pointer | 256U;

    return (uint32_t)(place & (~place + 1));
}

float number_at(const void *matrix, cudaDataType_t type, size_t i)
{
    if (type == CUDA_R_32F) {
        return ((const float *)matrix)[i];
    }
    const uint16_t bits = ((const uint16_t *)matrix)[i];

    return type == CUDA_R_16BF ? dtype_from_bf16(bits) : dtype_from_fp16(bits);
}

void put_number(void *matrix, cudaDataType_t type, size_t i, float number)
{
    if (type == CUDA_R_32F) {
        ((float *)matrix)[i] = number;
    } else {
        ((uint16_t *)matrix)[i] =
            type == CUDA_R_16BF ? dtype_to_bf16(number) : dtype_to_fp16(number);
    }
}

/* TF32 has 10 of fp32's 23 bits. */
float to_tf32(float number)
{
    uint32_t bits;

    std::memcpy(&bits, &number, sizeof(bits));
    bits = (bits + 0x1000U) & ~0x1FFFU;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
}

/* op(matrix) in fp32, column by column. */
std::vector<float> packed(const void *matrix, const fake_lt_layout &of, cublasOperation_t op,
                          bool tf32)
{
    std::vector<float> out(of.rows * of.columns);

    for (size_t column = 0; column < of.columns; column++) {
        for (size_t row = 0; row < of.rows; row++) {
            const size_t to =
                op == CUBLAS_OP_N ? column * of.rows + row : row * of.columns + column;

            out[to] = number_at(matrix, of.type, column * (size_t)of.distance + row);
            out[to] = tf32 ? to_tf32(out[to]) : out[to];
        }
    }
    return out;
}

/* All that an operation needs when it runs. */
struct product {
    fake_lt_product how;
    fake_lt_layout a;
    fake_lt_layout b;
    fake_lt_layout d;
    const void *a_at;
    const void *b_at;
    const void *c_at;
    void *d_at;
    float alpha;
    float beta;
    void *workspace;
};

/* d/dx of gelu in its tanh form, from the formula. */
double gelu_slope(double x)
{
    const double root = std::sqrt(2.0 / std::acos(-1.0));
    const double t = std::tanh(root * (x + 0.044715 * x * x * x));

    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * x * x);
}

/* What the epilogue makes of the sum in this place. */
float ended(const product &p, float sum, size_t row, size_t column)
{
    switch (p.how.ending) {
    case CUBLASLT_EPILOGUE_BIAS:
        return sum + number_at(p.how.bias, p.d.type, row);
    case CUBLASLT_EPILOGUE_DGELU:
        return (float)(sum * gelu_slope(number_at(p.how.aux, p.d.type,
                                                  column * (size_t)p.how.aux_distance + row)));
    default:
        return sum;
    }
}

void multiply(const product &p)
{
    const bool tf32 = p.how.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const std::vector<float> a = packed(p.a_at, p.a, p.how.op_a, tf32);
    const std::vector<float> b = packed(p.b_at, p.b, p.how.op_b, tf32);
    const size_t rows = p.d.rows;
    const size_t depth = a.size() / rows;
    std::vector<float> sums(rows);

    std::memset(p.workspace, 0xFF, FAKE_CUBLASLT_WORKSPACE_BYTES);
    for (size_t column = 0; column < p.d.columns; column++) {
        std::fill(sums.begin(), sums.end(), 0.0F);
        for (size_t k = 0; k < depth; k++) {
            const float factor = b[column * depth + k];

            for (size_t row = 0; row < rows; row++) {
                sums[row] += a[k * rows + row] * factor;
            }
        }
        for (size_t row = 0; row < rows; row++) {
            const size_t at = column * (size_t)p.d.distance + row;
            const float before = p.beta == 0.0F ? 0.0F : p.beta * number_at(p.c_at, p.d.type, at);

            put_number(p.d_at, p.d.type, at, ended(p, p.alpha * sums[row] + before, row, column));
        }
    }
}

/* Memory that is not the GPU's at all is that of a test over plain memory. */
bool within(const void *matrix, const fake_lt_layout *of)
{
    const size_t behind = fake_cuda::bytes_behind(matrix);
    const size_t elems = (of->columns - 1) * (size_t)of->distance + of->rows;

    return behind == 0 || behind >= elems * bytes_of(of->type);
}

cublasStatus_t check_operand(const choice &chosen, const fake_lt_product *how,
                             const fake_lt_layout *d)
{
    const fake_lt_layout bias = {d->type, d->rows, 1, (int64_t)d->rows};
    const fake_lt_layout aux = {d->type, d->rows, d->columns, how->aux_distance};
    const void *operand = operand_of(how);

    if (how->ending == CUBLASLT_EPILOGUE_DEFAULT) {
        return CUBLAS_STATUS_SUCCESS;
    }
    if (operand == nullptr || (uintptr_t)operand % chosen.operand_alignment != 0) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE,
                      "an epilogue without what it reads, or less aligned than was said");
    }
    if (!within(operand, how->ending == CUBLASLT_EPILOGUE_BIAS ? &bias : &aux)) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE,
                      "what an epilogue reads is beyond its allocation");
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_memory(const choice &chosen, const void *const matrices[4],
                            const fake_lt_layout *const layouts[4], void *workspace,
                            size_t workspace_bytes)
{
    for (int i = 0; i < 4; i++) {
        if ((uintptr_t)matrices[i] % chosen.alignment[i] != 0) {
            return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix less aligned than was said");
        }
        if (!within(matrices[i], layouts[i])) {
            return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix beyond its allocation");
        }
    }
    if (workspace_bytes < FAKE_CUBLASLT_WORKSPACE_BYTES || (uintptr_t)workspace % 256 != 0 ||
        !fake_cuda::is_device(workspace) || fake_cuda::bytes_behind(workspace) < workspace_bytes) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE,
                      "a workspace that is too small or not the GPU's");
    }
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace

extern "C" {

void fake_cublaslt_refuse_rows(size_t rows)
{
    refused_rows = rows;
}

void fake_cublaslt_refuse_epilogues(bool refuse)
{
    endings_refused = refuse;
}

size_t fake_cublaslt_epilogues(void)
{
    return endings;
}

size_t fake_cublaslt_left(void)
{
    return left;
}

size_t fake_cublaslt_asked(void)
{
    return asked;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    return create(out);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t gone)
{
    return destroy(gone);
}

size_t cublasLtGetVersion(void)
{
    return 130002;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the functionality requested is not supported";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the GPU program failed to execute";
    default:
        return "an internal operation failed";
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "factors of another type than fp32");
    }
    return create(out, compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr,
                  nullptr, INT64_C(0));
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&product->op_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&product->op_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&product->ending, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&product->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&product->aux, value, bytes);
    default:
        return set(&product->aux_distance, value, bytes);
    }
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t gone)
{
    return destroy(gone);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t distance)
{
    return create(out, type, rows, columns, distance);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t gone)
{
    return destroy(gone);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    const cublasStatus_t status = create(out);

    **out = {0, 7, {256, 256, 256, 256}};
    return status;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        return set(&preference->workspace_bytes, value, bytes);
    }
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
        return set(&preference->schemes, value, bytes);
    }
    return set(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
               value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t gone)
{
    return destroy(gone);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t *results, int *count)
{
    const fake_lt_layout *const layouts[4] = {a, b, c, d};
    const cublasStatus_t status = check_shapes(product, layouts);
    choice chosen = {print_of(product, layouts), {0}, alignment_of(operand_of(product))};

    (void)handle;
    asked++;
    *count = 0;
    if (status != CUBLAS_STATUS_SUCCESS || most < 1) {
        return status;
    }
    if (preference->workspace_bytes < FAKE_CUBLASLT_WORKSPACE_BYTES) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    std::memcpy(chosen.alignment, preference->alignment, sizeof(chosen.alignment));
    results[0] = {};
    std::memcpy(&results[0].algo, &chosen, sizeof(chosen));
    results[0].workspaceSize = FAKE_CUBLASLT_WORKSPACE_BYTES;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1.0F;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void *alpha,
                              const void *a_at, cublasLtMatrixLayout_t a, const void *b_at,
                              cublasLtMatrixLayout_t b, const void *beta, const void *c_at,
                              cublasLtMatrixLayout_t c, void *d_at, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    const fake_lt_layout *const layouts[4] = {a, b, c, d};
    const void *const matrices[4] = {a_at, b_at, c_at, d_at};
    choice chosen;

    (void)handle;
    std::memcpy(&chosen, algo, sizeof(chosen));
    if (chosen.print != print_of(how, layouts)) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm of another product");
    }
    cublasStatus_t status = check_memory(chosen, matrices, layouts, workspace, workspace_bytes);

    if (status == CUBLAS_STATUS_SUCCESS) {
        status = check_operand(chosen, how, d);
    }
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    endings += how->ending == CUBLASLT_EPILOGUE_DEFAULT ? 0 : 1;
    const product p = {
        *how,     *a, *b, *d, a_at, b_at, c_at, d_at, *(const float *)alpha, *(const float *)beta,
        workspace};
    const cudaError_t error = fake_cuda::enqueue_kernel(stream, [p] { multiply(p); });

    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} /* extern "C" */
