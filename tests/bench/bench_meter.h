/* bench_meter: how much memory of the card is in use, by NVML, asked from outside the measured process,
 * without gpucap in between. */
#ifndef GPUCAP_BENCH_METER_H
#define GPUCAP_BENCH_METER_H

#include "bench_child.h"

/* Ends the program if there is no NVML. */
void meter_open(const struct bench_place *place);
uint64_t meter_used(void);

#endif
