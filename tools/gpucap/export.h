/* export: writes recordings for other programs: `gpucap export`. Each function writes the whole output and
 * returns false without memory; check ferror() for write errors. Owns no lock. */
#ifndef GPUCAP_EXPORT_H
#define GPUCAP_EXPORT_H

#include "tools/gpucap/recording_set.h"

#include <stdio.h>

/* A trace of TrackEvent packets for ui.perfetto.dev: a counter per owner and tag, for the bytes in use and
 * for the limit; refusals and loans as instants, waits as slices. */
bool export_perfetto(FILE *out, const struct recording_set *set);

/* The same data as torch.cuda.memory._snapshot(), pickled with protocol 4, for pytorch.org/memory_viz. Only
 * one recording. */
bool export_pytorch(FILE *out, const struct recording_set *set);

/* A line per event, with the bytes live and in use after it. */
bool export_csv(FILE *out, const struct recording_set *set);

/* A picture: memory over time, a panel per process and device. */
bool export_svg(FILE *out, const struct recording_set *set);

#endif
