/* runner: what the two transcript programs (driver and runtime API) share.
 *
 *     PROGRAM [--lookup=dlsym|procaddr] [--only=SECTION,...] [--list]
 *
 * A transcript is one line per step: the call as written, its code, and facts that must not differ between
 * the driver, the driver under libgpucap.so and simgpu. So: no addresses, no amounts of memory of the
 * machine, no times; only codes, sizes asked for, relations (yes/no) and data checks. A step that fails
 * prints its code and the section goes on. Each section runs in a process of its own, started here, with a
 * time limit: a section that dies or hangs is one line, not the end, and a section may break its context. The
 * starting process never touches the driver. Owns no lock.
 */
#ifndef TESTS_GPU_TRANSCRIPT_RUNNER_H
#define TESTS_GPU_TRANSCRIPT_RUNNER_H

#include <stdbool.h>
#include <stddef.h>

#define RUNNER_NO_DRIVER 77 /* exit status: there is nothing to ask here */

struct runner_section {
    const char *name;
    void (*run)(void);
    const char *what;
};

struct runner {
    const struct runner_section *sections;
    size_t count;
    bool (*open)(bool by_dlsym);        /* before a section; false when there is no driver */
    int (*child)(const char *argument); /* what --child=ARGUMENT runs; NULL when no section needs it */
};

int runner_main(int argc, char **argv, const struct runner *r);

void tx_section(const char *name); /* what stands before the colon of the following lines */
void tx_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *tx_yes(bool b); /* "yes" or "no" */

/* Runs this program again with the arguments (NULL-ended), output after what was printed so far; its exit
 * status. */
int tx_run_self(const char *const args[]);
void tx_in_thread(void (*fn)(void *), void *arg); /* and waits for its end */

#endif
