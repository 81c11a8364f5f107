/* owner: which library asked for memory: the one that called the driver, or that called the CUDA runtime.
 *
 * A hook of a call that takes memory begins with OWNER_CALL(). While a recording runs, it looks up the return
 * address. If that lies in a library that only passes calls on (the shared CUDA runtime, libffi), the caller
 * of that library is looked for on the stack. Where it was found is remembered by call site, so that usually
 * two loads from a table are enough. A program with a static runtime is its own caller.
 *
 * Never reads outside of the thread's stack, and never calls the dynamic loader. Owns one lock, held while a
 * call site is looked at for the first time; the caller may hold no other.
 */
#ifndef GPUCAP_OWNER_H
#define GPUCAP_OWNER_H

#include "interpose/see/events.h"
#include "interpose/see/owner_maps.h"

#define OWNER_MAX  256 /* later ones count as the program */
#define OWNER_NAME 64  /* bytes of a name, terminated */

/* Names the caller of this function as the owner of what the thread allocates, while a recording runs. */
#define OWNER_CALL()                                                                                         \
    do {                                                                                                     \
        if (events_are_on())                                                                                 \
            owner_enter(__builtin_return_address(0));                                                        \
    } while (0)
void owner_enter(void *return_address);

/* The owner that the calling thread's last OWNER_CALL() found; 0: the program. And its call stack. */
extern _Thread_local uint16_t owner_current;
extern _Thread_local uint32_t owner_stack;

/* Call before a library is loaded, with the number of libraries that were ever unloaded: it may get the
 * addresses of one of them. */
void owner_forget_unloaded(unsigned long long unloaded);

/* events_note_bytes for an event of a request: with its owner. */
static inline void owner_note_bytes(enum recording_type type, int device, uint64_t bytes, uint64_t other)
{
    if (events_are_on())
        events_note(&(struct recording_event){.head.type = (uint16_t)type,
                                              .device = (uint16_t)device,
                                              .bytes = bytes,
                                              .other = other,
                                              .owner = owner_current});
}

/* Return name and file of an owner; "" if there is none. They live as long as the process. */
const char *owner_name(uint16_t owner);
const char *owner_path(uint16_t owner);

/* Returns the name for a file's path: "cuDNN" for libcudnn_ops.so.9; else the file's own name. */
const char *owner_name_of(const char *path);
/* Returns true for a library that only passes calls on. */
bool owner_passes_on(const char *path);
/* Returns true for a language's own library: it never asks for device memory, so return addresses in it are
 * remains of earlier calls. */
bool owner_never_calls(const char *path);

/* Turns call stacks on or off. */
void owner_keep_stacks(bool on);

/* Returns true if the number is a return address in the code of a file. Remembers the answer if so. */
bool owner_is_return(uint64_t address);

/* Copies number `index` of the mappings of code, for call stacks. Returns false behind the last. */
bool owner_module(size_t index, struct owner_map *module);
/* Changes when there may be new ones; 0: no recording has looked for an owner. */
extern atomic_uint owner_reads;

/* In the child of a fork. */
void owner_after_fork(void);

#endif
