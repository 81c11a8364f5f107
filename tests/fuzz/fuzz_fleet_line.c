/* What members of a fleet say: lines stay short and printable, progress and numbers stay sensible. */
#include "fuzz.h"

#include <ctype.h>
#include <math.h>

#include "harness/fleet/fleet_line.h"

static void look(const char *line, void *arg)
{
    struct fleet_progress *progress = arg;

    const size_t length = strnlen(line, FLEET_LINE_MAX);
    FUZZ_PROMISE(length > 0 && length < FLEET_LINE_MAX);
    for (const char *c = line; *c; c++)
        FUZZ_PROMISE(isprint((unsigned char)*c));
    if (fleet_line_progress(line, progress))
        FUZZ_PROMISE(progress->steps > 0 && progress->step <= progress->steps);
    FUZZ_PROMISE(isnan(progress->loss) || isfinite(progress->loss));
    FUZZ_PROMISE(isfinite(fleet_line_number(line, "step_ms", 0)));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct fleet_lines lines;
    struct fleet_progress progress = {.loss = NAN};
    const size_t cut = count ? bytes[0] % (count + 1) : 0;

    lines.used = 0;
    fleet_lines_feed(&lines, (const char *)bytes, cut, look, &progress);
    fleet_lines_feed(&lines, (const char *)bytes + cut, count - cut, look, &progress);
    fleet_lines_end(&lines, look, &progress);
    return 0;
}
