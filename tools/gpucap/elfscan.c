/* elfscan: see elfscan.h. Uses the section table (SHT_DYNSYM and its string table): every linker writes one
 * and strip keeps it. Must never follow an offset that it has not checked. Owns no lock.
 */
#include "tools/gpucap/elfscan.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NATIVE_DATA ELFDATA2LSB
#else
#define NATIVE_DATA ELFDATA2MSB
#endif

/* Returns true if `count` items of `size` bytes from `offset` on lie inside the file. */
static bool inside(const struct elfscan *scan, uint64_t offset, uint64_t count, uint64_t size)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return false;
    return offset <= scan->bytes && bytes <= scan->bytes - offset;
}

static bool read_header(const struct elfscan *scan, Elf64_Ehdr *header)
{
    if (scan->bytes < sizeof(*header))
        return false;
    memcpy(header, scan->base, sizeof(*header));
    return !memcmp(header->e_ident, ELFMAG, SELFMAG) && header->e_ident[EI_CLASS] == ELFCLASS64 &&
           header->e_ident[EI_DATA] == NATIVE_DATA && header->e_type == ET_DYN;
}

static bool read_section(const struct elfscan *scan, const Elf64_Ehdr *header, size_t index,
                         Elf64_Shdr *section)
{
    if (index >= header->e_shnum || header->e_shentsize != sizeof(*section) ||
        !inside(scan, header->e_shoff, header->e_shnum, sizeof(*section)))
        return false;
    memcpy(section, scan->base + header->e_shoff + index * sizeof(*section), sizeof(*section));
    return true;
}

static int take_symbols(struct elfscan *scan, const Elf64_Ehdr *header, const Elf64_Shdr *dynsym)
{
    Elf64_Shdr strings;
    if (!read_section(scan, header, dynsym->sh_link, &strings) || strings.sh_type != SHT_STRTAB)
        return -ENOEXEC;
    if (!inside(scan, dynsym->sh_offset, dynsym->sh_size, 1) ||
        !inside(scan, strings.sh_offset, strings.sh_size, 1))
        return -ENOEXEC;
    scan->symbols = scan->base + dynsym->sh_offset;
    scan->count = dynsym->sh_size / sizeof(Elf64_Sym);
    scan->names = (const char *)scan->base + strings.sh_offset;
    scan->names_bytes = strings.sh_size;
    return 0;
}

int elfscan_parse(struct elfscan *scan, const void *bytes, size_t count)
{
    Elf64_Ehdr header;
    Elf64_Shdr section;
    *scan = (struct elfscan){.base = bytes, .bytes = count};
    if (!read_header(scan, &header))
        return -ENOEXEC;
    for (size_t i = 0; i < header.e_shnum; i++) {
        if (!read_section(scan, &header, i, &section))
            return -ENOEXEC;
        if (section.sh_type == SHT_DYNSYM)
            return take_symbols(scan, &header, &section);
    }
    return -ENOEXEC;
}

int elfscan_open(struct elfscan *scan, const char *path)
{
    struct stat st;
    void *base = MAP_FAILED;
    *scan = (struct elfscan){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    int error = fstat(fd, &st) ? -errno : 0;
    if (!error && (!S_ISREG(st.st_mode) || st.st_size <= 0))
        error = -ENOEXEC;
    if (!error)
        base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (!error && base == MAP_FAILED)
        error = -errno;
    close(fd);
    if (error)
        return error;
    error = elfscan_parse(scan, base, (size_t)st.st_size);
    if (error) {
        munmap(base, (size_t)st.st_size);
        *scan = (struct elfscan){0};
    }
    return error;
}

void elfscan_close(struct elfscan *scan)
{
    if (scan->base)
        munmap((void *)scan->base, scan->bytes);
    *scan = (struct elfscan){0};
}

/* The name of a symbol that is defined here and visible outside; NULL for every other one. */
static const char *visible_name(const struct elfscan *scan, size_t index, Elf64_Sym *symbol)
{
    memcpy(symbol, (const unsigned char *)scan->symbols + index * sizeof(*symbol), sizeof(*symbol));
    unsigned bind = ELF64_ST_BIND(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || (bind != STB_GLOBAL && bind != STB_WEAK && bind != STB_GNU_UNIQUE))
        return NULL;
    if (symbol->st_name >= scan->names_bytes)
        return NULL;
    const char *name = scan->names + symbol->st_name;
    if (!*name || !memchr(name, 0, scan->names_bytes - symbol->st_name))
        return NULL;
    return name;
}

void elfscan_defined(const struct elfscan *scan, elfscan_visit *visit, void *arg)
{
    Elf64_Sym symbol;
    for (size_t i = 0; i < scan->count; i++) {
        const char *name = visible_name(scan, i, &symbol);
        if (name && !visit(name, arg))
            return;
    }
}

static bool find_symbol(const struct elfscan *scan, const char *wanted, Elf64_Sym *symbol)
{
    for (size_t i = 0; i < scan->count; i++) {
        const char *name = visible_name(scan, i, symbol);
        if (name && !strcmp(name, wanted))
            return true;
    }
    return false;
}

/* Writes the offset of an address in the file. Returns false if no segment of the file contains it. */
static bool file_offset(const struct elfscan *scan, uint64_t address, uint64_t *offset)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    if (!read_header(scan, &header) || header.e_phentsize != sizeof(segment) ||
        !inside(scan, header.e_phoff, header.e_phnum, sizeof(segment)))
        return false;
    for (size_t i = 0; i < header.e_phnum; i++) {
        memcpy(&segment, scan->base + header.e_phoff + i * sizeof(segment), sizeof(segment));
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
            address - segment.p_vaddr < segment.p_filesz)
            return !__builtin_add_overflow(segment.p_offset, address - segment.p_vaddr, offset);
    }
    return false;
}

bool elfscan_read_string(const struct elfscan *scan, const char *name, char *text, size_t size)
{
    Elf64_Sym symbol;
    uint64_t offset;
    if (!size || !find_symbol(scan, name, &symbol) || ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT)
        return false;
    if (!file_offset(scan, symbol.st_value, &offset) || !inside(scan, offset, symbol.st_size, 1))
        return false;
    size_t length = strnlen((const char *)scan->base + offset, symbol.st_size);
    if (length == symbol.st_size || length >= size)
        return false;
    memcpy(text, scan->base + offset, length + 1);
    return true;
}
