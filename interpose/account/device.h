/* device: the cards of this process that are limited, by the driver's number and by UUID.
 *
 * Owns table_lock, held while a card is looked at for the first time (two quick driver queries).
 */
#ifndef GPUCAP_DEVICE_H
#define GPUCAP_DEVICE_H

#include "interpose/account/account.h"
#include "interpose/account/measure.h"
#include "interpose/driver/driver.h"
#include "interpose/settings/options.h"

#define DEVICE_MAX 64

struct device {
    int ordinal;
    char uuid[RULES_UUID_TEXT];
    uint64_t total;         /* of the card */
    _Atomic uint64_t limit; /* of this process and of its job: the smaller */
    _Atomic uint64_t own;   /* of this process, whatever its job's is */
    struct ledger *ledger;  /* NULL: none */
    struct measure_card card;
    struct account account;
    uint64_t threads;               /* that can be resident at once: what a kernel's stack is multiplied by */
    _Atomic uint64_t context_bytes; /* what the first context took; 0: none was made yet */
};

/* Takes over the options; before the first device_get. */
void device_setup(const struct options *options);

/* Finds the card: 0, and *device is NULL if it is not limited. If limits were asked for: -ENODEV if the
 * driver cannot say which card this is, and then nothing may be granted on it; -ENXIO if there is no such
 * card, and then the driver refuses every request by itself. */
int device_find(CUdevice ordinal, struct device **device);
/* The number of the card of the calling thread's context: 0, -ENXIO if it has none, -ENODEV if the driver
 * does not say. */
int device_current(CUdevice *ordinal);
/* True if the program sees a single card, and its number. */
bool device_only(CUdevice *ordinal);
/* device_find for the card of the calling thread's context; -ENXIO if it has none. */
int device_find_current(struct device **device);
/* The card if it is known and limited, else NULL: for figures, not for decisions. */
struct device *device_get(CUdevice ordinal);

/* Checks, once CUDA has started, that the cards are there that max and each name. False, with the cards that
 * there are on stderr, if a limit would hold for no card, or names one that cannot be there. */
bool device_check_rules(void);

/* Changes the limit, within the administrator's. False if that is not possible. */
bool device_set_limit(struct device *device, uint64_t bytes);

/* The job's max may have changed: follows it. */
void device_follow_job(struct device *device);

/* A child after fork: the parent's ledgers are not its own. */
void device_after_fork(void);

/* Calls visit(device) for every limited card seen so far. */
void device_each(void (*visit)(struct device *device));

/* The number under which the program sees the card "GPU-..." or the slice "MIG-...", as far as it has been
 * looked at; else RULES_NO_ORDINAL. */
int device_ordinal_of(const char *uuid);

/* Writes "GPU-xxxxxxxx-..." from the driver's 16 bytes. */
void device_format_uuid(const CUuuid *uuid, char text[RULES_UUID_TEXT]);

void device_forget(void); /* tests */

#endif
