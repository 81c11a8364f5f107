/* hooks_fake: a driver, and the rest of the library (route.h), for tests of the hooks on memory and arrays.
 * It answers as hooks_fake says and writes down what it was asked. */
#ifndef GPUCAP_HOOKS_FAKE_H
#define GPUCAP_HOOKS_FAKE_H

#include "interpose/hook/seen.h"
#include "interpose/route.h"

#define HOOKS_FAKE_KEY  UINT64_C(0x7000) /* address or handle that the driver gives */
#define HOOKS_FAKE_CARD 4

extern struct hooks_fake {
    CUresult refuse; /* the answer of route_enter */
    CUresult result; /* the driver's */
    int full;        /* so many calls find the card full */
    bool pooled;     /* our pool handles the call */
    bool captures;   /* the stream captures */
    bool inactive;
} hooks_fake;

extern struct hooks_got {
    int calls; /* of the driver */
    int enters, leaves, retries, notes;
    enum blocks_kind kind;
    uint64_t bytes;   /* asked for */
    CUdevice ordinal; /* on */
    CUmemoryPool pool;
    CUstream stream;
    CUresult left_with; /* of route_leave */
    uint64_t left_key;
    int begins, ends;   /* of a free */
    int begins_at_once; /* of them, of cuMemFree */
    uint64_t freed;
    CUresult freed_with;
    CUdevice attempt; /* card of the last retry */
    uint64_t attempt_bytes;
    CUresult seen_result;
    enum recording_kind seen_kind;
    CUdevice seen_card;
    uint64_t seen_address, seen_bytes;
    int found, forgotten, lends;
    int changes; /* of the current pool: 1 before the driver's call, 10 after it */
    CUdevice found_card;
} hooks_got;

void hooks_fake_setup(void);

#endif
