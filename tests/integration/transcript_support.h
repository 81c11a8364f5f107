/* transcript_support: runs a transcript program on simgpu and compares two transcripts line by line.
 *
 * A difference is reported with the lines themselves, the first few of them: that is what a reader needs.
 * Owns no lock.
 */
#ifndef TESTS_INTEGRATION_TRANSCRIPT_SUPPORT_H
#define TESTS_INTEGRATION_TRANSCRIPT_SUPPORT_H

#include <stdbool.h>

enum transcript_program {
    TRANSCRIPT_DRIVER,
    TRANSCRIPT_RUNTIME,
    TRANSCRIPT_RUNTIME_STATIC,
    TRANSCRIPT_PROGRAMS
};

struct transcript_run {
    enum transcript_program program;
    const char *lookup; /* "dlsym" or "procaddr" */
    bool wrapped;
    const char *cap; /* with wrapped; NULL: none */
};

/* The text of one run on a simulated machine of its own; free() it. Fails the test when the program does not
 * end well. */
char *transcript_take(const struct transcript_run *run);
/* Fails the test, with the first lines that differ, when the two texts are not equal. */
void transcript_assert_equal(const char *expected, const char *expected_name, const char *got,
                             const char *got_name);
char *transcript_read_file(const char *path); /* NULL when there is none; free() it */

#endif
