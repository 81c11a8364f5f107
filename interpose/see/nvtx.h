/* nvtx: the NVTX ranges that a thread has pushed, innermost last. The innermost one is the tag of what the
 * thread allocates, unless gpucap_tag has set one (tags.h). Each thread has its own; owns no lock. */
#ifndef GPUCAP_NVTX_H
#define GPUCAP_NVTX_H

#include <stdint.h>

#define NVTX_DEPTH 64 /* deeper ranges are only counted, and become no tag */

/* Pushes a range of a domain (NULL: the default one) with a tag of tags.h. Returns its level in the domain,
 * from 0 on, as NVTX wants it. */
int nvtx_push(const void *domain, uint16_t tag);
/* Pops the innermost range of a domain. Returns its level, or -1 if there is none. */
int nvtx_pop(const void *domain);

#endif
