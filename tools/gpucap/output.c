/* output: see output.h. */
#include "tools/gpucap/output.h"

#include "tools/gpucap/cli.h"
#include "tools/gpucap/recording_read.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_stdout(const char *path)
{
    return !path || !strcmp(path, "-");
}

FILE *output_open(const char *command, const char *path)
{
    if (is_stdout(path))
        return stdout;
    FILE *out = fopen(path, "we");
    if (!out)
        cli_fail("%s: %s cannot be written: %s", command, path, strerror(errno));
    return out;
}

bool output_is_recording(const char *command, const char *path)
{
    if (is_stdout(path) || !recording_is(path))
        return false;
    cli_fail("%s: %s would be overwritten: it is a recording; name another file behind -o", command, path);
    return true;
}

int output_close(const char *command, const char *path, FILE *out, bool good)
{
    struct stat stat;
    const bool plain = fstat(fileno(out), &stat) == 0 && S_ISREG(stat.st_mode);

    if (is_stdout(path))
        return good ? 0 : cli_fail("%s: no memory", command); /* main() looks whether all was written */
    bool written = fflush(out) == 0 && !ferror(out);
    const int error = errno;
    written = fclose(out) == 0 && written;
    if (written && good)
        return 0;
    if (plain)
        unlink(path);
    return cli_fail("%s: %s cannot be written: %s", command, path, good ? strerror(error) : "no memory");
}
