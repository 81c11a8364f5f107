/* sim_nvml_view: how much the simulated NVML shows. In containers and on MIG slices the real one shows only a
 * part.
 *
 * GPUCAP_SIM_NVML has any of these, separated by commas; without it NVML shows everything:
 *   absent        NVML does not start: nvmlInit is DRIVER_NOT_LOADED, every other call UNINITIALIZED
 *   no-list       the lists of processes are NOT_SUPPORTED
 *   no-bytes      the bytes of a process are "not available" (all bits set)
 *   pids=N        a process is listed under its own number plus N, as seen from inside a PID namespace
 *   newcomers=N   when this process begins to use a card, N others appear in the list with it. Each has as
 *                 many bytes, and a number that no process has.
 * For a machine without the library, set LD_LIBRARY_PATH to build/sim-without-nvml.
 *
 * The parser is pure and safe on any text. The view is read at each nvmlInit; one lock guards it.
 */
#ifndef SIMGPU_SIM_NVML_VIEW_H
#define SIMGPU_SIM_NVML_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#define SIM_NVML_VIEW_MAX_NEWCOMERS 64u
#define SIM_NVML_VIEW_MAX_PIDS      1000000000u
#define SIM_NVML_VIEW_NEWCOMER      4000000000u /* number of the first one: larger than that of any process */

struct sim_nvml_view {
    bool absent, no_list, no_bytes;
    unsigned int pids, newcomers;
};

/* Parses a text. Returns 0, or -EINVAL with the reason in why and *out unchanged. */
int sim_nvml_view_parse(const char *text, struct sim_nvml_view *out, char *why, size_t why_size);

/* Reads the environment variable. Returns 0, or -EINVAL if it does not parse (the reason goes to stderr). */
int sim_nvml_view_read(void);
struct sim_nvml_view sim_nvml_view_now(void);

#endif
