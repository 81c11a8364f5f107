/* simgpu_cudart_support: what the tests of the simulated runtime share: a machine of their own, and a check
 * that names the call.
 */
#ifndef SIMGPU_CUDART_SUPPORT_H
#define SIMGPU_CUDART_SUPPORT_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "unity.h"

#define MIB ((size_t)1 << 20)

#define OK(call)          TEST_ASSERT_EQUAL_INT_MESSAGE(cudaSuccess, (call), #call)
#define FAILS(code, call) TEST_ASSERT_EQUAL_INT_MESSAGE((code), (call), #call)

/* Two small cards that no other process uses. */
static inline void cudart_own_machine(const char *cards)
{
    char id[48];
    snprintf(id, sizeof(id), "cudart-test-%d", (int)getpid());
    setenv("GPUCAP_SIM_ID", id, 1);
    setenv("GPUCAP_SIM", cards, 1);
}

#endif
