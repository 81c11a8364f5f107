/* gpucap page: recordings as one HTML file. Owns no lock. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/output.h"
#include "tools/gpucap/page.h"

int cmd_page(const struct arguments *arguments)
{
    struct recording_set set;
    const char *path = arguments_value(arguments, "output");
    int status;

    if (!path)
        return cli_fail("page: where to? usage: gpucap page FILE... -o OUT.html");
    if (output_is_recording("page", path))
        return CLI_FAILED;
    if ((status = recording_set_open(&set, "page", arguments->operands, arguments->count)))
        return status;
    FILE *out = output_open("page", path);
    status = out ? output_close("page", path, out, page_write(out, &set)) : CLI_FAILED;
    return recording_set_close(&set, status);
}
