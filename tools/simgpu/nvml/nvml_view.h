/* nvml_view: how much the simulated NVML shows: in containers and on MIG slices the real one is partly blind.
 *
 * GPUCAP_SIM_NVML has any of these, separated by commas; without it NVML shows all:
 *   absent        NVML does not start: nvmlInit is DRIVER_NOT_LOADED, every other call UNINITIALIZED
 *   no-list       the lists of processes are NOT_SUPPORTED
 *   no-bytes      how much a process uses is "not available" (all bits set)
 *   pids=N        a process is listed under its own number plus N, as one that looks from inside a PID
 * namespace sees it newcomers=N   when this process begins to use a card, N others are listed with it for the
 * first time, each with as many bytes, under numbers that no process has (A program that must not find the
 * library itself gets build/sim-without-nvml as LD_LIBRARY_PATH.)
 *
 * The parser is pure and safe on any text. The view is read at each nvmlInit; one lock guards it.
 */
#ifndef SIMGPU_NVML_VIEW_H
#define SIMGPU_NVML_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#define NVML_VIEW_MAX_NEWCOMERS 64u
#define NVML_VIEW_MAX_PIDS      1000000000u
#define NVML_VIEW_NEWCOMER      4000000000u /* the number of the first one: larger than any process's */

struct nvml_view {
    bool absent, no_list, no_bytes;
    unsigned int pids, newcomers;
};

/* 0, or -EINVAL with the reason in why. On error *out is not touched. */
int nvml_view_parse(const char *text, struct nvml_view *out, char *why, size_t why_size);

/* Reads the environment: 0, or -EINVAL for a bad text (said on stderr). */
int nvml_view_read(void);
struct nvml_view nvml_view_now(void);

#endif
