/* submit: the driver call of a hook that submits work to a stream. Owns no lock. */
#ifndef GPUCAP_SUBMIT_H
#define GPUCAP_SUBMIT_H

#include "interpose/pool/streams.h"

/* Submits work by `call`, a driver call, to the stream with key `key`. Returns the driver's answer. */
#define STREAMS_SUBMIT(key, call)                                                                            \
    ({                                                                                                       \
        const bool foreign_ = streams_submit_begin(key);                                                     \
        CUresult submitted_ = (call);                                                                        \
        if (__builtin_expect(foreign_, 0))                                                                   \
            streams_submit_end();                                                                            \
        submitted_;                                                                                          \
    })

#endif
