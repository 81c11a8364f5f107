/* fleet_member: one training of a fleet: started in a process group of its own, watched through two pipes,
 * and known to be gone, with everything it started, before it is forgotten.
 *
 * It dies with this process, whatever ends it (PR_SET_PDEATHSIG). Its output is read for ever but only a
 * little is kept. Owns no lock: one thread. */
#ifndef HARNESS_FLEET_MEMBER_H
#define HARNESS_FLEET_MEMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "harness/fleet/fleet_line.h"

enum {
    FLEET_NAME_MAX = 64,
    FLEET_NO_MEMORY_STATUS = 3, /* how `train` ends when memory ran out */
    FLEET_RESULT_MAX = 2 * FLEET_LINE_MAX,
    FLEET_LOG_MAX = 1 << 20, /* bytes of a member's output that are written to its log */
};

enum fleet_end {
    FLEET_WAITING, /* not started yet */
    FLEET_RUNNING,
    FLEET_OK,
    FLEET_NO_MEMORY,
    FLEET_FAILED,      /* another exit status */
    FLEET_KILLED,      /* by a signal that did not come from us */
    FLEET_STOPPED,     /* by us: a signal that was passed on */
    FLEET_TIMED_OUT,   /* by us */
    FLEET_NOT_STARTED, /* there is no such program, or it cannot be run */
};

struct fleet_job {
    char name[FLEET_NAME_MAX];
    char *const *argv;      /* ended by NULL */
    const char *cap;        /* as for `gpucap run --max`; NULL: without gpucap */
    const char *const *env; /* "NAME=value", ended by NULL; may be NULL. Only for this job */
};

struct fleet_member {
    const struct fleet_job *job;
    enum fleet_end end;
    int code; /* exit status, signal, or errno, after `end` */
    pid_t pid;
    int pipe[2]; /* its stdout and stderr; -1: closed */
    struct fleet_lines lines[2];
    struct fleet_progress progress;
    char result[FLEET_RESULT_MAX]; /* the lines of stdout with a '=' in them, as one; those that fit */
    char reason[FLEET_LINE_MAX];   /* stderr: the first line that speaks of memory, else the last */
    bool reason_fixed;
    uint64_t said_bytes;
    uint64_t started_ns, ended_ns;
    uint64_t first_ns, last_ns; /* when it first and last told its step */
    uint64_t first_step;
    uint64_t memory, peak_memory; /* by NVML; 0: not seen */
    uint64_t card_growth;         /* of the whole card meanwhile, as long as NVML does not know the process */
    FILE *log;                    /* or NULL */
};

uint64_t fleet_now(void);

void fleet_member_prepare(struct fleet_member *member, const struct fleet_job *job);
/* A failure is in member->end; the caller goes on with the others. */
void fleet_member_start(struct fleet_member *member);
/* Reads what is there, at most a bounded amount. which: 0 stdout, 1 stderr. */
void fleet_member_read(struct fleet_member *member, int which);
/* Looks whether it has ended; then ends the rest of its group, reads what is left and closes all. */
void fleet_member_reap(struct fleet_member *member);
void fleet_member_signal(const struct fleet_member *member, int signal);

/* "ok", "out of memory", "exit status 7", "killed by signal 9 (Killed)"... */
void fleet_member_ending(const struct fleet_member *member, char *text, size_t size);
/* Milliseconds for a step: what the result says, else by the clock, else NAN. */
double fleet_member_step_ms(const struct fleet_member *member);
uint64_t fleet_member_steps(const struct fleet_member *member);
double fleet_member_seconds(const struct fleet_member *member);

#endif
