/* functions: see functions.h. */
#include "tools/gpucap/functions.h"

#include "tools/gpucap/words.h"

#include <elf.h>
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MAX (UINT64_C(1) << 24) /* of one file */
#define S           UINT64_C(1000000000)

static bool inside(const struct functions *functions, uint64_t at, uint64_t bytes)
{
    return at <= functions->bytes && bytes <= functions->bytes - at;
}

static bool read_header(const struct functions *functions, Elf64_Ehdr *header)
{
    const unsigned char order = BYTE_ORDER == LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB;

    if (!inside(functions, 0, sizeof(*header)))
        return false;
    memcpy(header, functions->base, sizeof(*header));
    return !memcmp(header->e_ident, ELFMAG, SELFMAG) && header->e_ident[EI_CLASS] == ELFCLASS64 &&
           header->e_ident[EI_DATA] == order;
}

static bool section_at(const struct functions *functions, const Elf64_Ehdr *header, unsigned index,
                       Elf64_Shdr *section)
{
    const uint64_t at = header->e_shoff + (uint64_t)index * sizeof(*section);

    if (header->e_shentsize != sizeof(*section) || index >= header->e_shnum || at < header->e_shoff ||
        !inside(functions, at, sizeof(*section)))
        return false;
    memcpy(section, functions->base + at, sizeof(*section));
    return section->sh_type == SHT_NOBITS || inside(functions, section->sh_offset, section->sh_size);
}

/* Finds the table of all symbols, or else that of exported ones. */
static bool find_table(const struct functions *functions, const Elf64_Ehdr *header, Elf64_Shdr *table)
{
    Elf64_Shdr section;
    bool found = false;

    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (!section_at(functions, header, i, &section) ||
            (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM))
            continue;
        if (found && section.sh_type == SHT_DYNSYM)
            continue;
        *table = section;
        found = true;
    }
    return found;
}

static int by_start(const void *a, const void *b)
{
    const struct functions_entry *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->name > y->name) - (x->name < y->name);
}

static bool take_symbols(struct functions *functions, const Elf64_Shdr *table)
{
    const uint64_t count = table->sh_size / sizeof(Elf64_Sym);

    if (count > ENTRIES_MAX)
        return false;
    functions->entries = calloc(count + 1, sizeof(*functions->entries));
    if (!functions->entries)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        Elf64_Sym symbol;

        memcpy(&symbol, functions->base + table->sh_offset + i * sizeof(symbol), sizeof(symbol));
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF || !symbol.st_size ||
            symbol.st_name >= functions->names_bytes || symbol.st_size > UINT64_MAX - symbol.st_value)
            continue;
        functions->entries[functions->count++] =
            (struct functions_entry){symbol.st_value, symbol.st_value + symbol.st_size, symbol.st_name};
    }
    if (functions->count)
        qsort(functions->entries, functions->count, sizeof(*functions->entries), by_start);
    return functions->count > 0;
}

bool functions_parse(struct functions *functions, const void *bytes, size_t count)
{
    Elf64_Ehdr header;
    Elf64_Shdr table = {0}, names;

    memset(functions, 0, sizeof(*functions));
    functions->base = bytes;
    functions->bytes = count;
    if (!read_header(functions, &header) || !find_table(functions, &header, &table) ||
        !section_at(functions, &header, table.sh_link, &names) || names.sh_type != SHT_STRTAB)
        return false;
    functions->names = (const char *)functions->base + names.sh_offset;
    functions->names_bytes = names.sh_size;
    if (header.e_phentsize == sizeof(Elf64_Phdr) &&
        inside(functions, header.e_phoff, (uint64_t)header.e_phnum * sizeof(Elf64_Phdr))) {
        functions->loads = header.e_phoff;
        functions->load_count = header.e_phnum;
    }
    if (take_symbols(functions, &table))
        return true;
    free(functions->entries);
    functions->entries = NULL;
    return false;
}

bool functions_open(struct functions *functions, const char *path, uint64_t until_ns)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat stat;
    void *bytes = MAP_FAILED;

    memset(functions, 0, sizeof(*functions));
    if (file < 0)
        return false;
    if (fstat(file, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size > 0 &&
        (uint64_t)stat.st_mtim.tv_sec <= until_ns / S)
        bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (bytes == MAP_FAILED)
        return false;
    if (!functions_parse(functions, bytes, (size_t)stat.st_size)) {
        munmap(bytes, (size_t)stat.st_size);
        return false;
    }
    functions->mapped = true;
    return true;
}

void functions_close(struct functions *functions)
{
    free(functions->entries);
    if (functions->mapped)
        munmap((void *)(uintptr_t)functions->base, functions->bytes);
    memset(functions, 0, sizeof(*functions));
}

/* Writes the address of an offset of the file when it is loaded. */
static bool address_of(const struct functions *functions, uint64_t offset, uint64_t *address)
{
    for (unsigned i = 0; i < functions->load_count; i++) {
        Elf64_Phdr load;

        memcpy(&load, functions->base + functions->loads + (uint64_t)i * sizeof(load), sizeof(load));
        if (load.p_type != PT_LOAD || offset < load.p_offset || offset - load.p_offset >= load.p_filesz)
            continue;
        *address = load.p_vaddr + (offset - load.p_offset);
        return true;
    }
    return false;
}

bool functions_find(const struct functions *functions, uint64_t offset, char name[FUNCTIONS_NAME])
{
    size_t low = 0, high = functions->count;
    uint64_t address;

    if (!address_of(functions, offset, &address))
        return false;
    while (low < high) { /* the last function that begins at or before the address */
        const size_t middle = low + (high - low) / 2;

        if (functions->entries[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low || address >= functions->entries[low - 1].end)
        return false;
    const char *from = functions->names + functions->entries[low - 1].name;
    const size_t room = functions->names_bytes - functions->entries[low - 1].name;
    const size_t length = strnlen(from, room < FUNCTIONS_NAME - 1 ? room : FUNCTIONS_NAME - 1);
    memcpy(name, from, length);
    name[length] = '\0';
    words_clean(name);
    return *name;
}
