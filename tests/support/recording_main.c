/* make_recording: a recording of a training that never ran, for tests and to try the commands on.
 *
 *     make_recording FILE [EVENTS [PROCESS [plain|zstd]]]
 */
#include "recording_make.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct recording_training training = {.events = 100000, .codec = RECORDING_PLAIN};

    if (argc < 2 || argc > 5) {
        fputs("usage: make_recording FILE [EVENTS [PROCESS [plain|zstd]]]\n", stderr);
        return 2;
    }
    if (argc > 2)
        training.events = strtoull(argv[2], NULL, 10);
    if (argc > 3)
        training.process = (unsigned)strtoul(argv[3], NULL, 10);
    if (argc > 4 && !strcmp(argv[4], "zstd"))
        training.codec = RECORDING_ZSTD;
    recording_make_training(argv[1], &training);
    return 0;
}
