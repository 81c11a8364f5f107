/* ipc_export: the exporting side of ipc.h. Takes ipc_export_lock (ipc_exports.h). */
#ifndef GPUCAP_IPC_EXPORT_H
#define GPUCAP_IPC_EXPORT_H

#include "interpose/pool/pool.h"

/* Makes the handle of a live block on a card that can share memory, as ipc_export does. The thread must be
 * prepared (ipc_thread.h). */
int ipc_export_block(struct pool *pool, uint64_t address, CUipcMemHandle *handle);

#endif
