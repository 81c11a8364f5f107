/* ledger_support: a private folder for ledgers, and processes that use a ledger as a test tells them. */
#ifndef GPUCAP_LEDGER_SUPPORT_H
#define GPUCAP_LEDGER_SUPPORT_H

#include "interpose/account/ledger_file.h"
#include "tests/support/ledger_short.h"

#define CARD "GPU-5e1f"
#define JOB  "job"

/* The folder of the running test. */
extern char test_folder[LEDGER_PATH];

/* For setUp and tearDown. The second one kills the members that are left and removes the folder. */
void test_begin(void);
void test_end(void);

/* Opens a ledger in the test's process, which is patient, or fails the test. test_end() closes it unless
 * test_close() has. */
struct ledger *test_open(void);
struct ledger *test_join(const char *job, uint64_t max);
void test_close(struct ledger *ledger);

/* Makes a ledger wait for processes that do not go on for longer than a test may take. On a busy machine one
 * may not be run for seconds, which is what a process that was stopped looks like. */
void test_be_patient(struct ledger *ledger);

/* In a child: gives up the ledgers of the test's process, and ends with it. */
void test_after_fork(void);

/* Take the lock and return the job's sum: as stored in the file, and as the sum of the leases of living
 * processes. */
uint64_t test_sum(struct ledger *ledger);
uint64_t test_living(struct ledger *ledger);

/* A process that has joined the ledger. */
struct member {
    pid_t pid;
    int orders, answers, slot;
};

enum order {
    ORDER_END,
    ORDER_EXTEND,    /* least */
    ORDER_SETTLE,    /* used */
    ORDER_PUBLISH,   /* used */
    ORDER_LEASE,     /* returns it */
    ORDER_WAIT,      /* least, timeout_ms */
    ORDER_ASK,       /* bytes, timeout_ms */
    ORDER_LISTEN,    /* returns the bytes, or -1 */
    ORDER_ANSWER,    /* given */
    ORDER_MAX,       /* returns the job's max */
    ORDER_CLOSE_ALL, /* all descriptors that a program can close */
    ORDER_DUP_OVER,  /* a file of the program's gets the number of the ledger's descriptor */
    ORDER_OWN_FILE,  /* 1 if that file is still open and not locked by anyone */
    ORDER_FORK,      /* a child that outlives the member; returns its pid */
};

struct member member_start(const char *job, uint64_t max);
void member_send(const struct member *member, enum order order, uint64_t a, uint64_t b);
int64_t member_answer(const struct member *member);
int64_t member_do(const struct member *member, enum order order, uint64_t a, uint64_t b);
/* SIGKILL, and waits until it is dead. */
void member_kill(struct member *member);
/* Lets it close its ledger and end. */
void member_end(struct member *member);

/* Waits until the slot's process queues for memory. */
void await_waiting(const struct ledger *ledger, int slot);
/* Waits until the member queues for memory, or has given up before this process was run. */
void await_waited(const struct ledger *ledger, const struct member *member);

#endif
