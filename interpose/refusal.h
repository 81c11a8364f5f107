/* refusal: reports why a request was refused: by a line on stderr, and by an entry in the ledger for
 * `gpucap why`. Of refusals that are alike at most one per second gets a line; the next line, or one at exit,
 * says how many did not. Owns no lock.
 */
#ifndef GPUCAP_REFUSAL_H
#define GPUCAP_REFUSAL_H

#include "interpose/account/device.h"

/* Who needs the memory: the program, the program from a pool of the driver's, which grows in steps, the
 * driver for itself, a graph. The last two may use the reserve. */
enum refusal_of { REFUSAL_PROGRAM, REFUSAL_ASYNC, REFUSAL_DRIVER, REFUSAL_GRAPH };

/* Reports that `bytes` on a limited card were refused. */
void refusal_say(struct device *device, enum refusal_of whose, uint64_t bytes);

/* Notes for recordings and the ledger that the card itself was full; says nothing. */
void refusal_note_full(int ordinal, uint64_t bytes);

/* Reports, at most once a second, that another job's `min` made us refuse a request of a process without a
 * limit. If the card is full anyway, only records it. */
void refusal_say_kept(struct device *device, uint64_t bytes);

#endif
