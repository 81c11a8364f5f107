/* preload: lists of libraries as the dynamic loader reads them from LD_PRELOAD. Pure but for preload_find,
 * which looks at files. Owns no lock.
 */
#ifndef GPUCAP_PRELOAD_H
#define GPUCAP_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

#define PRELOAD_SEPARATORS " :" /* ld.so(8); a file additionally separates by tabs and newlines */
#define PRELOAD_SYSTEM     "/etc/ld.so.preload"

/* False when the loader could not read this path from LD_PRELOAD: it holds a separator, or a '$', which the
 * loader may expand. There is no way to quote. */
bool preload_can_hold(const char *path);

/* Steps through a list: the next entry's start with its length, or NULL at the end. *cursor starts as list.
 */
const char *preload_next(const char **cursor, const char *separators, size_t *length);

/* A new string, owned by the caller: the list with path at its end, or unchanged when it is in it already.
 * NULL when there is no memory. list may be NULL. */
char *preload_append(const char *list, const char *path);

/* The same without the entries that are the file `path`. */
char *preload_remove(const char *list, const char *path);

/* The file that the loader would take for an entry (a path, or a name searched in LD_LIBRARY_PATH and the
 * system's folders). False when none is found. */
bool preload_find(const char *entry, size_t length, char *path, size_t size);

#endif
