/* newer: entry points that drivers have got since CUDA 13.0, the oldest toolkit that this builds with, and
 * that have a hook. Prototypes as in the headers that first had them. A driver without them returns "not
 * supported" for them, as for any other that it lacks; then no program finds them either. Owns no lock.
 */
#ifndef GPUCAP_NEWER_H
#define GPUCAP_NEWER_H

#include <cuda.h>

#if CUDA_VERSION < 13010
CUresult CUDAAPI cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice card, size_t offset,
                                        CUdeviceptr address, size_t bytes, unsigned long long flags);
#endif

#if CUDA_VERSION < 13020
CUresult CUDAAPI cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode);
CUresult CUDAAPI cuLaunchHostFunc_v2_ptsz(CUstream hStream, CUhostFn fn, void *userData,
                                          unsigned int syncMode);
CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                             CUmemcpyAttributes *attr, CUstream hStream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                                  CUmemcpyAttributes *attr, CUstream hStream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                               CUstream hStream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                                    CUstream hStream);
#endif

#if CUDA_VERSION < 13030
typedef cuuint32_t CUlogicalEndpointId;
typedef CUresult(CUDAAPI *CUgraphRecaptureCallback)(void *data, CUgraphNode node,
                                                    const CUgraphNodeParams *before,
                                                    const CUgraphNodeParams *after, unsigned int status);

CUresult CUDAAPI cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice card, cuuint64_t offset,
                                           void *address, cuuint64_t bytes, unsigned long long flags);
CUresult CUDAAPI cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                               CUgraphRecaptureCallback callback, void *data);
CUresult CUDAAPI cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                                    CUgraphRecaptureCallback callback, void *data);
#endif

#if CUDA_VERSION < 13040
CUresult CUDAAPI cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                   const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params);
#endif

#endif
