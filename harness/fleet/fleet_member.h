/* fleet_member: one program of a fleet. It runs in a process group of its own and is read through two
 * pipes. A member is finished only when everything that it started has ended. It dies with this process,
 * however that ends (PR_SET_PDEATHSIG). All of its output is read, little is kept. Owns no lock: one
 * thread. */
#ifndef HARNESS_FLEET_MEMBER_H
#define HARNESS_FLEET_MEMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "harness/fleet/fleet_line.h"

enum {
    FLEET_NAME_MAX = 64,
    FLEET_NO_MEMORY_STATUS = 3,  /* exit statuses of `train`: memory ran out, */
    FLEET_NOT_FINITE_STATUS = 4, /* a loss or gradient was not finite, */
    FLEET_UNSAVED_STATUS = 6,    /* its last checkpoint could not be written */
    FLEET_RESULT_MAX = 2 * FLEET_LINE_MAX,
    FLEET_LOG_MAX = 1 << 20, /* most bytes of a member's output in its log */
};

enum fleet_end {
    FLEET_WAITING, /* not started yet */
    FLEET_RUNNING,
    FLEET_OK,
    FLEET_NO_MEMORY,
    FLEET_FAILED,      /* another exit status */
    FLEET_KILLED,      /* by a signal that fleet did not send */
    FLEET_STOPPED,     /* by fleet, which passed a signal on */
    FLEET_TIMED_OUT,   /* ended by fleet */
    FLEET_NOT_STARTED, /* the program does not exist or cannot be run */
};

struct fleet_job {
    char name[FLEET_NAME_MAX];
    char *const *argv;      /* ended by NULL */
    const char *cap;        /* as for `gpucap run --max`; NULL: without gpucap */
    const char *each;       /* as for `gpucap run --each`, for a member of a job; NULL: none */
    bool native;            /* without gpucap although others have a cap or a job */
    const char *const *run; /* further arguments of `gpucap run` (fleet_budget.h); may be NULL */
    const char *const *env; /* "NAME=value", ended by NULL; may be NULL. Only for this job */
};

struct fleet_member {
    const struct fleet_job *job;
    enum fleet_end end;
    int code;    /* exit status, signal or errno, depending on `end` */
    bool exited; /* `code` is an exit status */
    pid_t pid;
    int pipe[2]; /* its stdout and stderr; -1: closed */
    struct fleet_lines lines[2];
    struct fleet_progress progress;
    char result[FLEET_RESULT_MAX]; /* the lines of stdout that contain '=', joined, as far as they fit */
    char reason[FLEET_LINE_MAX];   /* of stderr: the first line about memory, else the last */
    bool reason_fixed;
    uint64_t said_bytes;
    uint64_t started_ns, ended_ns;
    uint64_t first_ns, last_ns; /* times of the first and the last reported step */
    uint64_t first_step;
    uint64_t memory, peak_memory; /* by NVML; 0: unknown */
    uint64_t card_growth;         /* of the whole card meanwhile, while NVML does not list the process */
    FILE *log;                    /* or NULL */
};

uint64_t fleet_now(void);

void fleet_member_prepare(struct fleet_member *member, const struct fleet_job *job);

/* Starts the program. A failure is recorded in member->end; the caller continues with the others. */
void fleet_member_start(struct fleet_member *member);

/* Reads a bounded amount of what is available. `which`: 0 stdout, 1 stderr. */
void fleet_member_read(struct fleet_member *member, int which);

/* If the program has ended: ends the rest of its process group, reads the remaining output and closes
 * everything. */
void fleet_member_reap(struct fleet_member *member);
void fleet_member_signal(const struct fleet_member *member, int signal);

/* Writes how it ended: "ok", "out of memory", "exit status 7", "killed by signal 9 (Killed)"... Statuses
 * other than 0 have a meaning only for `train` itself. */
void fleet_member_ending(const struct fleet_member *member, char *text, size_t size);

/* Returns milliseconds per step: from the result line, else by the clock, else NAN. */
double fleet_member_step_ms(const struct fleet_member *member);

/* Returns the seconds until the last step at the pace so far, or NAN. */
double fleet_member_seconds_left(const struct fleet_member *member);

/* Returns the steps that it did; those before a resume of `train` do not count. */
uint64_t fleet_member_steps(const struct fleet_member *member);
double fleet_member_seconds(const struct fleet_member *member);

#endif
