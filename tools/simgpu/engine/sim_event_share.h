/* sim_event_share: interprocess events: two counts in a file that both processes map.
 *
 * An event is done when as many records are done as were made. A process keeps its own events in one file,
 * and what it has mapped of others until it ends: work that is still queued may look there.
 */
#ifndef SIMGPU_EVENT_SHARE_H
#define SIMGPU_EVENT_SHARE_H

#include "tools/simgpu/engine/sim_abi.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_shared_event;

/* With the lock held. */
struct sim_shared_event *sim_share_new(int *slot); /* NULL: no room */
void sim_share_drop(int slot);                     /* -1 is allowed: another process's */
void sim_share_export(CUipcEventHandle *out, int slot);

/* Without it, or with it. */
uint64_t sim_share_record(struct sim_shared_event *event); /* one more; its number */
uint64_t sim_share_recorded(const struct sim_shared_event *event);
uint64_t sim_share_done_address(struct sim_shared_event *event); /* of the count of records done */
bool sim_share_is_done(const struct sim_shared_event *event);
void sim_share_wait(const struct sim_shared_event *event);

/* Maps another process's event, until this one ends. Takes the lock. */
CUresult sim_share_open(struct sim_shared_event **out, CUipcEventHandle handle);

#endif
