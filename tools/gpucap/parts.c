/* parts: see parts.h. */
#include "tools/gpucap/parts.h"

#include "tools/gpucap/cli.h"
#include "tools/gpucap/place.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

static const struct {
    const char *file, *package, *instead;
} parts[] = {
    [PARTS_TABLE] = {"libgpucap_table.so", "libsmartcols-dev", "--json and --prometheus do without it"},
    [PARTS_JSON] = {"libgpucap_json.so", "libcjson-dev", "--prometheus does without it"},
    [PARTS_TOP] = {"libgpucap_top.so", "libncurses-dev", "`gpucap ps` shows the same once"},
};

parts_show parts_load(enum parts_part part, const char *command)
{
    char path[PATH_MAX];
    parts_show show = NULL;

    if (place_part(parts[part].file, path, sizeof(path))) {
        cli_fail(
            "%s: %s is neither beside this executable nor in ../lib; it is built where Debian's %s is; %s",
            command, parts[part].file, parts[part].package, parts[part].instead);
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *address = library ? dlsym(library, "part_show") : NULL;
    memcpy(&show, &address, sizeof(show));
    if (!show)
        cli_fail("%s: %s; %s", command, dlerror(), parts[part].instead);
    return show;
}
