/* program: whether the dynamic loader will really preload our library into a program. When it silently would
 * not, the program would run without a cap, and the user would not know.
 *
 * Reads files only. Owns no lock.
 */
#ifndef GPUCAP_PROGRAM_H
#define GPUCAP_PROGRAM_H

#include <stddef.h>

enum program_kind {
    PROGRAM_FINE,       /* dynamic, or nothing that we know */
    PROGRAM_STATIC,     /* no dynamic loader: only the programs that it starts can be capped */
    PROGRAM_PRIVILEGED, /* set-user-ID, set-group-ID or file capabilities: the loader ignores LD_PRELOAD */
    PROGRAM_FOREIGN,    /* another architecture or word size: the loader skips our library with a warning */
};

/* Finds the file that execvp would load for `name`; for a script that is its interpreter, because the loader
 * looks at that file's rights and kind. 0, or a negative errno: then nothing is known before exec itself. */
int program_find(const char *name, char *path, size_t size);

enum program_kind program_look(const char *path);

#endif
