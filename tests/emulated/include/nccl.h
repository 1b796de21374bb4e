/*
 * nccl -- stands for the library's header of this name over tests/emulated/fake_nccl.cpp: what weir uses, and nothing
 * else.
 */
#ifndef TESTS_EMULATED_INCLUDE_NCCL_H
#define TESTS_EMULATED_INCLUDE_NCCL_H

#include <limits.h>
#include <stddef.h>

#include "tests/emulated/include/cuda_runtime_api.h"
#include "tests/emulated/nccl_names.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_MAJOR            2
#define NCCL_MINOR            28
#define NCCL_VERSION(X, Y, Z) ((X)*10000 + (Y)*100 + (Z))
#define NCCL_VERSION_CODE     NCCL_VERSION(2, 28, 9)
#define NCCL_UNIQUE_ID_BYTES  NCCL_ID_BYTES
#define NCCL_SPLIT_NOCOLOR    NCCL_NO_COLOR
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define FAKE_NCCL_MAGIC       0xcafebeefU

typedef struct ncclComm *ncclComm_t;

typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

#define FAKE_VALUE(name, value) name = (value),
typedef enum {
    NCCL_RESULTS(FAKE_VALUE)
} ncclResult_t;
typedef enum {
    NCCL_SUMS(FAKE_VALUE)
} ncclRedOp_t;
typedef enum {
    NCCL_TYPES(FAKE_VALUE)
} ncclDataType_t;
#undef FAKE_VALUE

#define FAKE_FIELD(type, name) type name;
typedef struct {
    NCCL_CONFIG_FIELDS(FAKE_FIELD)
} ncclConfig_t;
#undef FAKE_FIELD

#define NCCL_CONFIG_INITIALIZER                                                          \
    {                                                                                    \
        sizeof(ncclConfig_t), FAKE_NCCL_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, \
            NCCL_CONFIG_UNDEF_INT, NULL                                                  \
    }

#define FAKE_FUNCTION(name, result, arguments) result name arguments;
NCCL_FUNCTIONS(FAKE_FUNCTION)
#undef FAKE_FUNCTION

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_INCLUDE_NCCL_H */
