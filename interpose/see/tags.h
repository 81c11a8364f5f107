/* tags: names that a program gives to what a thread allocates, and the live bytes under each.
 *
 * At most TAGS_MAX names for the life of the process; later ones count under the first, which has no name. An
 * allocation takes no lock: the figures are atomics. Owns one lock, for new names.
 */
#ifndef GPUCAP_TAGS_H
#define GPUCAP_TAGS_H

#include <stdbool.h>
#include <stdint.h>

#define TAGS_MAX    512
#define TAGS_RANGES 448 /* names that ranges may take, so that some are left for gpucap_tag */
#define TAGS_NAME   32  /* bytes of a name, terminated */

/* Sets the tag of what the thread allocates from now on; NULL or "": none. False: too many names. */
bool tags_set(const char *name);

/* Returns the tag for the name of a range (NVTX); 0 for "" or if there are too many names. */
uint16_t tags_of_range(const char *name);
/* Sets the tag for what the calling thread allocates while tags_set has set none; 0: none. */
void tags_set_range(uint16_t tag);

/* The calling thread's tag, which is stored with each block. */
extern _Thread_local uint16_t tags_current;

/* Returns the name of a tag in use. */
const char *tags_name(uint16_t tag);

void tags_add(uint16_t tag, uint64_t bytes);
void tags_remove(uint16_t tag, uint64_t bytes);

/* Writes the live bytes under a name, and their peak. Returns false if the name was never used. */
bool tags_read(const char *name, uint64_t *live, uint64_t *peak);

#endif
