/* rules: which limit applies to which card. Pure: text in, numbers out; no CUDA, no locks.
 *
 * "8G" or "50%" holds for every card; "0=8G" for the device that the program sees as number 0;
 * "GPU-<uuid>=4G" (or a unique beginning of the UUID) for one card whatever its number; "none" for no limit.
 * They combine with commas; the most exact rule wins: UUID, then number, then the one for every card.
 */
#ifndef GPUCAP_RULES_H
#define GPUCAP_RULES_H

#include "interpose/settings/size.h"

#define RULES_FORM       "8G, 512M, 50%, none, or one per device: 0=8G,GPU-<uuid>=4G"
#define RULES_MAX_RULES  64
#define RULES_UUID_TEXT  48 /* "GPU-" or "MIG-" and 36 characters, terminated */
#define RULES_UNLIMITED  UINT64_MAX
#define RULES_NO_ORDINAL (-1)

enum rules_scope { RULES_EVERY, RULES_ORDINAL, RULES_UUID };

struct rules_rule {
    enum rules_scope scope;
    int ordinal;
    char uuid[RULES_UUID_TEXT];
    bool unlimited;
    struct size_value size;
};

struct rules {
    int count; /* 0: nothing was asked for */
    struct rules_rule rules[RULES_MAX_RULES];
};

/* 0, or -EINVAL; then `why` says in a few words what is wrong. */
int rules_parse(const char *text, struct rules *out, const char **why);

/* True if some rule names a device by its number (which a user can change with CUDA_VISIBLE_DEVICES). */
bool rules_use_ordinals(const struct rules *limits);

/* True if some rule names a card, by number or UUID. */
bool rules_name_cards(const struct rules *limits);

/* The bytes that a card may use, RULES_UNLIMITED if no rule limits it. `uuid` as "GPU-...", `ordinal` may be
 * RULES_NO_ORDINAL. */
uint64_t rules_for(const struct rules *limits, int ordinal, const char *uuid, uint64_t total);

/* True if both begin alike behind "GPU-" or "MIG-", as far as `rule` goes: a slice of a card is "MIG-..." to
 * NVML and to its users, and only sixteen bytes to the driver. */
bool rules_names(const char *rule, size_t length, const char *uuid);

#endif
