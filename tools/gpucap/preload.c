/* preload: see preload.h. */
#include "tools/gpucap/preload.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool preload_can_hold(const char *path)
{
    return !strpbrk(path, PRELOAD_SEPARATORS "$");
}

const char *preload_next(const char **cursor, const char *separators, size_t *length)
{
    const char *start = *cursor + strspn(*cursor, separators);
    *length = strcspn(start, separators);
    *cursor = start + *length;
    return *length ? start : NULL;
}

static bool same_file(const char *a, const char *b)
{
    struct stat a_stat;
    struct stat b_stat;
    return stat(a, &a_stat) == 0 && stat(b, &b_stat) == 0 && a_stat.st_dev == b_stat.st_dev &&
           a_stat.st_ino == b_stat.st_ino;
}

static bool is_file(const char *entry, size_t length, const char *path)
{
    char file[PATH_MAX];
    return preload_find(entry, length, file, sizeof(file)) && same_file(file, path);
}

static bool holds(const char *list, const char *path)
{
    size_t length;
    for (const char *entry; (entry = preload_next(&list, PRELOAD_SEPARATORS, &length));) {
        if (is_file(entry, length, path))
            return true;
    }
    return false;
}

char *preload_remove(const char *list, const char *path)
{
    char *rest = calloc(1, strlen(list) + 1);
    size_t length;
    for (const char *entry; rest && (entry = preload_next(&list, PRELOAD_SEPARATORS, &length));) {
        if (is_file(entry, length, path))
            continue;
        if (*rest)
            strcat(rest, ":");
        strncat(rest, entry, length);
    }
    return rest;
}

char *preload_append(const char *list, const char *path)
{
    char *joined;
    if (!list || !list[strspn(list, PRELOAD_SEPARATORS)])
        return strdup(path);
    if (holds(list, path))
        return strdup(list);
    return asprintf(&joined, "%s:%s", list, path) < 0 ? NULL : joined;
}

static bool find_in(const char *folder, size_t folder_length, const char *name, size_t name_length,
                    char *path, size_t size)
{
    int length = snprintf(path, size, "%.*s/%.*s", (int)folder_length, folder, (int)name_length, name);
    return length > 0 && (size_t)length < size && access(path, R_OK) == 0;
}

bool preload_find(const char *entry, size_t length, char *path, size_t size)
{
    static const char *const system_folders[] = {"/lib",
                                                 "/usr/lib",
                                                 "/lib64",
                                                 "/usr/lib64",
                                                 "/usr/local/lib",
                                                 "/lib/" GPUCAP_TUPLE,
                                                 "/usr/lib/" GPUCAP_TUPLE};
    if (memchr(entry, '/', length)) {
        int written = snprintf(path, size, "%.*s", (int)length, entry);
        return written > 0 && (size_t)written < size && access(path, R_OK) == 0;
    }
    const char *folders = getenv("LD_LIBRARY_PATH");
    while (folders && *folders) {
        size_t folder_length = strcspn(folders, ":;");
        if (folder_length && find_in(folders, folder_length, entry, length, path, size))
            return true;
        folders += folder_length + (folders[folder_length] != 0);
    }
    for (size_t i = 0; i < sizeof(system_folders) / sizeof(system_folders[0]); i++) {
        if (find_in(system_folders[i], strlen(system_folders[i]), entry, length, path, size))
            return true;
    }
    return false;
}
