/* functions: the names of the functions in an ELF file, by their place in the file, for call stacks of
 * recordings. The file is untrusted: every offset is checked against the file's size before it is followed.
 * Owns no lock. */
#ifndef GPUCAP_FUNCTIONS_H
#define GPUCAP_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct functions_entry {
    uint64_t start, end; /* virtual addresses */
    uint32_t name;       /* in the table of names */
};

struct functions {
    const unsigned char *base; /* the file */
    size_t bytes;
    bool mapped;
    struct functions_entry *entries; /* by start */
    size_t count;
    const char *names;
    size_t names_bytes;
    uint64_t loads; /* offset of the program headers */
    unsigned load_count;
};

/* Returns false if the file cannot be read, is not a 64-bit ELF file of this byte order, has no names of
 * functions, or was changed after `until_ns` (time of day): then it is not the recorded file. */
bool functions_open(struct functions *functions, const char *path, uint64_t until_ns);
/* The same for bytes in memory, which must outlive it. */
bool functions_parse(struct functions *functions, const void *bytes, size_t count);
void functions_close(struct functions *functions);

#define FUNCTIONS_NAME 128
/* Writes the name of the function at this place in the file. Returns false if there is none. */
bool functions_find(const struct functions *functions, uint64_t offset, char name[FUNCTIONS_NAME]);

#endif
