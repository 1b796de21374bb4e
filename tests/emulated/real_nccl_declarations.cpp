/* Compiled where NCCL is: holds what its fake declares against the library's own header, which has the runtime in
 * another form than real_declarations.cpp. */
#include <nccl.h>
#include <type_traits>

#include "tests/emulated/nccl_names.h"

#define SAME_VALUE(name, value) static_assert((int)(name) == (value), #name);
#define SAME_FUNCTION(name, result, arguments) \
    static_assert(std::is_same<decltype(&name), result(*) arguments>::value, #name);
#define SAME_FIELD(type, name) \
    static_assert(std::is_same<decltype(ncclConfig_t::name), type>::value, #name);

NCCL_RESULTS(SAME_VALUE)
NCCL_SUMS(SAME_VALUE)
NCCL_TYPES(SAME_VALUE)
NCCL_CONFIG_FIELDS(SAME_FIELD)
NCCL_FUNCTIONS(SAME_FUNCTION)

static_assert(NCCL_SPLIT_NOCOLOR == NCCL_NO_COLOR, "NCCL_SPLIT_NOCOLOR");
static_assert(sizeof(ncclUniqueId) == NCCL_ID_BYTES, "ncclUniqueId");
