/* tags: names that a program gives to what a thread allocates, and how much lives under each.
 *
 * At most TAGS_MAX names for the life of the process; later ones count under the first, which has none. No
 * lock on the way of an allocation: the figures are atomics. Owns one lock, for new names.
 */
#ifndef GPUCAP_TAGS_H
#define GPUCAP_TAGS_H

#include <stdbool.h>
#include <stdint.h>

#define TAGS_MAX  64
#define TAGS_NAME 32 /* bytes of a name, with its end */

/* What the calling thread allocates from now on is `name`; NULL or "": nothing in particular. False if there
 * are too many names. */
bool tags_set(const char *name);

/* The calling thread's tag, to be kept with a block. */
extern _Thread_local uint16_t tags_current;

void tags_add(uint16_t tag, uint64_t bytes);
void tags_remove(uint16_t tag, uint64_t bytes);

/* What lives under a name, and the most that ever did. False if nobody used it. */
bool tags_read(const char *name, uint64_t *live, uint64_t *peak);

#endif
