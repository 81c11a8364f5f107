/* gpucap export: recordings in the formats of other programs. Owns no lock. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/export.h"
#include "tools/gpucap/output.h"

#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    bool (*write)(FILE *out, const struct recording_set *set);
    bool one;    /* of one recording only */
    bool binary; /* not for a terminal */
} formats[] = {
    {"perfetto", export_perfetto, false, true},
    {"pytorch", export_pytorch, true, true},
    {"csv", export_csv, false, false},
    {"svg", export_svg, false, false},
};
#define FORMATS (sizeof(formats) / sizeof(*formats))

static int find_format(const char *name, size_t *format)
{
    const char *names[FORMATS];

    if (!name)
        return cli_fail("export: which format? --to=perfetto, pytorch, csv or svg");
    for (*format = 0; *format < FORMATS; ++*format) {
        names[*format] = formats[*format].name;
        if (!strcmp(formats[*format].name, name))
            return 0;
    }
    return cli_unknown("export: ", "format", name, names, FORMATS);
}

int cmd_export(const struct arguments *arguments)
{
    struct recording_set set;
    size_t format = 0;
    int status = find_format(arguments_value(arguments, "to"), &format);

    if (status)
        return status;
    const char *path = arguments_value(arguments, "output");
    if (!path && formats[format].binary && isatty(STDOUT_FILENO))
        return cli_fail("export: %s is not text, so it is not written to a terminal: give -o FILE",
                        formats[format].name);
    if (formats[format].one && arguments->count > 1)
        return cli_fail("export: %s holds one process: give one recording", formats[format].name);
    if (output_is_recording("export", path))
        return CLI_FAILED;
    if ((status = recording_set_open(&set, "export", arguments->operands, arguments->count)))
        return status;
    FILE *out = output_open("export", path);
    status = out ? output_close("export", path, out, formats[format].write(out, &set)) : CLI_FAILED;
    return recording_set_close(&set, status);
}
