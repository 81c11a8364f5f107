/* elfsym: finds a symbol in a library that is already loaded, from the library's own tables.
 *
 * We define dlsym ourselves, so the real one cannot be asked for by dlsym. Uses no lock, no allocation and no
 * other library function, because it runs before any constructor when another preloaded library looks up
 * names early.
 */
#ifndef GPUCAP_ELFSYM_H
#define GPUCAP_ELFSYM_H

/* The default version of `symbol` in the first loaded library whose file name begins with `library`
 * ("libc.so"); any version if it has no default one; NULL if not found. */
void *elfsym_find(const char *library, const char *symbol);

#endif
