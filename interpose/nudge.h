/* nudge: asks a PyTorch in this process that keeps its own cache to empty it, because another process is
 * short.
 *
 * Off unless the option `nudge` is on. The Python interpreter runs a function of ours at a safe point of its
 * own, in its main thread (Py_AddPendingCall); that calls torch.cuda.empty_cache(), if torch has been
 * imported and has started CUDA. Imports nothing, runs no text as Python, and leaves no name in the program.
 * Never during a capture, never in an interpreter that is ending. Owns one mutex, held for a few
 * instructions, and the first time while Python's functions are looked up.
 */
#ifndef GPUCAP_NUDGE_H
#define GPUCAP_NUDGE_H

#include <stdbool.h>
#include <stdint.h>

/* Asks Python to empty the cache because `bytes` are missing. Waits at most NUDGE_MS plus NUDGE_MS_PER_GIB
 * per GiB of `bytes`; a busy interpreter may empty it after that. Returns true if memory came free. The first
 * time it logs how much. Call without locks, from a thread that Python does not know. */
#define NUDGE_MS         150
#define NUDGE_MS_PER_GIB 10 /* giving back takes about so long */
bool nudge_python(int ordinal, uint64_t bytes);

#endif
