/* sim_va: address space. A device address is an address of this process: reserving, backing and protecting it
 * is mmap.
 *
 * Reserved addresses fault when touched until sim_va_back() puts memory there.
 */
#ifndef SIMGPU_VA_H
#define SIMGPU_VA_H

#include "tools/simgpu/engine/sim_phys.h"

uint64_t sim_va_reserve(uint64_t size, uint64_t alignment, uint64_t hint); /* 0: no such range */
void sim_va_release(uint64_t address, uint64_t size);
bool sim_va_back(uint64_t address, const struct sim_phys *phys, int protection);
void sim_va_unback(uint64_t address, uint64_t size); /* reserved again: a touch faults */
bool sim_va_protect(uint64_t address, uint64_t size, int protection);

#endif
