/*
 * nvToolsExt -- stands for the toolkit's header of this name over tests/emulated/fake_nvtx.c: what weir uses, and nothing else.
 */
#ifndef TESTS_EMULATED_INCLUDE_NVTX3_NVTOOLSEXT_H
#define TESTS_EMULATED_INCLUDE_NVTX3_NVTOOLSEXT_H

#include "tests/emulated/cuda_names.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): the toolkit's names */
#define FAKE_FUNCTION(name, result, arguments) result name arguments;
NVTX_FUNCTIONS(FAKE_FUNCTION)
#undef FAKE_FUNCTION
/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_INCLUDE_NVTX3_NVTOOLSEXT_H */
