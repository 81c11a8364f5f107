/* scenario_record: runs trainings of a scenario once more under a recording and writes its page: the native
 * way that runs out of memory, and gpucap's on the same card. Never changes a figure of the scenario. Owns no
 * lock. */
#ifndef HARNESS_SCENARIO_RECORD_H
#define HARNESS_SCENARIO_RECORD_H

#include <stdbool.h>

#include "harness/scenario/scenario.h"

/* Runs `count` trainings together on the card as it is, records them into the folder of --record and writes
 * scenario-LETTER.html there; for a way under gpucap scenario-LETTER-gpucap.html. A native way runs with
 * gpucap's pool off, and the card's size is the limit of all together: gpucap then only counts and records.
 * Adds a note with the outcome. Returns false if a signal asked to stop, or if there is no page. */
bool scenario_record(struct scenario *scenario, const struct scenario_way *way, unsigned count);

#endif
