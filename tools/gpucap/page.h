/* page: writes recordings as one self-contained HTML file, for `gpucap page`. The fixed parts of that file
 * are in the folder page/ and are built into the command. Owns no lock. */
#ifndef GPUCAP_PAGE_H
#define GPUCAP_PAGE_H

#include "tools/gpucap/recording_set.h"

#include <stdio.h>

/* Writes the whole page. Returns false without memory; check ferror() for write errors. */
bool page_write(FILE *out, const struct recording_set *set);

/* Write one track as JSON, and its steps as bytes in base64. page_track.c describes the format,
 * page/page_data.js reads it. */
bool page_track_write(FILE *out, const struct recording_set *set, const struct recording_track *track);

#endif
