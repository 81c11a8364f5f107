/* rules: see rules.h. */
#include "interpose/settings/rules.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define ORDINAL_MAX 1023
#define UUID_PREFIX 4 /* "GPU-" or "MIG-" */

static int refuse(const char **why, const char *reason)
{
    *why = reason;
    return -EINVAL;
}

static int parse_key(const char *key, size_t length, struct rules_rule *rule, const char **why)
{
    if (length >= UUID_PREFIX &&
        (!strncasecmp(key, "GPU-", UUID_PREFIX) || !strncasecmp(key, "MIG-", UUID_PREFIX))) {
        if (length == UUID_PREFIX || length >= RULES_UUID_TEXT)
            return refuse(why, "a UUID looks like GPU-09e4f000-9ce7-42ee-4029-20a51f94f29d");
        rule->scope = RULES_UUID;
        memcpy(rule->uuid, key, length);
        rule->uuid[length] = '\0';
        return 0;
    }
    int ordinal = 0;
    for (size_t i = 0; i < length; i++) {
        if (key[i] < '0' || key[i] > '9' || (ordinal = ordinal * 10 + (key[i] - '0')) > ORDINAL_MAX)
            return refuse(why, "a device is a number or a UUID");
    }
    if (length == 0)
        return refuse(why, "a device is missing before '='");
    rule->scope = RULES_ORDINAL;
    rule->ordinal = ordinal;
    return 0;
}

static int parse_value(const char *text, size_t length, struct rules_rule *rule, const char **why)
{
    if (length == 4 && !strncasecmp(text, "none", 4)) {
        rule->unlimited = true;
        return 0;
    }
    const int rc = size_parse(text, length, &rule->size);
    if (rc)
        return refuse(why, size_why(rc));
    return 0;
}

static bool same_scope(const struct rules_rule *a, const struct rules_rule *b)
{
    if (a->scope != b->scope)
        return false;
    if (a->scope == RULES_ORDINAL)
        return a->ordinal == b->ordinal;
    return a->scope == RULES_EVERY || !strcasecmp(a->uuid, b->uuid);
}

static void trim(const char **text, size_t *length)
{
    while (*length && (**text == ' ' || **text == '\t'))
        (*text)++, (*length)--;
    while (*length && ((*text)[*length - 1] == ' ' || (*text)[*length - 1] == '\t'))
        (*length)--;
}

static int parse_rule(const char *text, size_t length, struct rules *out, const char **why)
{
    struct rules_rule rule = {.scope = RULES_EVERY};

    trim(&text, &length);
    const char *equals = memchr(text, '=', length);
    if (equals) {
        const char *key = text;
        size_t key_length = (size_t)(equals - text);

        trim(&key, &key_length);
        if (parse_key(key, key_length, &rule, why))
            return -EINVAL;
        length -= (size_t)(equals + 1 - text);
        text = equals + 1;
        trim(&text, &length);
    }
    if (parse_value(text, length, &rule, why))
        return -EINVAL;
    for (int i = 0; i < out->count; i++) {
        if (same_scope(&out->rules[i], &rule))
            return refuse(why, "the same device is named twice");
    }
    if (out->count == RULES_MAX_RULES)
        return refuse(why, "too many devices");
    out->rules[out->count++] = rule;
    return 0;
}

static int parse_all(const char *text, struct rules *out, const char **why)
{
    out->count = 0;
    for (;;) {
        size_t length = strcspn(text, ",");

        if (parse_rule(text, length, out, why))
            return -EINVAL;
        if (!text[length])
            return 0;
        text += length + 1;
    }
}

static bool is_zero(const struct rules_rule *rule)
{
    return !rule->unlimited && !rule->size.is_percent && rule->size.bytes == 0;
}

int rules_parse(const char *text, struct rules *out, const char **why)
{
    int rc = parse_all(text, out, why);

    for (int i = 0; rc == 0 && i < out->count; i++)
        rc = is_zero(&out->rules[i]) ? refuse(why, RULES_ZERO) : 0;
    return rc;
}

int rules_parse_bound(const char *text, struct rules *out, const char **why)
{
    const int rc = parse_all(text, out, why);

    for (int i = 0; i < out->count; i++)
        out->rules[i].unlimited = out->rules[i].unlimited || is_zero(&out->rules[i]);
    return rc;
}

bool rules_name_cards(const struct rules *limits)
{
    for (int i = 0; i < limits->count; i++) {
        if (limits->rules[i].scope != RULES_EVERY)
            return true;
    }
    return false;
}

bool rules_use_ordinals(const struct rules *limits)
{
    for (int i = 0; i < limits->count; i++) {
        if (limits->rules[i].scope == RULES_ORDINAL)
            return true;
    }
    return false;
}

bool rules_names(const char *rule, size_t length, const char *uuid)
{
    return length >= UUID_PREFIX && strlen(uuid) >= UUID_PREFIX &&
           !strncasecmp(rule + UUID_PREFIX, uuid + UUID_PREFIX, length - UUID_PREFIX);
}

static bool applies(const struct rules_rule *rule, int ordinal, const char *uuid)
{
    switch (rule->scope) {
    case RULES_UUID:
        return rules_names(rule->uuid, strlen(rule->uuid), uuid);
    case RULES_ORDINAL:
        return rule->ordinal == ordinal;
    default:
        return true;
    }
}

/* Returns true if `a` is more exact: UUID before number before every card; of two UUIDs the longer one. */
static bool more_exact(const struct rules_rule *a, const struct rules_rule *b)
{
    if (a->scope != b->scope)
        return a->scope > b->scope;
    return a->scope == RULES_UUID && strlen(a->uuid) > strlen(b->uuid);
}

const struct rules_rule *rules_best(const struct rules *limits, int ordinal, const char *uuid)
{
    const struct rules_rule *best = NULL;

    for (int i = 0; i < limits->count; i++) {
        const struct rules_rule *rule = &limits->rules[i];

        if (applies(rule, ordinal, uuid) && (!best || more_exact(rule, best)))
            best = rule;
    }
    return best;
}

uint64_t rules_for(const struct rules *limits, int ordinal, const char *uuid, uint64_t total)
{
    const struct rules_rule *best = rules_best(limits, ordinal, uuid);

    if (!best || best->unlimited)
        return RULES_UNLIMITED;
    uint64_t bytes = size_resolve(&best->size, total);
    return bytes < total ? bytes : total;
}
