/* cli_members: processes of a ledger for the tests of the commands that read and change ledgers. Each is a
 * prog_member, told what to do by lines on its stdin. Ends all of them with the test case. Owns no lock. */
#ifndef TESTS_CLI_MEMBERS_H
#define TESTS_CLI_MEMBERS_H

#include <stdio.h>
#include <sys/types.h>

#include "cli_support.h"

#define MEMBERS_UUID       "GPU-00000000-1111-2222-3333-444444444444"
#define MEMBERS_OTHER_UUID "GPU-11111111-1111-2222-3333-444444444444"

struct member {
    pid_t pid;
    FILE *in, *out;
};

/* The folder of the ledgers of this test case; cli_env names it to every command. */
const char *members_folder(void);

/* Starts a member of `job` ("-": none) on the card, with sizes in MiB; returns when it has joined. */
struct member *members_start(const char *uuid, const char *job, unsigned max, unsigned used, unsigned cached);
/* The same for one that never answers a question. */
struct member *members_start_deaf(const char *uuid, const char *job, unsigned max, unsigned used,
                                  unsigned cached);
/* Gives a member a command, and waits until it has done it. */
void members_tell(struct member *member, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The process id as text, in one of four static buffers. */
const char *members_pid(const struct member *member);
/* Holds the slots of a ledger's file as if programs used it, until the descriptor that is returned is closed.
 */
int members_use(const char *path);
/* Ends all members. */
void members_end(void);

/* The UUID of the first simulated card of a command that runs with --sim=1x16G. */
const char *members_sim_uuid(void);
#define MEMBERS_SIM "--sim=1x16G"

#endif
