/* elfslot: the slots of an object are found, bound or not, and written; what is read-only is so afterwards.
 */
#include "interpose/driver/elfslot.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unity.h>

#define SLOTS_MAX 8
#define STAND_IN  4242

void setUp(void) {}
void tearDown(void) {}

/* One object and its slots of getppid. */
struct part {
    struct dl_phdr_info object;
    struct elfslot slots[SLOTS_MAX];
    int count;
    const void *inside;
    pid_t (*call)(void), (*by_address)(void);
};

static pid_t stand_in(void)
{
    return STAND_IN;
}

static void keep(const struct elfslot *slot, void *context)
{
    struct part *part = context;

    if (!strcmp(slot->name, "getppid") && part->count < SLOTS_MAX)
        part->slots[part->count++] = *slot;
}

static int find(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct part *part = argument;

    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];

        if (segment->p_type == PT_LOAD &&
            (uintptr_t)part->inside - (object->dlpi_addr + segment->p_vaddr) < segment->p_memsz) {
            part->object = *object;
            elfslot_each(object, keep, part);
            return 1;
        }
    }
    return 0;
}

static void look(struct part *part)
{
    part->count = 0;
    TEST_ASSERT_EQUAL_INT(1, dl_iterate_phdr(find, part));
}

static void *load(const char *file, struct part *part)
{
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);

    TEST_ASSERT_NOT_NULL_MESSAGE(library, dlerror());
    *part = (struct part){.call = (pid_t(*)(void))dlsym(library, "part_call"),
                          .by_address = (pid_t(*)(void))dlsym(library, "part_by_address")};
    part->inside = (const void *)part->call;
    look(part);
    return library;
}

/* "r--p" and so on, as the kernel says. */
static void protection_of(const void *address, char text[5])
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    uintptr_t start, end;

    TEST_ASSERT_NOT_NULL(maps);
    strcpy(text, "none");
    while (fgets(line, sizeof(line), maps)) {
        char rights[5];

        if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) == 3 && (uintptr_t)address >= start &&
            (uintptr_t)address < end)
            strcpy(text, rights);
    }
    fclose(maps);
}

static void write_all(struct part *part)
{
    bool complete = false;

    for (int i = 0; i < part->count; i++) {
        char before[5], after[5];

        protection_of(part->slots[i].at, before);
        TEST_ASSERT_EQUAL_INT(0, elfslot_write(&part->object, &part->slots[i], (void *)stand_in, &complete));
        protection_of(part->slots[i].at, after);
        TEST_ASSERT_EQUAL_STRING(before, after);
    }
    TEST_ASSERT_EQUAL_INT(STAND_IN, part->call());
    TEST_ASSERT_EQUAL_INT(STAND_IN, part->by_address());
}

static void test_slots_that_are_read_only_are_written(void)
{
    struct part part;
    char rights[5];
    int read_only = 0;
    void *library = load(ELFSLOT_NOW, &part);

    TEST_ASSERT_EQUAL_INT(2, part.count);
    for (int i = 0; i < part.count; i++) {
        TEST_ASSERT_FALSE(part.slots[i].lazy);
        protection_of(part.slots[i].at, rights);
        read_only += !strcmp(rights, "r--p");
    }
    TEST_ASSERT_TRUE(read_only > 0);
    write_all(&part);
    dlclose(library);
}

static void test_slots_that_are_not_bound_yet_are_written(void)
{
    struct part part;
    int lazy = 0;
    void *library = load(ELFSLOT_LAZY, &part);

    TEST_ASSERT_EQUAL_INT(2, part.count);
    for (int i = 0; i < part.count; i++)
        lazy += part.slots[i].lazy;
    TEST_ASSERT_EQUAL_INT(1, lazy);
    write_all(&part);
    dlclose(library);
}

static void test_a_slot_that_was_called_through_is_bound(void)
{
    struct part part;
    void *library = load(ELFSLOT_LAZY, &part);

    TEST_ASSERT_EQUAL_INT(getppid(), part.call());
    look(&part);
    for (int i = 0; i < part.count; i++)
        TEST_ASSERT_FALSE(part.slots[i].lazy);
    dlclose(library);
}

static bool refuse;
int __real_mprotect(void *address, size_t bytes, int protection);
int __wrap_mprotect(void *address, size_t bytes, int protection);

int __wrap_mprotect(void *address, size_t bytes, int protection)
{
    if (refuse) {
        errno = EACCES;
        return -1;
    }
    return __real_mprotect(address, bytes, protection);
}

/* The slot of a part whose page is read-only. */
static const struct elfslot *protected_slot(const struct part *part)
{
    for (int i = 0; i < part->count; i++) {
        char rights[5];

        protection_of(part->slots[i].at, rights);
        if (!strcmp(rights, "r--p"))
            return &part->slots[i];
    }
    TEST_FAIL_MESSAGE("no slot is read-only");
    return NULL;
}

static void test_memory_that_cannot_be_made_writable_is_left_alone(void)
{
    struct part part;
    void *library = load(ELFSLOT_NOW, &part);
    const struct elfslot *slot = protected_slot(&part);

    bool complete = false;
    refuse = true;
    const int rc = elfslot_write(&part.object, slot, (void *)stand_in, &complete);
    refuse = false;
    TEST_ASSERT_EQUAL_INT(-EACCES, rc);
    TEST_ASSERT_EQUAL_PTR(slot->value, *slot->at);
    dlclose(library);
}

/* The loader has not made it read-only yet: it may still want to write there. */
static void test_an_object_that_is_still_being_loaded_is_left_alone(void)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct part part;
    void *library = load(ELFSLOT_NOW, &part);
    const struct elfslot *slot = protected_slot(&part);
    void *page = (void *)((uintptr_t)slot->at & ~(page_bytes - 1));
    char rights[5];
    bool complete = false;

    TEST_ASSERT_EQUAL_INT(0, mprotect(page, page_bytes, PROT_READ | PROT_WRITE));
    TEST_ASSERT_EQUAL_INT(-EBUSY, elfslot_write(&part.object, slot, (void *)stand_in, &complete));
    TEST_ASSERT_EQUAL_PTR(slot->value, *slot->at);
    protection_of(slot->at, rights);
    TEST_ASSERT_EQUAL_STRING("rw-p", rights);
    TEST_ASSERT_FALSE(complete);
    mprotect(page, page_bytes, PROT_READ);
    dlclose(library);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_slots_that_are_read_only_are_written);
    RUN_TEST(test_slots_that_are_not_bound_yet_are_written);
    RUN_TEST(test_a_slot_that_was_called_through_is_bound);
    RUN_TEST(test_memory_that_cannot_be_made_writable_is_left_alone);
    RUN_TEST(test_an_object_that_is_still_being_loaded_is_left_alone);
    return UNITY_END();
}
