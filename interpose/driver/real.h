/* real: the C library's own functions behind our hooks of the same names.
 *
 * Works before constructors have run, and then neither allocates nor locks. Owns no lock.
 */
#ifndef GPUCAP_REAL_H
#define GPUCAP_REAL_H

#include <dlfcn.h>

/* NULL until real_find has been called. The trampoline jumps through them. */
extern void *(*real_dlsym)(void *handle, const char *name);
extern void *(*real_dlvsym)(void *handle, const char *name, const char *version);
extern void *(*real_dlopen)(const char *file, int mode);
extern void *(*real_dlmopen)(Lmid_t name_space, const char *file, int mode);

/* Finds them on the first call. */
void real_find(void);

/* Calls the real dlsym on a real handle. */
void *real_symbol(void *handle, const char *name);

#endif
