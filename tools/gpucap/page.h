/* page: recordings as one HTML file that needs nothing else: what `gpucap page` writes. The parts of it that
 * do not depend on the recording are in the folder page/ and are built into the command. Owns no lock.
 */
#ifndef GPUCAP_PAGE_H
#define GPUCAP_PAGE_H

#include "tools/gpucap/recording_set.h"

#include <stdio.h>

/* Writes the whole page. False without memory; whether the file could be written, ferror() knows. */
bool page_write(FILE *out, const struct recording_set *set);

/* One track as JSON, and its steps as bytes in base64: page_track.c. What they hold is said there, and read
 * by page/page_data.js. */
bool page_track_write(FILE *out, const struct recording_set *set, const struct recording_track *track);

#endif
