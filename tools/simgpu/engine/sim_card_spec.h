/* sim_card_spec: reads GPUCAP_SIM, the description of the simulated cards.
 *
 *   spec     = cards { ";" setting }        "2x16G;ctx=64M"
 *   cards    = "none" | group { "," group } "none" is a machine without a card
 *   group    = [ count "x" ] size [ "/mig" ] "2x16G", "24G"; "/mig": each is a MIG instance
 *   setting  = "ctx=" size                  bytes that one CUDA context takes; 0 is allowed
 *   size     = digits [ "K" | "M" | "G" | "T" [ "iB" | "B" ] ]   powers of 1024, case does not matter
 *
 * Pure: no lock, no allocation, no environment. Never reads past the end of the text and never overflows, for
 * any text.
 */
#ifndef SIMGPU_CARD_SPEC_H
#define SIMGPU_CARD_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CARD_MAX_DEVICES  16
#define CARD_UUID_TEXT    48 /* room for a UUID as NVML writes it */
#define CARD_SPEC_DEFAULT "1x16G"
#define CARD_MIN_CAPACITY ((uint64_t)4 << 20)
#define CARD_MAX_CAPACITY ((uint64_t)1 << 46)
#define CARD_CONTEXT_BYTES                                                                                   \
    ((uint64_t)518 << 20)     /* of one context, by NVML on an H200, driver 580 (measured) */
#define CARD_CONTEXT_SHARE 16 /* a context takes at most 1/16 of a small card */
#define CARD_GRANULARITY   ((uint64_t)2 << 20)

struct sim_card_info {
    uint8_t uuid[16];     /* derived from the index, so that it is the same in every process */
    uint8_t gpu_uuid[16]; /* of the whole GPU: differs from .uuid if the card is a MIG instance */
    bool mig;
    uint64_t capacity;      /* bytes */
    uint64_t context_bytes; /* of one CUDA context: 518 MiB, or 1/16 of a small card, or ctx=SIZE */
};

struct sim_card_spec {
    int count;
    struct sim_card_info card[CARD_MAX_DEVICES];
};

/* Parses the text into *out. Returns 0, or -EINVAL with the reason in why and *out unchanged. */
int sim_card_spec_parse(const char *text, struct sim_card_spec *out, char *why, size_t why_size);

/* Writes a card's UUID as NVML does: "GPU-..." or "MIG-...". */
void sim_card_spec_uuid_text(const struct sim_card_info *card, char out[CARD_UUID_TEXT]);

/* Returns a hash that is equal for specifications of the same cards, however they are written. */
uint64_t sim_card_spec_hash(const struct sim_card_spec *spec);

#endif
