/* elfslot: see elfslot.h. */
#include "interpose/driver/elfslot.h"

#include <elf.h>
#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/driver/elfsym.h"

#if defined(__x86_64__)
#define SLOT_CALL    R_X86_64_JUMP_SLOT
#define SLOT_ADDRESS R_X86_64_GLOB_DAT
#define SLOT_DATA    R_X86_64_64
#elif defined(__aarch64__)
#define SLOT_CALL    R_AARCH64_JUMP_SLOT
#define SLOT_ADDRESS R_AARCH64_GLOB_DAT
#define SLOT_DATA    R_AARCH64_ABS64
#else
#error "gpucap knows x86_64 and aarch64"
#endif

static bool is_slot(const ElfW(Rela) * relocation, const ElfW(Sym) * symbol)
{
    const uint32_t type = ELF64_R_TYPE(relocation->r_info);

    return (type == SLOT_CALL || type == SLOT_ADDRESS || (type == SLOT_DATA && relocation->r_addend == 0)) &&
           symbol->st_shndx == SHN_UNDEF;
}

/* Visits the slots of one table of relocations: `table` is the tag of its address, `bytes` of its size. */
static void each_of(const struct dl_phdr_info *object, ElfW(Sxword) table, ElfW(Sxword) bytes,
                    void (*visit)(const struct elfslot *slot, void *context), void *context)
{
    const ElfW(Dyn) *dynamic = elfsym_dynamic(object);
    const ElfW(Sym) *symbols = elfsym_table(object->dlpi_addr, dynamic, DT_SYMTAB);
    const char *strings = elfsym_table(object->dlpi_addr, dynamic, DT_STRTAB);
    const ElfW(Rela) *first = elfsym_table(object->dlpi_addr, dynamic, table);

    if (!symbols || !strings || !first)
        return;
    const size_t count = elfsym_value(dynamic, bytes) / sizeof(*first);
    for (size_t i = 0; i < count; i++) {
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(first[i].r_info)];

        if (!is_slot(&first[i], symbol))
            continue;
        struct elfslot slot = {.name = strings + symbol->st_name,
                               .at = (void **)(object->dlpi_addr + first[i].r_offset)};
        slot.value = __atomic_load_n(slot.at, __ATOMIC_ACQUIRE);
        slot.lazy = ELF64_R_TYPE(first[i].r_info) == SLOT_CALL && elfsym_holds(object, slot.value);
        visit(&slot, context);
    }
}

void elfslot_each(const struct dl_phdr_info *object, void (*visit)(const struct elfslot *slot, void *context),
                  void *context)
{
    each_of(object, DT_RELA, DT_RELASZ, visit, context);
    each_of(object, DT_JMPREL, DT_PLTRELSZ, visit, context);
}

/* ---- writing ---- */

/* Returns true if the program headers say that the page is made read-only once the object is loaded. The
 * loader leaves a partial page at the end writable. */
static bool in_relro(const struct dl_phdr_info *object, uintptr_t page, uintptr_t page_bytes)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const uintptr_t start = object->dlpi_addr + segment->p_vaddr;

        if (segment->p_type == PT_GNU_RELRO && page >= (start & ~(page_bytes - 1)) &&
            page < ((start + segment->p_memsz) & ~(page_bytes - 1)))
            return true;
    }
    return false;
}

/* Returns 1 if the word is writable, 0 if not, or a negative errno. The kernel adds 0 to the word, which
 * fails where a store would fault: reading /proc/self/maps would take longer and need a parser. */
static int is_writable(void **word)
{
    const int add_nothing = FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0);

    if (syscall(SYS_futex, word, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, NULL, word, add_nothing) >= 0)
        return 1;
    return errno == EFAULT ? 0 : -errno;
}

/* Returns 0 if the object is loaded, else -EBUSY or another negative errno. The loader makes its pages
 * read-only all at once when it is done; until then they must stay writable for the loading thread. */
static int check_complete(void **word, bool *complete)
{
    const int writable = *complete ? 0 : is_writable(word);

    *complete = writable == 0;
    return writable > 0 ? -EBUSY : writable;
}

static int write_protected(uintptr_t page, uintptr_t page_bytes, const struct elfslot *slot, void *value)
{
    if (mprotect((void *)page, page_bytes, PROT_READ | PROT_WRITE))
        return -errno;
    __atomic_store_n(slot->at, value, __ATOMIC_RELEASE);
    mprotect((void *)page, page_bytes, PROT_READ);
    return 0;
}

int elfslot_write(const struct dl_phdr_info *object, const struct elfslot *slot, void *value, bool *complete)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t page = (uintptr_t)slot->at & ~(page_bytes - 1);

    if (in_relro(object, page, page_bytes)) {
        const int rc = check_complete(slot->at, complete);

        return rc ? rc : write_protected(page, page_bytes, slot, value);
    }
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];

        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_W) &&
            (uintptr_t)slot->at - (object->dlpi_addr + segment->p_vaddr) < segment->p_memsz) {
            __atomic_store_n(slot->at, value, __ATOMIC_RELEASE);
            return 0;
        }
    }
    return -EACCES;
}
