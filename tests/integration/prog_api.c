/* prog_api: programs that know of gpucap and ask it (gpucap.h). One scenario a run; see prog_check.h. Not for
 * a run without the library. */
#include "prog_check.h"

#include "gpucap.h"

static struct gpucap_stats stats(void)
{
    struct gpucap_stats s;

    MUST(0, gpucap_stats(0, &s, sizeof s));
    return s;
}

static size_t told_free(void)
{
    size_t free_bytes, total;

    MUST(0, cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/* ---- the limit ---- */

/* What is cached makes way for a lower limit, what is live stays, and what does not fit is refused. */
static void lowered(void)
{
    CUdeviceptr live, freed, more;

    prog_context(0);
    MUST(0, cuMemAlloc(&live, 32 * MIB));
    MUST(0, cuMemAlloc(&freed, 512 * MIB));
    prog_fill(live, 7, 32 * MIB);
    MUST(0, cuMemFree(freed));
    const uint64_t used = stats().used;
    MUST(true, stats().cached >= 512 * MIB && used > 256 * MIB);
    MUST(0, gpucap_set_limit(0, 256 * MIB));
    MUST(true, stats().used <= 256 * MIB);
    MUST(true, stats().live == 32 * MIB && stats().limit == 256 * MIB);
    MUST(0, prog_wrong(live, 7, 32 * MIB));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 512 * MIB));
    MUST(0, gpucap_set_limit(0, 64 * MIB)); /* less than what is in use */
    MUST(true, stats().physical == 32 * MIB && stats().live == 32 * MIB);
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 8 * MIB));
    MUST(0, told_free());
    MUST(0, gpucap_set_limit(0, 768 * MIB));
    MUST(0, cuMemAlloc(&more, 256 * MIB));
    MUST(0, prog_wrong(live, 7, 32 * MIB));
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"lowered", lowered},
    };

    return prog_main(argc, argv, all, sizeof all / sizeof *all);
}
