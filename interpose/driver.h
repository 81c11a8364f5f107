/* driver: the real CUDA driver, as a table of its entry points. Everything that touches the driver goes through it,
 * so that a test can put functions of its own there.
 *
 * Must never load the driver into a program that does not use it: binding happens when the program itself first
 * reaches for an entry point.
 */
#ifndef GPUCAP_DRIVER_H
#define GPUCAP_DRIVER_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL /* cuda.h then declares every ABI under its own name */
#endif
#include <cudaTypedefs.h>
#include <stdbool.h>

struct driver_table {
#define HOOK(symbol, type) type symbol;
#define CALL(symbol, type) type symbol;
#include "hooks.def"
#undef HOOK
#undef CALL
};
extern struct driver_table driver;

/* Binds the table if it is not yet: to the libcuda that defines `symbol` (an address the program was given), or to
 * the one that is loaded, or, when a program calls us by a direct symbol, to the one that can be loaded. Entry points
 * that this driver lacks answer CUDA_ERROR_NOT_SUPPORTED. False if there is no driver. */
bool driver_bind(const void *symbol);

/* The file name of the bound driver library, or NULL. */
const char *driver_path(void);

#endif
