/* sim_copy: copies and fills, in stream order.
 *
 * As in the driver, a copy from or to pageable memory is done with that memory when the call returns, and a
 * copy within the device does not make the host wait, unless SYNC_MEMOPS is set. Takes the engine's lock.
 */
#ifndef SIMGPU_COPY_H
#define SIMGPU_COPY_H

#include "tools/simgpu/engine/sim_work.h"

enum sim_copy_side { SIDE_ANY, SIDE_HOST, SIDE_DEVICE }; /* the kind of address that the call expects */
enum sim_copy_wait { COPY_SYNC, COPY_ASYNC };

CUresult sim_copy_linear(uint64_t to, enum sim_copy_side to_side, uint64_t from, enum sim_copy_side from_side,
                         size_t size, CUstream stream, enum sim_copy_wait wait);
CUresult sim_copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, enum sim_copy_wait wait);
CUresult sim_copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, enum sim_copy_wait wait);
CUresult sim_copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, enum sim_copy_wait wait);
CUresult sim_copy_fill(CUdeviceptr to, size_t pitch, unsigned int value, unsigned int element, size_t width,
                       size_t height, CUstream stream, enum sim_copy_wait wait);

/* For graph nodes: make the work without submitting it. */
CUresult sim_copy_3d_work(const CUDA_MEMCPY3D *copy, struct sim_work **out);
CUresult sim_copy_fill_work(const CUDA_MEMSET_NODE_PARAMS *fill, struct sim_work **out);

#endif
