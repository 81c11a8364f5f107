/* recording_frames: resolves the return addresses of a recording's call stacks: "take_block (train)", or
 * "libcudnn_ops.so.9+0x1234" if the file does not exist here, was changed since, or has no function names.
 * Owns no lock. */
#ifndef GPUCAP_RECORDING_FRAMES_H
#define GPUCAP_RECORDING_FRAMES_H

#include "tools/gpucap/functions.h"
#include "tools/gpucap/recording_read.h"

#define FRAMES_TEXT 192

struct frames_module {
    uint64_t start, end, offset;
    const char *path; /* of the recording */
    int file;         /* index into files */
};

struct frames_file {
    const char *path;
    bool looked;
    struct functions functions; /* empty: there are no names */
};

struct frames {
    struct frames_module *modules; /* by start */
    size_t count;
    struct frames_file *files;
    int file_count;
    uint64_t recorded_ns; /* time of day */
};

/* Returns false without memory. The recording must outlive the frames. */
bool frames_open(struct frames *frames, const struct recording *recording);
void frames_close(struct frames *frames);

/* Returns text. Reads the file of a module on its first use. */
const char *frames_text(struct frames *frames, uint64_t address, char text[FRAMES_TEXT]);

/* Returns the path of the module that contains the address; "" if none does. */
const char *frames_path(const struct frames *frames, uint64_t address);

/* Returns true for frames of the CUDA runtime, the driver and gpucap itself: their caller made the request.
 */
bool frames_is_runtime(const char *text);

#endif
