/* place: see place.h. */
#include "tools/gpucap/place.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of the running executable, without a slash at the end. */
static int own_folder(char *folder, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    if (length < 0)
        return -errno;
    folder[length] = 0;
    char *slash = strrchr(folder, '/');
    if (!slash)
        return -ENOENT;
    *slash = 0;
    return 0;
}

/* Writes the path of a file without links. */
static int resolve(const char *file, char *path, size_t size)
{
    char *real = realpath(file, NULL);
    if (!real)
        return -errno;
    int length = snprintf(path, size, "%s", real);
    free(real);
    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

/* The first of the candidates under the executable's folder that holds the file named probe. */
static int find_beside(const char *const *candidates, const char *probe, char *path, size_t size)
{
    char folder[PATH_MAX];
    char file[PATH_MAX];
    int error = own_folder(folder, sizeof(folder));
    if (error)
        return error;
    for (; *candidates; candidates++) {
        int length = snprintf(file, sizeof(file), "%s/%s%s", folder, *candidates, probe);
        if (length < 0 || (size_t)length >= sizeof(file) || access(file, F_OK) != 0)
            continue;
        /* The sim's libcuda.so.1 may be a link to a versioned name; its folder is the same. */
        return resolve(file, path, size);
    }
    return -ENOENT;
}

static const char *const library_folders[] = {"", "../lib/", NULL};

int place_part(const char *name, char *path, size_t size)
{
    return find_beside(library_folders, name, path, size);
}

int place_library(char *path, size_t size)
{
    const char *given = getenv(PLACE_LIBRARY_ENV);
    if (!given || !*given)
        return find_beside(library_folders, PLACE_LIBRARY_NAME, path, size);
    return resolve(given, path, size);
}

int place_sim(char *path, size_t size)
{
    static const char *const candidates[] = {"sim/", "../lib/gpucap/sim/", NULL};
    int error = find_beside(candidates, "libcuda.so.1", path, size);
    if (error)
        return error;
    *strrchr(path, '/') = 0;
    return 0;
}
