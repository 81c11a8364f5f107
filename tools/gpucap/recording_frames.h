/* recording_frames: return addresses of a recording's call stacks in words: "take_block (train)", or
 * "libcudnn_ops.so.9+0x1234" where the file is not here any more, was changed since, or has no names of
 * functions. Owns no lock.
 */
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
    struct functions functions; /* nothing in it: there are no names */
};

struct frames {
    struct frames_module *modules; /* by start */
    size_t count;
    struct frames_file *files;
    int file_count;
    uint64_t recorded_ns; /* time of day */
};

/* False without memory. The recording must outlive the frames. */
bool frames_open(struct frames *frames, const struct recording *recording);
void frames_close(struct frames *frames);

/* Returns text. Reads the file of a module when it is first asked for. */
const char *frames_text(struct frames *frames, uint64_t address, char text[FRAMES_TEXT]);

/* The path of the module that has the address; "" if none has. */
const char *frames_path(const struct frames *frames, uint64_t address);

/* True for frames of the CUDA runtime, the driver and gpucap itself: who asked stands behind them. */
bool frames_is_runtime(const char *text);

#endif
