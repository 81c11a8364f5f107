/* route_fill: sets the bytes of pooled blocks for zero=on and fill=on. Uses a stream of its own, so it waits
 * for no other work and disturbs no capture. Owns no lock. */
#ifndef GPUCAP_ROUTE_FILL_H
#define GPUCAP_ROUTE_FILL_H

#include "interpose/pool/pool.h"

#define FILL_FRESH 0xCB /* in a block that is handed out */
#define FILL_FREED 0xDF /* in a block that was freed */

/* Sets all bytes of a block and waits for that. Any context may be current. Returns the driver's answer. */
CUresult fill_block(struct pool *pool, uint64_t address, uint64_t bytes, unsigned char value);

/* Fills a block that is about to be freed with FILL_FREED, unless other processes have it open. The block's
 * work must be done. Any context may be current. Returns false if the fill may still be running. */
bool fill_freed(struct pool *pool, uint64_t address);

/* The same in the order of a stream of the pool's context; does not wait. */
void fill_freed_behind(struct pool *pool, uint64_t address, CUstream stream);

#endif
