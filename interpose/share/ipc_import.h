/* ipc_import: the importing side of ipc.h, for ipc.c. Owns import_lock, held for a few instructions. */
#ifndef GPUCAP_IPC_IMPORT_H
#define GPUCAP_IPC_IMPORT_H

#include "interpose/share/ipc_wire.h"

/* Opens a block of another process, as ipc_open does. The thread must be prepared (ipc_thread.h). */
int ipc_imports_open(const struct ipc_ticket *ticket, CUcontext context, CUdeviceptr *address);

void ipc_imports_before_fork(void);
void ipc_imports_after_fork(bool in_child);

#endif
