/* program: checks whether the dynamic loader will preload our library into a program. If the loader ignored
 * it silently, the program would run without a cap and the user would not know.
 *
 * Reads files only. Owns no lock. */
#ifndef GPUCAP_PROGRAM_H
#define GPUCAP_PROGRAM_H

#include <stddef.h>

enum program_kind {
    PROGRAM_FINE,       /* dynamic, or of an unknown kind */
    PROGRAM_STATIC,     /* static: only the programs that it starts can be capped */
    PROGRAM_PRIVILEGED, /* set-user-ID, set-group-ID or file capabilities: the loader ignores LD_PRELOAD */
    PROGRAM_FOREIGN,    /* another architecture or word size: the loader skips our library with a warning */
};

/* Finds the file that execvp would load for `name`; for a script its interpreter, because that file's rights
 * and kind count. Returns 0, or a negative errno: then only exec itself can tell. */
int program_find(const char *name, char *path, size_t size);

enum program_kind program_look(const char *path);

#endif
