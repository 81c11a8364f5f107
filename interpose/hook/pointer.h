/* pointer: whose memory is at an address: a pool's, one opened from another process, or the driver's own
 * affair. Owns no lock. */
#ifndef GPUCAP_POINTER_H
#define GPUCAP_POINTER_H

#include "interpose/pool/pool.h"

enum pointer_place {
    POINTER_FOREIGN, /* the driver knows all there is to know */
    POINTER_NOTHING, /* in our address space, but in no block: natively such an address is not known */
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

/* An address that the driver is asked about in place of one that it should not know: no program can have
 * memory there (vm.mmap_min_addr). */
#define POINTER_NOWHERE ((CUdeviceptr)0x1000)

#endif
