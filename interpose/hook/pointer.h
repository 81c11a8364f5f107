/* pointer: whose an address is: a pooled block, another process's block, or the driver's. Owns no lock. */
#ifndef GPUCAP_POINTER_H
#define GPUCAP_POINTER_H

#include "interpose/pool/pool.h"

enum pointer_place {
    POINTER_FOREIGN, /* not ours: the driver's answer is right */
    POINTER_NOTHING, /* in our reservations, but in no block: unknown to the driver without us */
    POINTER_BLOCK
};

struct pointer_block {
    uint64_t start, bytes, id;
    CUcontext context;
    CUdevice ordinal;
    bool sync_memops;
    struct pool *pool; /* NULL: opened from another process */
};

enum pointer_place pointer_look(uint64_t address, struct pointer_block *block);

/* Address to ask the driver about in place of one that it should not know: no program has memory there
 * (vm.mmap_min_addr). */
#define POINTER_NOWHERE ((CUdeviceptr)0x1000)

#endif
