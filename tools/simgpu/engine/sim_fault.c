/* sim_fault: the fault script. See sim_fault.h. */
#include "tools/simgpu/engine/sim_fault.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CODE_MAX   999
#define MS_MAX     10000
#define SHOWN      60 /* characters of a bad rule in the message */
#define NTH_DIGITS 18 /* a number of so many digits fits into 64 bits */

struct part {
    const char *text;
    size_t length;
};

static struct part trimmed(const char *text, size_t length)
{
    while (length > 0 && isspace((unsigned char)text[0])) {
        text++;
        length--;
    }
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    return (struct part){text, length};
}

static bool is(struct part part, const char *word)
{
    return part.length == strlen(word) && memcmp(part.text, word, part.length) == 0;
}

/* Splits at the first `separator`: *head gets the part before it, *rest the part behind. Returns false if
 * there is none. */
static bool cut(struct part *rest, char separator, struct part *head)
{
    const char *at = memchr(rest->text, separator, rest->length);
    size_t length;

    if (!at)
        return false;
    length = (size_t)(at - rest->text);
    *head = trimmed(rest->text, length);
    *rest = trimmed(at + 1, rest->length - length - 1);
    return true;
}

static bool number(struct part part, uint64_t *out)
{
    size_t i;

    if (part.length == 0 || part.length > NTH_DIGITS)
        return false;
    *out = 0;
    for (i = 0; i < part.length; i++) {
        if (!isdigit((unsigned char)part.text[i]))
            return false;
        *out = *out * 10 + (uint64_t)(part.text[i] - '0');
    }
    return true;
}

static bool is_slow(struct part part, uint64_t *ms)
{
    return part.length > 2 && memcmp(part.text, "ms", 2) == 0 &&
           number((struct part){part.text + 2, part.length - 2}, ms) && *ms >= 1 && *ms <= MS_MAX;
}

static const char *parse_rule(struct part part, sim_fault_lookup *lookup, struct sim_fault_rule *rule)
{
    struct part name, when;
    uint64_t code;

    if (!cut(&part, ':', &name) || !cut(&part, '=', &when))
        return "is not NAME:WHEN=WHAT";
    rule->entry = is(name, "*") ? FAULT_ANY : lookup(name.text, name.length);
    if (rule->entry < 0 && !is(name, "*"))
        return "names no entry point";
    rule->nth = 0;
    if (!is(when, "*") && (!number(when, &rule->nth) || rule->nth == 0))
        return "needs a call number from 1, or *, behind the colon";
    rule->code = 0;
    if (is(part, "kill")) {
        rule->action = FAULT_KILL;
    } else if (is(part, "kill-after")) {
        rule->action = FAULT_KILL_AFTER;
    } else if (is(part, "cancel")) {
        rule->action = FAULT_CANCEL;
    } else if (number(part, &code) && code >= 1 && code <= CODE_MAX) {
        rule->action = FAULT_RETURN;
        rule->code = (int)code;
    } else if (is_slow(part, &code)) {
        rule->action = FAULT_SLOW;
        rule->code = (int)code;
    } else {
        return "needs an error code (1 to 999), kill, kill-after, cancel or msN behind the equals sign";
    }
    return NULL;
}

static int complain(char *why, size_t why_size, struct part part, const char *problem)
{
    snprintf(why, why_size, "\"%.*s\" %s", (int)(part.length > SHOWN ? SHOWN : part.length), part.text,
             problem);
    return -EINVAL;
}

int sim_fault_parse(struct sim_fault_script *out, const char *text, sim_fault_lookup *lookup, char *why,
                    size_t why_size)
{
    struct part rest = trimmed(text, strlen(text)), rule;
    struct sim_fault_script script = {.count = 0};
    bool more = rest.length > 0;

    while (more) {
        const char *problem;

        more = cut(&rest, ',', &rule);
        if (!more)
            rule = rest;
        if (script.count == FAULT_MAX_RULES)
            return complain(why, why_size, rule, "is one rule too many (at most 64)");
        problem = parse_rule(rule, lookup, &script.rules[script.count]);
        if (problem)
            return complain(why, why_size, rule, problem);
        script.count++;
    }
    *out = script;
    return 0;
}

const struct sim_fault_rule *sim_fault_match(const struct sim_fault_script *script, int entry, uint64_t nth,
                                             uint64_t nth_of_all)
{
    size_t i;

    for (i = 0; i < script->count; i++) {
        const struct sim_fault_rule *rule = &script->rules[i];
        uint64_t count = rule->entry == FAULT_ANY ? nth_of_all : nth;

        if ((rule->entry == FAULT_ANY || rule->entry == entry) && (rule->nth == 0 || rule->nth == count))
            return rule;
    }
    return NULL;
}
