/* preload: lists of libraries as the dynamic loader parses them from LD_PRELOAD. Pure, except that
 * preload_find looks at files. Owns no lock. */
#ifndef GPUCAP_PRELOAD_H
#define GPUCAP_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

#define PRELOAD_SEPARATORS " :" /* ld.so(8); a file additionally separates by tabs and newlines */
#define PRELOAD_SYSTEM     "/etc/ld.so.preload"

/* Returns false if LD_PRELOAD cannot hold this path: it contains a separator, or a '$', which the loader may
 * expand. There is no way to quote. */
bool preload_can_hold(const char *path);

/* Steps through a list. Returns the start of the next entry and its length, or NULL at the end. *cursor is
 * the list at first. */
const char *preload_next(const char **cursor, const char *separators, size_t *length);

/* Returns a new string, which the caller frees: the list with `path` at its end, or unchanged if it has
 * `path` already. NULL without memory. `list` may be NULL. */
char *preload_append(const char *list, const char *path);

/* Returns the list without the entries that name the file `path`; the rest as above. */
char *preload_remove(const char *list, const char *path);

/* Finds the file that the loader would load for an entry (a path, or a name searched in LD_LIBRARY_PATH and
 * the system's folders). Returns false if there is none. */
bool preload_find(const char *entry, size_t length, char *path, size_t size);

#endif
