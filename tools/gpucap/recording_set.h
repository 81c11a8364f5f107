/* recording_set: the recordings given to a command, with a timeline for each device of each, on one time
 * axis. Owns no lock. */
#ifndef GPUCAP_RECORDING_SET_H
#define GPUCAP_RECORDING_SET_H

#include "tools/gpucap/timeline.h"
#include "tools/gpucap/words.h"

#define RECORDING_SET_DEVICES 16 /* of one recording; larger numbers are invalid */

struct recording_track {
    int file; /* index into recordings */
    struct timeline timeline;
    uint64_t offset_ns; /* time 0 of its recording on the common axis, which begins at the earliest one */
    bool namesake; /* another card of the set has the same number: processes may number them differently */
};

struct recording_set {
    struct recording *recordings;
    char **paths; /* of the recordings; the texts are the caller's */
    int count;
    struct recording_track *tracks; /* in the order of the files, then by device */
    int track_count;
    uint64_t end_ns; /* on the common axis */
    bool left_out;   /* a file could not be read */
};

/* Opens the files and skips those that it cannot read, with a message on stderr. Returns 0, or CLI_FAILED
 * after a message if none is left; then the caller need not close the set. */
int recording_set_open(struct recording_set *set, const char *command, char **paths, int count);

/* Ends a command: frees the set. Returns the command's exit status: `status`, or CLI_UNDONE if that is 0 and
 * a file was left out. */
int recording_set_close(struct recording_set *set, int status);

/* Returns the program without folder and arguments, or the file's name if the recording does not have it;
 * never empty. */
const char *recording_set_title(const struct recording_set *set, int file);

/* Writes the card: "GPU 0 NVIDIA H200", with the end of its UUID if another one has that number. Returns
 * text. */
#define RECORDING_CARD 96
const char *recording_set_card(const struct recording_track *track, char text[RECORDING_CARD]);

/* Writes the program of a track with its process and card, in `width` letters at most. Returns text. */
const char *recording_set_heading(const struct recording_set *set, const struct recording_track *track,
                                  int width, char text[WORDS_CUT]);

/* The same without the card's name. */
const char *recording_set_gpu(const struct recording_track *track, char text[RECORDING_CARD]);

/* Returns true if both are of one card: by its UUID, as two processes may number cards differently
 * (CUDA_VISIBLE_DEVICES), else by its number. */
bool recording_set_same_card(const struct recording_track *a, const struct recording_track *b);

#endif
