/* size: byte counts and percentages as people write them. Pure: no state, no locks, no allocation.
 *
 * "8G", "512M", "1.5GiB", "4096" are bytes (K, M, G, T are powers of 1024, an "iB" or "B" after them is
 * accepted, case does not matter). "50%" and "12.5%" are parts of something the caller knows.
 */
#ifndef GPUCAP_SIZE_H
#define GPUCAP_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIZE_FORM "a size such as 8G, 512M or 50%"

struct size_value {
    bool is_percent;
    uint64_t bytes;    /* when not a percentage */
    uint32_t permille; /* tenths of a percent: 1 to 1000 */
};

/* Parses the whole of [text, text + length). Returns 0, -EINVAL (not a size), -ERANGE (does not fit) or -EDOM
 * (not a valid percentage). size_why puts these into words. */
int size_parse(const char *text, size_t length, struct size_value *out);
const char *size_why(int rc);

/* Returns the bytes that a value means as a part of `total`. */
uint64_t size_resolve(const struct size_value *value, uint64_t total);

/* Writes bytes for people to read ("4G", "518M", "1.5G", "123K"), rounded and terminated. Returns buffer. */
#define SIZE_TEXT 32
const char *size_format(uint64_t bytes, char buffer[SIZE_TEXT]);

#endif
