/* sim_event_share: interprocess events: two counts, of records made and of records done, in a file that both
 * processes map.
 *
 * An event is done when the counts are equal. A process keeps its own events in one file. It never unmaps the
 * files of others, because queued work may still read them.
 */
#ifndef SIMGPU_EVENT_SHARE_H
#define SIMGPU_EVENT_SHARE_H

#include "tools/simgpu/engine/sim_abi.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_shared_event;

/* Lock held. */
struct sim_shared_event *sim_share_new(int *slot); /* NULL: all slots are in use */
void sim_share_drop(int slot);                     /* -1 (an event of another process) does nothing */
void sim_share_export(CUipcEventHandle *out, int slot);

/* These need no lock. */
uint64_t sim_share_record(struct sim_shared_event *event); /* counts a record; returns its number */
uint64_t sim_share_recorded(const struct sim_shared_event *event);
uint64_t sim_share_done_address(struct sim_shared_event *event); /* address of the count of records done */
bool sim_share_is_done(const struct sim_shared_event *event);
void sim_share_wait(const struct sim_shared_event *event);

/* Maps an event of another process, for the rest of this process's life. Takes the lock. */
CUresult sim_share_open(struct sim_shared_event **out, CUipcEventHandle handle);

#endif
