/* elfsym: finds a symbol in a loaded library, from the library's own tables.
 *
 * We define dlsym ourselves, so dlsym cannot find the real one. elfsym_find takes no lock, allocates nothing
 * and calls no other library, because it runs before any constructor when another preloaded library looks up
 * names early. The others take the dynamic loader's lock.
 */
#ifndef GPUCAP_ELFSYM_H
#define GPUCAP_ELFSYM_H

#include <link.h>
#include <stdbool.h>

/* For functions that may run before a sanitizer's runtime is set up. */
#define EARLY __attribute__((no_sanitize("address", "thread", "undefined")))

/* Returns the default version of `symbol` in the first loaded library whose file name begins with `library`
 * ("libc.so"); any version if none is the default; NULL if there is none. */
void *elfsym_find(const char *library, const char *symbol);

/* Returns true if a loaded library whose file name begins with `library` defines `symbol`. Leaves dlerror as
 * it was. */
bool elfsym_defines(const char *library, const char *symbol);

/* Finds the next definition of `symbol` in load order after the object that holds the address `start`,
 * leaving out the object that holds `skip`. */
struct elfsym_next {
    void *address;       /* NULL: no definition */
    bool known;          /* `start` lies in a loaded object */
    bool start_is_later; /* that object comes after the one of `skip` */
    bool is_earlier;     /* the definition comes before the object of `skip` */
};
struct elfsym_next elfsym_after(const void *start, const void *skip, const char *symbol);

/* ---- one object, inside a callback of dl_iterate_phdr ---- */

/* Returns true if the address lies in the object. */
bool elfsym_holds(const struct dl_phdr_info *object, const void *address);
/* Returns what the object itself defines under that name, or NULL. */
void *elfsym_defined_in(const struct dl_phdr_info *object, const char *symbol);
/* Returns the object's dynamic section, or NULL. */
const ElfW(Dyn) * elfsym_dynamic(const struct dl_phdr_info *object);
/* Return an entry of a dynamic section as it is, or as an address: glibc has relocated most entries, but
 * leaves offsets on a few architectures. 0 or NULL: there is none. */
ElfW(Addr) elfsym_value(const ElfW(Dyn) * dynamic, ElfW(Sxword) tag);
const void *elfsym_table(ElfW(Addr) base, const ElfW(Dyn) * dynamic, ElfW(Sxword) tag);

#endif
