/* sim_card_spec: reads GPUCAP_SIM (grammar in sim_card_spec.h). Pure, no lock. The text may be anything:
 * every number is checked before it is used, and nothing is read past the terminating zero.
 */
#include "tools/simgpu/engine/sim_card_spec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct reader {
    const char *at;
    char *why;
    size_t why_size;
};

static int refuse(struct reader *r, const char *reason)
{
    const int shown = 24; /* characters of the text in the message */
    snprintf(r->why, r->why_size, "at '%.*s': %s", shown, r->at, reason);
    return -EINVAL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool read_number(struct reader *r, uint64_t *out)
{
    uint64_t value = 0;
    if (!is_digit(*r->at))
        return false;
    for (; is_digit(*r->at); r->at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*r->at - '0'), &value))
            return false;
    }
    *out = value;
    return true;
}

static bool read_size(struct reader *r, uint64_t *out)
{
    static const char units[] = "kmgt";
    uint64_t value;
    if (!read_number(r, &value))
        return false;
    char lower = (char)(*r->at | 0x20); /* ASCII letters only differ in this bit */
    const char *unit = lower ? strchr(units, lower) : NULL;
    if (unit && *unit) {
        unsigned shift = 10 * (unsigned)(unit - units + 1);
        if (value > UINT64_MAX >> shift)
            return false;
        value <<= shift;
        r->at++;
        if (!strncasecmp(r->at, "ib", 2))
            r->at += 2;
        else if (*r->at == 'b' || *r->at == 'B')
            r->at++;
    }
    *out = value;
    return true;
}

static void name_card(struct sim_card_info *card, int index)
{
    /* "simgpu" or "simmig" in ASCII, then the version bits of a random UUID; the last byte is the index. */
    static const uint8_t gpu[16] = {'s', 'i', 'm', 'g', 'p', 'u', 0x40, 0, 0x80};
    static const uint8_t mig[16] = {'s', 'i', 'm', 'm', 'i', 'g', 0x40, 0, 0x80};
    memcpy(card->gpu_uuid, gpu, sizeof(card->gpu_uuid));
    memcpy(card->uuid, card->mig ? mig : gpu, sizeof(card->uuid));
    card->gpu_uuid[15] = card->uuid[15] = (uint8_t)index;
}

void sim_card_spec_uuid_text(const struct sim_card_info *card, char out[CARD_UUID_TEXT])
{
    const uint8_t *u = card->uuid;
    snprintf(out, CARD_UUID_TEXT, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             card->mig ? "MIG" : "GPU", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10],
             u[11], u[12], u[13], u[14], u[15]);
}

static bool read_mig(struct reader *r)
{
    static const char suffix[] = "/mig";
    if (strncasecmp(r->at, suffix, sizeof(suffix) - 1))
        return false;
    r->at += sizeof(suffix) - 1;
    return true;
}

static int read_group(struct reader *r, struct sim_card_spec *spec)
{
    uint64_t count = 1, size;
    const char *start = r->at;
    if (read_number(r, &count) && (*r->at == 'x' || *r->at == 'X')) {
        r->at++;
    } else {
        r->at = start;
        count = 1;
    }
    if (!read_size(r, &size))
        return refuse(r, "not a size");
    if (size < CARD_MIN_CAPACITY || size > CARD_MAX_CAPACITY) {
        r->at = start;
        return refuse(r, "a card has from 4M to 64T");
    }
    if (count == 0 || count > (uint64_t)(CARD_MAX_DEVICES - spec->count)) {
        r->at = start;
        return refuse(r, "from 1 to 16 cards are possible");
    }
    bool mig = read_mig(r);
    for (; count > 0; count--) {
        spec->card[spec->count].mig = mig;
        name_card(&spec->card[spec->count], spec->count);
        spec->card[spec->count++].capacity = size;
    }
    return 0;
}

static int read_cards(struct reader *r, struct sim_card_spec *spec)
{
    if (!strncasecmp(r->at, "none", 4)) {
        r->at += 4;
        return 0;
    }
    for (;;) {
        int err = read_group(r, spec);
        if (err)
            return err;
        if (*r->at != ',')
            return 0;
        r->at++;
    }
}

static int read_setting(struct reader *r, uint64_t *context_bytes)
{
    static const char key[] = "ctx=";
    if (strncmp(r->at, key, sizeof(key) - 1))
        return refuse(r, "the only setting is ctx=SIZE");
    r->at += sizeof(key) - 1;
    const char *start = r->at;
    if (!read_size(r, context_bytes) || *context_bytes > CARD_MAX_CAPACITY) {
        r->at = start;
        return refuse(r, "not a size");
    }
    return 0;
}

static uint64_t default_context(uint64_t capacity)
{
    uint64_t share = capacity / CARD_CONTEXT_SHARE;
    if (share >= CARD_CONTEXT_BYTES)
        return CARD_CONTEXT_BYTES;
    return (share + CARD_GRANULARITY - 1) / CARD_GRANULARITY * CARD_GRANULARITY;
}

int sim_card_spec_parse(const char *text, struct sim_card_spec *out, char *why, size_t why_size)
{
    struct reader r = {.at = text, .why = why, .why_size = why_size};
    struct sim_card_spec spec = {0};
    uint64_t context_bytes = 0;
    bool context_given = false;

    int err = read_cards(&r, &spec);
    while (!err && *r.at == ';') {
        r.at++;
        context_given = true;
        err = read_setting(&r, &context_bytes);
    }
    if (!err && *r.at)
        err = refuse(&r, "unexpected text");
    if (err)
        return err;
    for (int i = 0; i < spec.count; i++)
        spec.card[i].context_bytes = context_given ? context_bytes : default_context(spec.card[i].capacity);
    *out = spec;
    return 0;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    const uint64_t fnv_prime = 0x100000001b3;
    for (int i = 0; i < 8; i++, value >>= 8)
        hash = (hash ^ (value & 0xff)) * fnv_prime;
    return hash;
}

uint64_t sim_card_spec_hash(const struct sim_card_spec *spec)
{
    uint64_t hash = mix(0xcbf29ce484222325, (uint64_t)spec->count);
    for (int i = 0; i < spec->count; i++)
        hash = mix(mix(mix(hash, spec->card[i].capacity), spec->card[i].context_bytes), spec->card[i].mig);
    return hash;
}
