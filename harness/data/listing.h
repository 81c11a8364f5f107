/* The image files of a folder and their classes, in an order that does not depend on the file system.
 * Layouts: DIR/train/CLASS/FILE with DIR/val/CLASS/FILE (or validation, test); DIR/CLASS/FILE; DIR/FILE (no
 * classes). Does not look into deeper folders. */
#ifndef HARNESS_LISTING_H
#define HARNESS_LISTING_H

#include "harness/data/dataset.h"

enum { LISTING_MAX_FILES = 1 << 24, LISTING_MAX_CLASSES = 1 << 16 };

struct listing_file {
    size_t name; /* offset in `names` of the path relative to the folder */
    int32_t label;
};

struct listing {
    struct listing_file *file;
    size_t count, capacity;
    char *names;
    size_t name_bytes, name_capacity;
    char **class_name; /* sorted; label i is class_name[i] */
    int classes;
};

/* Lists the image files directly in `dir` (then `classes` is 0), or else those of its subfolders, one class
 * each; subfolders without images are left out. `known` is NULL, or a listing whose classes define the
 * labels; a class that it lacks is an error. */
enum status listing_read(struct listing *listing, const char *dir, const struct listing *known);
void listing_free(struct listing *listing);

/* Returns true if `name` in `dir` is a folder, or a link to one. */
bool listing_is_folder(const char *dir, const char *name);

static inline const char *listing_name(const struct listing *listing, size_t file)
{
    return listing->names + listing->file[file].name;
}

#endif
