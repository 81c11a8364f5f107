/* real: the C library's own dlsym and dlvsym, which the hooks of those names stand in front of.
 *
 * Works before constructors have run, and then neither allocates nor locks. Owns no lock.
 */
#ifndef GPUCAP_REAL_H
#define GPUCAP_REAL_H

/* NULL until real_find has been called. The trampoline jumps through them. */
extern void *(*real_dlsym)(void *handle, const char *name);
extern void *(*real_dlvsym)(void *handle, const char *name, const char *version);

/* Finds both, the first time. */
void real_find(void);

/* Calls the real dlsym on a real handle. */
void *real_symbol(void *handle, const char *name);

/* Returns a function of libc, or of libdl where that is a library of its own. */
void *real_libc(const char *name);

#endif
