/* device: the limited cards of this process, by the driver's number and by UUID.
 *
 * Owns table_lock, held while a card is looked at for the first time: quick driver queries, and the joining
 * of its ledger.
 */
#ifndef GPUCAP_DEVICE_H
#define GPUCAP_DEVICE_H

#include "interpose/account/account.h"
#include "interpose/account/measure.h"
#include "interpose/driver/driver.h"
#include "interpose/see/recording.h"
#include "interpose/settings/options.h"

/* We know of no driver that has more cards; with limits, memory on others is refused. */
#define DEVICE_MAX 64

struct device {
    int ordinal;
    char uuid[RULES_UUID_TEXT];
    uint64_t total;         /* of the card */
    _Atomic uint64_t limit; /* the smaller of this process's and its job's */
    _Atomic uint64_t own;   /* of this process alone */
    struct ledger *ledger;  /* NULL: none */
    struct measure_card card;
    struct account account;
    uint64_t threads; /* threads that can be resident at once: the factor for a kernel's stack */
    _Atomic uint64_t context_bytes; /* what a context takes; 0: not known */
};

/* Returns true if other processes of a job share the budget. */
static inline bool device_shares(const struct device *device)
{
    return device->ledger && ledger_shares(device->ledger);
}

/* Returns what rules say of the card, in bytes, or RULES_UNLIMITED. */
static inline uint64_t device_rule(const struct device *device, const struct rules *rules)
{
    return rules_for(rules, device->ordinal, device->uuid, device->total);
}

/* Sets the options. Call before the first device_get. */
void device_setup(const struct options *options);

/* Finds a card. Returns 0 with *device, which is NULL if the card is not limited. If limits were asked for:
 * -ENODEV if the driver cannot identify the card, so nothing may be granted on it; -ENXIO if there is no such
 * card, so the driver itself refuses every request. */
int device_find(CUdevice ordinal, struct device **device);
/* Returns true and writes the number if the program sees a single card. */
bool device_only(CUdevice *ordinal);
/* device_find for the current context's card; -ENXIO without a context. */
int device_find_current(struct device **device);
/* Returns the card if it is known and limited, else NULL. For figures, not for decisions. */
struct device *device_get(CUdevice ordinal);

/* Enters a process without a limit into the card's ledger, so that it is seen and lends on a full card. Call
 * when it makes a context there; later calls do nothing. Returns the card, limited or not, or NULL if there
 * is no ledger; that is not an error. */
struct device *device_list(CUdevice ordinal);
/* Returns the card if it is limited or device_list has entered it, else NULL. */
struct device *device_listed(CUdevice ordinal);
/* Returns true if this process has no limit on the card: its account is not used. */
bool device_is_unlimited(const struct device *device);

/* Writes what is free on the card, by NVML if the thread has no context there. Returns 0 or -ENODATA. */
int device_free_bytes(struct device *device, uint64_t *bytes);

/* Returns the card if this process has no limit there and another job has a min on it: then each request must
 * be admitted. Else NULL, after a few instructions. */
struct device *device_guarded(CUdevice ordinal);
/* The same for the current context's card. */
struct device *device_guarded_current(void);
/* Returns true if there is such a card. */
bool device_any_guarded(void);
/* Admits a request beside what is kept for other jobs, on a card of device_guarded. True:
 * device_end_admission must follow when the driver has answered. */
bool device_admit(struct device *device, uint64_t bytes);
void device_end_admission(struct device *device, uint64_t bytes);

/* Checks that the cards named by max and each exist. Call after CUDA has started. If a limit would hold for
 * no card or names one that cannot exist, lists the cards on stderr and returns false. */
bool device_check_rules(void);

/* Changes the limit, within the administrator's. Returns false if that is not possible. */
bool device_set_limit(struct device *device, uint64_t bytes);

/* Returns true if the job's max, minus what its other processes have leased, is at most the process's own
 * limit. */
bool device_job_binds(const struct device *device);
/* Returns whose limit applies. */
enum recording_limit device_limit_kind(const struct device *device);

/* Adopts the job's max if it has changed. */
void device_follow_job(struct device *device);

/* Gives up the parent's ledgers in a child after fork. */
void device_after_fork(void);

/* Calls visit(device) for every limited card seen so far. */
void device_each(void (*visit)(struct device *device));
/* The same for every card that has a ledger, limited or not. */
void device_each_listed(void (*visit)(struct device *device));

/* Returns the number under which the program sees the card "GPU-..." or the slice "MIG-...", or
 * RULES_NO_ORDINAL if it has not been looked at. */
int device_ordinal_of(const char *uuid);

/* Writes "GPU-xxxxxxxx-..." from the driver's 16 bytes. */
void device_format_uuid(const CUuuid *uuid, char text[RULES_UUID_TEXT]);

#endif
