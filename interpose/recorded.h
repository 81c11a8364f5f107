/* recorded: what the recorder (see/recorder.h) has to be told by the rest of the library: when to begin,
 * which cards and contexts there are, what is live already.
 *
 * Owns two locks: driver_lock, held while the recorder asks what idles in the driver's pools, and one that is
 * held while a request of the command is served.
 */
#ifndef GPUCAP_RECORDED_H
#define GPUCAP_RECORDED_H

#include "interpose/driver/driver.h"
#include "interpose/settings/options.h"

/* Begins a recording if the options ask for one. Call once CUDA has started. */
void recorded_begin(const struct options *options);

/* Calls `visit` for each owner, kind and tag with memory on a card, and for what contexts and pools hold.
 * Returns false if nothing is recorded. Fills in no peak where it is not known. */
struct recorded_owner {
    int device;
    const char *owner, *kind, *tag; /* tag "": none */
    uint64_t bytes, blocks, peak;
};
bool recorded_owners(void (*visit)(const struct recorded_owner *row, void *argument), void *argument);

/* Answers a request of the command (inquiry.h), if there is one: start, stop and owners. */
void recorded_serve(const char *folder);

/* Call after a context was made, and after one has ended. */
void recorded_context_made(CUdevice ordinal, CUcontext context);
void recorded_context_ended(CUcontext context);

#endif
