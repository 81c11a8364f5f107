/* Reads folders. Names are sorted byte by byte, so that every machine numbers files and classes alike. */
#include "harness/data/listing.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char *const endings[] = {".jpg", ".jpeg", ".png"};

static bool is_image_name(const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t ending = strlen(endings[i]);

        if (length > ending && !strcasecmp(name + length - ending, endings[i]))
            return true;
    }
    return false;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

bool listing_is_folder(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat info;

    return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) && !stat(path, &info) &&
           S_ISDIR(info.st_mode);
}

/* Doubles *block until it has room for need elements. */
static enum status grow(void **block, size_t *capacity, size_t need, size_t element)
{
    size_t size = *capacity ? *capacity : 64;
    void *larger;

    if (need <= *capacity)
        return STATUS_OK;
    while (size < need)
        size *= 2;
    larger = realloc(*block, size * element);
    if (!larger)
        return status_fail(STATUS_NO_MEMORY, "no host memory for a list of %zu files", need);
    *block = larger;
    *capacity = size;
    return STATUS_OK;
}

/* prefix is "" or "class/". */
static enum status add_file(struct listing *listing, const char *prefix, const char *name, int32_t label)
{
    size_t bytes = strlen(prefix) + strlen(name) + 1;
    enum status status;

    if (listing->count >= LISTING_MAX_FILES)
        return status_fail(STATUS_FAILED, "more than %d image files are not supported", LISTING_MAX_FILES);
    status = grow((void **)&listing->file, &listing->capacity, listing->count + 1, sizeof(*listing->file));
    if (!status)
        status = grow((void **)&listing->names, &listing->name_capacity, listing->name_bytes + bytes, 1);
    if (status)
        return status;
    snprintf(listing->names + listing->name_bytes, bytes, "%s%s", prefix, name);
    listing->file[listing->count++] = (struct listing_file){listing->name_bytes, label};
    listing->name_bytes += bytes;
    return STATUS_OK;
}

static void free_entries(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

static enum status scan(const char *path, struct dirent ***entries, int *count)
{
    *count = scandir(path, entries, not_hidden, by_name);
    if (*count < 0)
        return status_fail(STATUS_FAILED, "%s: %s", path, strerror(errno));
    return STATUS_OK;
}

static enum status add_folder(struct listing *listing, const char *dir, const char *class_name, int32_t label)
{
    char path[PATH_MAX], prefix[NAME_MAX + 2] = "";
    struct dirent **entries;
    enum status status;
    int count;

    if (snprintf(path, sizeof(path), "%s/%s", dir, class_name) >= (int)sizeof(path))
        return status_fail(STATUS_FAILED, "--data: a path below %s is too long", dir);
    if (class_name[0])
        snprintf(prefix, sizeof(prefix), "%s/", class_name);
    status = scan(path, &entries, &count);
    if (status)
        return status;
    for (int i = 0; i < count && !status; i++) {
        if (is_image_name(entries[i]->d_name))
            status = add_file(listing, prefix, entries[i]->d_name, label);
    }
    free_entries(entries, count);
    return status;
}

static int find_class(const struct listing *listing, const char *name)
{
    for (int i = 0; i < listing->classes; i++) {
        if (!strcmp(listing->class_name[i], name))
            return i;
    }
    return -1;
}

/* Enters a class that has images. */
static enum status add_class(struct listing *listing, const char *dir, const char *name,
                             const struct listing *known)
{
    if (known) {
        if (find_class(known, name) < 0)
            return status_fail(STATUS_FAILED, "%s/%s: no class of this name among the training images", dir,
                               name);
        return STATUS_OK;
    }
    if (listing->classes >= LISTING_MAX_CLASSES)
        return status_fail(STATUS_FAILED, "%s: more than %d classes are not supported", dir,
                           LISTING_MAX_CLASSES);
    listing->class_name[listing->classes] = strdup(name);
    if (!listing->class_name[listing->classes])
        return status_fail(STATUS_NO_MEMORY, "no host memory for the name of a class");
    listing->classes++;
    return STATUS_OK;
}

static enum status add_classes(struct listing *listing, const char *dir, struct dirent **entries, int count,
                               const struct listing *known)
{
    enum status status = STATUS_OK;

    listing->class_name = calloc((size_t)count + 1, sizeof(*listing->class_name));
    if (!listing->class_name)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the names of classes");
    for (int i = 0; i < count && !status; i++) {
        const char *name = entries[i]->d_name;
        size_t before = listing->count;

        if (!listing_is_folder(dir, name))
            continue;
        status = add_folder(listing, dir, name, known ? find_class(known, name) : listing->classes);
        if (!status && listing->count > before)
            status = add_class(listing, dir, name, known);
    }
    return status;
}

enum status listing_read(struct listing *listing, const char *dir, const struct listing *known)
{
    struct dirent **entries;
    enum status status;
    int count;

    memset(listing, 0, sizeof(*listing));
    status = scan(dir, &entries, &count);
    if (status)
        return status;
    status = add_folder(listing, dir, "", 0);
    if (!status && known && listing->count > 0)
        status = status_fail(STATUS_FAILED,
                             "%s/%s: its class is not known: images for validation must lie in one folder "
                             "per class, as those for training do",
                             dir, listing_name(listing, 0));
    if (!status && listing->count == 0)
        status = add_classes(listing, dir, entries, count, known);
    if (!status && listing->count == 0)
        status = status_fail(
            STATUS_FAILED,
            "%s: no image files: expected .jpg, .jpeg or .png in it or in one folder per class", dir);
    free_entries(entries, count);
    if (status)
        listing_free(listing);
    return status;
}

void listing_free(struct listing *listing)
{
    for (int i = 0; i < listing->classes; i++)
        free(listing->class_name[i]);
    free(listing->class_name);
    free(listing->file);
    free(listing->names);
    memset(listing, 0, sizeof(*listing));
}
