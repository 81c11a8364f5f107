/* elfslot: the slots through which a loaded object reaches functions of other objects, and how to change one.
 *
 * Meant for a callback of dl_iterate_phdr: the object cannot be unloaded meanwhile, and two threads cannot
 * change slots at the same time. Allocates nothing and calls nothing of the dynamic loader, whose locks the
 * caller may hold. Owns no lock.
 */
#ifndef GPUCAP_ELFSLOT_H
#define GPUCAP_ELFSLOT_H

#include <link.h>
#include <stdbool.h>

struct elfslot {
    const char *name; /* of the function, which the object itself does not define */
    void **at;
    void *value;
    bool lazy; /* not looked up yet: the first call will do that */
};

/* Calls visit(slot, context) for each slot of the object, function pointers in its data included. */
void elfslot_each(const struct dl_phdr_info *object, void (*visit)(const struct elfslot *slot, void *context),
                  void *context);

/* Writes a slot. Returns 0; -EBUSY if another thread is still loading the object; another negative errno if
 * the memory cannot be made writable. A page that was read-only is so again. `complete` is false before the
 * first slot of an object, and remembers that it is loaded: to find that out takes a while. */
int elfslot_write(const struct dl_phdr_info *object, const struct elfslot *slot, void *value, bool *complete);

#endif
