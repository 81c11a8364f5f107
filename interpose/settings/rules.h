/* rules: which limit applies to which card. Pure: text in, numbers out; no CUDA, no locks.
 *
 * "8G" or "50%" applies to every card; "0=8G" to the device that the program sees as number 0;
 * "GPU-<uuid>=4G" (or a unique beginning of the UUID) to one card whatever its number; "none" means no limit.
 * Rules are separated by commas. The most exact rule wins: UUID, then number, then the one for every card.
 */
#ifndef GPUCAP_RULES_H
#define GPUCAP_RULES_H

#include "interpose/settings/size.h"

#define RULES_FORM       "8G, 512M, 50%, none, or one per device: 0=8G,GPU-<uuid>=4G"
#define RULES_ZERO       "a limit of zero leaves no room for CUDA; write none for no limit"
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
    int count; /* 0: no limit was asked for */
    struct rules_rule rules[RULES_MAX_RULES];
};

/* Parses a list of rules. Returns 0, or -EINVAL with a few words in *why. */
int rules_parse(const char *text, struct rules *out, const char **why);
/* The same for a min or a high, where zero means none and is no error. */
int rules_parse_bound(const char *text, struct rules *out, const char **why);

/* Returns true if a rule names a device by number, which a user can change with CUDA_VISIBLE_DEVICES. */
bool rules_use_ordinals(const struct rules *limits);

/* Returns true if a rule names a card by number or UUID. */
bool rules_name_cards(const struct rules *limits);

/* Returns the rule that applies to a card ("GPU-..."), or NULL. `ordinal` may be RULES_NO_ORDINAL. */
const struct rules_rule *rules_best(const struct rules *limits, int ordinal, const char *uuid);
/* Returns what the card may use, or RULES_UNLIMITED. */
uint64_t rules_for(const struct rules *limits, int ordinal, const char *uuid, uint64_t total);

/* Returns true if `uuid` begins with `rule`, apart from "GPU-" or "MIG-": a slice is "MIG-..." to NVML and to
 * users, but the driver returns only its sixteen bytes. */
bool rules_names(const char *rule, size_t length, const char *uuid);

#endif
