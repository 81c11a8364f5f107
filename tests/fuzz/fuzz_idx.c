/* IDX files of training data: what is accepted lies wholly inside the bytes that were given. */
#include "fuzz.h"
#include "harness/data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct idx idx;
    if (idx_parse(&idx, bytes, count))
        return 0;
    FUZZ_PROMISE(idx.dimensions >= 0 && idx.dimensions <= IDX_MAX_DIMENSIONS);
    FUZZ_PROMISE(idx.data >= bytes && idx.data <= bytes + count);
    FUZZ_PROMISE(idx.count <= (size_t)(bytes + count - idx.data));
    return 0;
}
