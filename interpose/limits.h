/* limits: which limit applies to which card. Pure: text in, numbers out; no CUDA, no locks.
 *
 * "8G" or "50%" holds for every card; "0=8G" for the device that the program sees as number 0; "GPU-<uuid>=4G" (or a
 * unique beginning of the UUID) for one card whatever its number; "none" for no limit. They combine with commas; the
 * most exact rule wins: UUID, then number, then the one for every card.
 */
#ifndef GPUCAP_LIMITS_H
#define GPUCAP_LIMITS_H

#include "size.h"

#define LIMITS_FORM        "8G, 512M, 50%, none, or one per device: 0=8G,GPU-<uuid>=4G"
#define LIMITS_MAX_RULES   64
#define LIMITS_UUID_TEXT   48 /* "GPU-" or "MIG-" and 36 characters, terminated */
#define LIMITS_UNLIMITED   UINT64_MAX
#define LIMITS_NO_ORDINAL  (-1)

enum limits_scope { LIMITS_EVERY, LIMITS_ORDINAL, LIMITS_UUID };

struct limits_rule {
    enum limits_scope scope;
    int ordinal;
    char uuid[LIMITS_UUID_TEXT];
    bool unlimited;
    struct size_value size;
};

struct limits {
    int count; /* 0: nothing was asked for */
    struct limits_rule rules[LIMITS_MAX_RULES];
};

/* 0, or -EINVAL; then `why` says in a few words what is wrong. */
int limits_parse(const char *text, struct limits *out, const char **why);

/* True if some rule names a device by its number (which a user can change with CUDA_VISIBLE_DEVICES). */
bool limits_use_ordinals(const struct limits *limits);

/* The bytes that a card may use, LIMITS_UNLIMITED if no rule limits it. `uuid` as "GPU-...", `ordinal` may be LIMITS_NO_ORDINAL. */
uint64_t limits_for(const struct limits *limits, int ordinal, const char *uuid, uint64_t total);

#endif
