/* real: the C library's own dlsym and dlvsym, behind our hooks of the same names.
 *
 * Works before constructors have run, and then neither allocates nor locks. Owns no lock.
 */
#ifndef GPUCAP_REAL_H
#define GPUCAP_REAL_H

/* NULL until real_find has been called. The trampoline jumps through them. */
extern void *(*real_dlsym)(void *handle, const char *name);
extern void *(*real_dlvsym)(void *handle, const char *name, const char *version);

/* Finds both on the first call. */
void real_find(void);

/* Calls the real dlsym on a real handle. */
void *real_symbol(void *handle, const char *name);

/* Returns a function of libc, or of libdl before glibc 2.34. */
void *real_libc(const char *name);

#endif
