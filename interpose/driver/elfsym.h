/* elfsym: finds a symbol in a library that is already loaded, from the library's own tables.
 *
 * We define dlsym ourselves, so the real one cannot be asked for by dlsym. elfsym_find uses no lock, no
 * allocation and no other library function, because it runs before any constructor when another preloaded
 * library looks up names early. The others take the dynamic loader's own lock.
 */
#ifndef GPUCAP_ELFSYM_H
#define GPUCAP_ELFSYM_H

#include <link.h>
#include <stdbool.h>

/* For functions that may run before a sanitizer's runtime is set up. */
#define EARLY __attribute__((no_sanitize("address", "thread", "undefined")))

/* The default version of `symbol` in the first loaded library whose file name begins with `library`
 * ("libc.so"); any version if it has no default one; NULL if not found. */
void *elfsym_find(const char *library, const char *symbol);

/* Returns true if a loaded library whose file name begins with `library` defines `symbol`. Leaves dlerror
 * alone.
 */
bool elfsym_defines(const char *library, const char *symbol);

/* Who defines `symbol` next after the object that holds the address `start`, in load order, leaving out the
 * object that holds `skip`. */
struct elfsym_next {
    void *address;       /* NULL: nobody */
    bool known;          /* `start` lies in a loaded object at all */
    bool start_is_later; /* that object stands behind the one of `skip` */
    bool is_earlier;     /* the definition stands before the one of `skip` */
};
struct elfsym_next elfsym_after(const void *start, const void *skip, const char *symbol);

/* ---- one object, inside a callback of dl_iterate_phdr ---- */

/* Returns true if the address lies in the object. */
bool elfsym_holds(const struct dl_phdr_info *object, const void *address);
/* What the object itself defines under that name, or NULL. */
void *elfsym_defined_in(const struct dl_phdr_info *object, const char *symbol);
/* An address in the object's dynamic section: glibc has relocated most of them already; a few architectures
 * leave offsets. */
const void *elfsym_relocated(ElfW(Addr) base, ElfW(Addr) value);

#endif
