/* recording_frames: return addresses of a recording's call stacks in words: "libcudnn_ops.so.9+0x1234". Knows
 * the modules that the recording names and nothing else. Owns no lock.
 */
#ifndef GPUCAP_RECORDING_FRAMES_H
#define GPUCAP_RECORDING_FRAMES_H

#include "recording_read.h"

#define FRAMES_TEXT 192

struct frames_module {
    uint64_t start, end, offset;
    const char *path; /* of the recording */
};

struct frames {
    struct frames_module *modules; /* by start */
    size_t count;
};

/* False without memory. The recording must outlive the frames. */
bool frames_open(struct frames *frames, const struct recording *recording);
void frames_close(struct frames *frames);

/* Returns text. */
const char *frames_text(const struct frames *frames, uint64_t address, char text[FRAMES_TEXT]);

#endif
