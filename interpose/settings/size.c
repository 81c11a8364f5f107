/* size: see size.h. A decimal fraction is read digit by digit, so that neither the locale nor floating-point
 * rounding changes a limit. */
#include "interpose/settings/size.h"

#include <errno.h>
#include <stdio.h>

#define FRACTION_DIGITS_MAX 6

struct number {
    uint64_t whole;
    uint64_t fraction; /* numerator over scale */
    uint64_t scale;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Reads "12" or "12.5"; *used is the number of characters read. */
static int read_number(const char *text, size_t length, struct number *out, size_t *used)
{
    size_t i = 0;

    *out = (struct number){.scale = 1};
    for (; i < length && is_digit(text[i]); i++) {
        if (__builtin_mul_overflow(out->whole, 10, &out->whole) ||
            __builtin_add_overflow(out->whole, (uint64_t)(text[i] - '0'), &out->whole))
            return -ERANGE;
    }
    if (i == 0)
        return -EINVAL;
    if (i < length && text[i] == '.') {
        size_t first = ++i;

        for (; i < length && is_digit(text[i]); i++) {
            if (i - first >= FRACTION_DIGITS_MAX)
                return -EINVAL;
            out->fraction = out->fraction * 10 + (uint64_t)(text[i] - '0');
            out->scale *= 10;
        }
        if (i == first)
            return -EINVAL;
    }
    *used = i;
    return 0;
}

/* Returns the power of two of a unit ("", "K", "MiB", "gb"), or -1. */
static int unit_shift(const char *text, size_t length)
{
    static const char units[] = "kmgt";

    if (length == 0)
        return 0;
    for (int i = 0; units[i]; i++) {
        if (lower(text[0]) != units[i])
            continue;
        if (length == 1 || (length == 2 && lower(text[1]) == 'b') ||
            (length == 3 && lower(text[1]) == 'i' && lower(text[2]) == 'b'))
            return 10 * (i + 1);
    }
    return length == 1 && lower(text[0]) == 'b' ? 0 : -1;
}

static int parse_percent(const struct number *n, struct size_value *out)
{
    if (n->scale > 10)
        return -EINVAL;
    if (n->whole > 100)
        return -EDOM;
    uint64_t permille = n->whole * 10 + (n->scale == 10 ? n->fraction : 0);
    if (permille == 0 || permille > 1000)
        return -EDOM;
    *out = (struct size_value){.is_percent = true, .permille = (uint32_t)permille};
    return 0;
}

int size_parse(const char *text, size_t length, struct size_value *out)
{
    struct number n;
    size_t used;
    int rc = read_number(text, length, &n, &used);

    if (rc)
        return rc;
    if (length - used == 1 && text[used] == '%')
        return parse_percent(&n, out);
    int shift = unit_shift(text + used, length - used);
    if (shift < 0 || (shift == 0 && n.scale != 1))
        return -EINVAL;
    if (shift && n.whole >> (64 - shift))
        return -ERANGE;
    *out = (struct size_value){.bytes = n.whole << shift};
    /* The fraction is below 10^6 and the shift at most 40: 2^20 * 2^40 fits. */
    if (__builtin_add_overflow(out->bytes, (n.fraction << shift) / n.scale, &out->bytes))
        return -ERANGE;
    return 0;
}

const char *size_why(int rc)
{
    switch (rc) {
    case -ERANGE:
        return "the number is too large";
    case -EDOM:
        return "a share is from 0.1% to 100%";
    default:
        return "not a size";
    }
}

uint64_t size_resolve(const struct size_value *value, uint64_t total)
{
    if (!value->is_percent)
        return value->bytes;
    return total / 1000 * value->permille + total % 1000 * value->permille / 1000;
}

const char *size_format(uint64_t bytes, char buffer[SIZE_TEXT])
{
    static const char units[] = "BKMGT";
    int unit = 0;
    uint64_t whole = bytes, rest = 0;

    while (whole >= 1024 && unit < 4) {
        rest = whole % 1024;
        whole /= 1024;
        unit++;
    }
    const bool has_tenths = whole < 100;
    unsigned tenth = has_tenths ? (unsigned)((rest * 10 + 512) / 1024) : 0;
    if (tenth == 10 || (!has_tenths && rest >= 512)) {
        whole++;
        tenth = 0;
    }
    if (whole == 1024 && unit < 4) {
        whole = 1;
        unit++;
    }
    if (whole > UINT64_MAX >> 40 && unit == 4) /* what is printed can be read again */
        whole--;
    if (unit == 0)
        snprintf(buffer, SIZE_TEXT, "%llu bytes", (unsigned long long)whole);
    else if (tenth)
        snprintf(buffer, SIZE_TEXT, "%llu.%u%c", (unsigned long long)whole, tenth, units[unit]);
    else
        snprintf(buffer, SIZE_TEXT, "%llu%c", (unsigned long long)whole, units[unit]);
    return buffer;
}
