/* sim_fault: the fault script: which call of which entry point fails, is slow, kills the process or
 * cancels its thread.
 *
 * Grammar (GPUCAP_SIM_FAULT, simgpu_set_fault()):
 *   script := [ rule { "," rule } ]
 *   rule   := name ":" when "=" what
 *   name   := exported symbol ("cuMemAlloc_v2") | "*"   ("*": the calls of all entry points together)
 *   when   := N (from 1: the N-th call) | "*"           ("*": every call)
 *   what   := CODE (1..999: the call returns it and does nothing)
 *           | "kill" (SIGKILL on entry)
 *           | "kill-after" (SIGKILL when the call has done its work, before it returns)
 *           | "cancel" (pthread_cancel of the calling thread; the call is a cancellation point)
 *           | "ms" N (1..10000: the call takes so many milliseconds longer)
 *
 * Blanks around the parts are allowed. The first rule that fits a call decides.
 *
 * Pure: no global state, no lock, safe on any text.
 */
#ifndef SIMGPU_FAULT_H
#define SIMGPU_FAULT_H

#include <stddef.h>
#include <stdint.h>

#define FAULT_MAX_RULES 64
#define FAULT_ANY       (-1)

enum sim_fault_action { FAULT_NONE, FAULT_RETURN, FAULT_KILL, FAULT_KILL_AFTER, FAULT_CANCEL, FAULT_SLOW };

struct sim_fault_rule {
    int entry;    /* or FAULT_ANY */
    uint64_t nth; /* 0: every call */
    enum sim_fault_action action;
    int code; /* of FAULT_RETURN; milliseconds of FAULT_SLOW */
};

struct sim_fault_script {
    size_t count;
    struct sim_fault_rule rules[FAULT_MAX_RULES];
};

/* Returns the number of the entry point of that name (not zero-terminated), or -1. */
typedef int sim_fault_lookup(const char *name, size_t length);

/* Parses a script. Returns 0, or -EINVAL with the reason in `why` and *out unchanged. */
int sim_fault_parse(struct sim_fault_script *out, const char *text, sim_fault_lookup *lookup, char *why,
                    size_t why_size);

/* Returns the rule for a call, or NULL. It is call number nth of its entry point and number nth_of_all of
 * all. */
const struct sim_fault_rule *sim_fault_match(const struct sim_fault_script *script, int entry, uint64_t nth,
                                             uint64_t nth_of_all);

#endif
