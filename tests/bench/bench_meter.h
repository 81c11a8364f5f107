/* bench_meter: how much memory of the card is in use, asked from outside the measured process, where nothing
 * stands between the question and the driver. */
#ifndef GPUCAP_BENCH_METER_H
#define GPUCAP_BENCH_METER_H

#include "bench_child.h"

/* Ends the program if there is no NVML. */
void meter_open(const struct bench_place *place);
uint64_t meter_used(void);

#endif
