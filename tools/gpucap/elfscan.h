/* elfscan: the dynamic symbols that a shared library defines, read from the file without loading it.
 *
 * Loading would run the library's constructors in this process. The file is untrusted: every offset is
 * checked against the file's size before it is followed. Owns no lock. */
#ifndef GPUCAP_ELFSCAN_H
#define GPUCAP_ELFSCAN_H

#include <stdbool.h>
#include <stddef.h>

struct elfscan {
    const unsigned char *base; /* the mapped file */
    size_t bytes;
    const void *symbols; /* Elf64_Sym[count], possibly unaligned: copied out one by one */
    size_t count;
    const char *names; /* the string table; ends within the file, not necessarily with a zero byte */
    size_t names_bytes;
};

/* Called for each defined symbol that other objects can see. Return false to stop. */
typedef bool elfscan_visit(const char *name, void *arg);

/* Returns 0 or a negative errno; -ENOEXEC if the file is not a 64-bit shared object of this byte order. */
int elfscan_open(struct elfscan *scan, const char *path);
/* The same for bytes in memory, which must outlive the scan; elfscan_close is not needed. */
int elfscan_parse(struct elfscan *scan, const void *bytes, size_t count);
void elfscan_close(struct elfscan *scan);

void elfscan_defined(const struct elfscan *scan, elfscan_visit *visit, void *arg);
/* Copies the text that a data symbol holds. Returns false if there is no such symbol, it holds no text, or
 * `size` is too small. */
bool elfscan_read_string(const struct elfscan *scan, const char *name, char *text, size_t size);

#endif
