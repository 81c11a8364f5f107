/* sim_va: address space. A device address is an address of this process, so that mmap reserves, maps and
 * protects it.
 *
 * An access to reserved addresses faults until sim_va_back() maps memory there.
 */
#ifndef SIMGPU_VA_H
#define SIMGPU_VA_H

#include "tools/simgpu/engine/sim_phys.h"

uint64_t sim_va_reserve(uint64_t size, uint64_t alignment, uint64_t hint); /* returns 0 on failure */
void sim_va_release(uint64_t address, uint64_t size);
bool sim_va_back(uint64_t address, const struct sim_phys *phys, int protection);
void sim_va_unback(uint64_t address, uint64_t size); /* back to reserved */
bool sim_va_protect(uint64_t address, uint64_t size, int protection);

#endif
