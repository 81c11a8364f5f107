/* engine_disturb: interrupts threads at arbitrary instructions, as a busy machine does, but thousands of
 * times a second, so that a rare race shows within minutes. */
#ifndef GPUCAP_TESTS_ENGINE_DISTURB_H
#define GPUCAP_TESTS_ENGINE_DISTURB_H

#include <stdbool.h>

/* Call before any thread that is to be disturbed begins. With `really` false, nothing here does anything. */
void disturb_start(bool really);
void disturb_stop(void);

/* Begin and end to disturb the calling thread, which must call the second before it ends. */
void disturb_me(void);
void disturb_me_no_more(void);

#endif
