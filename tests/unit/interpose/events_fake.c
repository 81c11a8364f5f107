/* events.h for tests, which define events_publish: each event is published from the same slot. */
#include "interpose/see/events.h"

atomic_bool events_on;

struct recording_event *events_slot(void)
{
    static struct recording_event slot;

    return &slot;
}
