/* fill: sets the bytes of pooled blocks for zero=on and fill=on, on a stream of our own: it waits for no
 * other work and disturbs no capture. Owns no lock.
 */
#ifndef GPUCAP_FILL_H
#define GPUCAP_FILL_H

#include "interpose/pool/pool.h"

#define FILL_FRESH 0xCB /* in a block that the program has just got */
#define FILL_FREED 0xDF /* in one that it has freed */

/* Sets all bytes of a block and waits until that is done. The pool's context is current. Returns the driver's
 * answer. */
CUresult fill_block(struct pool *pool, uint64_t address, uint64_t bytes, unsigned char value);

/* Fills a block that is about to be freed, and whose work is done, with FILL_FREED, unless other processes
 * hold it. Any context may be current. Returns false if the fill may still be under way. */
bool fill_freed(struct pool *pool, uint64_t address);

/* The same in the order of a stream of the pool's context. Does not wait. */
void fill_freed_behind(struct pool *pool, uint64_t address, CUstream stream);

#endif
