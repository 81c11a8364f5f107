/* apart: tests in a process of their own, for modules that decide something once in a process. */
#ifndef GPUCAP_APART_H
#define GPUCAP_APART_H

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

/* Runs a test in a forked child. */
static inline void apart(void (*test)(void))
{
    int status = 0;

    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (TEST_PROTECT())
            test();
        fflush(stdout);
        _exit(Unity.CurrentTestFailed ? 1 : 0);
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, status, "see the line above");
}

static void (*apart_test)(void);

static inline void apart_run(void)
{
    apart(apart_test);
}

/* RUN_TEST in a forked child. */
#define RUN_APART(test) (apart_test = (test), UnityDefaultTestRun(apart_run, #test, __LINE__))

#endif
