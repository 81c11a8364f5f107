/* engine_disturb: threads that are interrupted at any instruction, as a busy machine does to them, only
 * thousands of times a second: what goes wrong once in a thousand quiet runs goes wrong in minutes. */
#ifndef GPUCAP_TESTS_ENGINE_DISTURB_H
#define GPUCAP_TESTS_ENGINE_DISTURB_H

#include <stdbool.h>

/* Begins, before any thread that is to be disturbed; with `really` false all of this does nothing. */
void disturb_start(bool really);
void disturb_stop(void);

/* The calling thread is disturbed from now on; no more, as it must say before it ends. */
void disturb_me(void);
void disturb_me_no_more(void);

#endif
