#include "product.h"

#include "tensor/gemm.h"

enum status product_run(const struct gemm *gemm, struct stream *stream)
{
    return gemm_run(gemm, stream);
}

bool product_takes(enum dtype a_type, enum dtype b_type, enum dtype c_type)
{
    (void)a_type;
    (void)b_type;
    (void)c_type;
    return true;
}
