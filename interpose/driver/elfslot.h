/* elfslot: the slots through which a loaded object calls functions of other objects, and how to change one.
 *
 * For a callback of dl_iterate_phdr: there the object cannot be unloaded, and no other thread changes slots.
 * Allocates nothing and calls nothing of the dynamic loader, whose locks the caller may hold. Owns no lock.
 */
#ifndef GPUCAP_ELFSLOT_H
#define GPUCAP_ELFSLOT_H

#include <link.h>
#include <stdbool.h>

struct elfslot {
    const char *name; /* of a function that the object itself does not define */
    void **at;
    void *value;
    bool lazy; /* not resolved yet: the first call will do that */
};

/* Calls visit(slot, context) for each slot of the object, including function pointers in its data. */
void elfslot_each(const struct dl_phdr_info *object, void (*visit)(const struct elfslot *slot, void *context),
                  void *context);

/* Writes a slot, and restores the protection of a read-only page. Returns 0, -EBUSY if another thread is
 * still loading the object, or another negative errno if the page cannot be made writable. Set *complete to
 * false before the first slot of an object; it saves the slow check whether the object is loaded. */
int elfslot_write(const struct dl_phdr_info *object, const struct elfslot *slot, void *value, bool *complete);

#endif
