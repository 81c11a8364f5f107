/* elfsym: which definition of a name is found, in objects whose tables the test has made itself. */
#include "interpose/driver/elfsym.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#define OBJECTS 4
#define SYMBOLS 6
#define FIRST   1 /* the symbol with which the hash table begins */
#define HIDDEN  0x8000

/* An object of one segment: everything in it, in one bucket. */
static struct image {
    ElfW(Phdr) headers[2];
    ElfW(Dyn) dynamic[6];
    ElfW(Sym) symbols[SYMBOLS];
    uint16_t versions[SYMBOLS];
    struct {
        uint32_t buckets, first, bloom, shift;
        uint64_t filter;
        uint32_t bucket, chain[SYMBOLS - FIRST];
    } hash;
    char strings[128];
    char code[64]; /* symbol i is defined at code + i */
} images[OBJECTS];
static struct dl_phdr_info objects[OBJECTS];
static int object_count, symbol_count[OBJECTS];

int __wrap_dl_iterate_phdr(int (*visit)(struct dl_phdr_info *object, size_t size, void *argument),
                           void *argument);
int __wrap_dl_iterate_phdr(int (*visit)(struct dl_phdr_info *object, size_t size, void *argument),
                           void *argument)
{
    int rc = 0;

    for (int i = 0; i < object_count && rc == 0; i++)
        rc = visit(&objects[i], sizeof(objects[i]), argument);
    return rc;
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;

    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static ElfW(Addr) address_of(const void *pointer)
{
    return (ElfW(Addr))(uintptr_t)pointer;
}

/* Adds an object without symbols. `offsets`: the loader has left its table as it is in the file. */
static int add_object(const char *path, bool offsets)
{
    const int i = object_count++;
    struct image *image = &images[i];
    const ElfW(Addr) base = address_of(image), start = offsets ? base : 0;

    *image =
        (struct image){.headers = {{.p_type = PT_LOAD, .p_vaddr = 0, .p_memsz = sizeof(*image)},
                                   {.p_type = PT_DYNAMIC, .p_vaddr = address_of(image->dynamic) - base}},
                       .dynamic = {{.d_tag = DT_SYMTAB, .d_un.d_ptr = address_of(image->symbols) - start},
                                   {.d_tag = DT_STRTAB, .d_un.d_ptr = address_of(image->strings) - start},
                                   {.d_tag = DT_GNU_HASH, .d_un.d_ptr = address_of(&image->hash) - start},
                                   {.d_tag = DT_VERSYM, .d_un.d_ptr = address_of(image->versions) - start},
                                   {.d_tag = DT_NULL}},
                       .hash = {.buckets = 1, .first = FIRST, .bloom = 1}};
    objects[i] = (struct dl_phdr_info){
        .dlpi_addr = base, .dlpi_name = path, .dlpi_phdr = image->headers, .dlpi_phnum = 2};
    symbol_count[i] = FIRST;
    return i;
}

/* Adds a symbol that is found under the hash of `hashed`. Returns its index. */
static int add_symbol(int object, const char *name, const char *hashed, bool defined, uint16_t version)
{
    struct image *image = &images[object];
    const int at = symbol_count[object]++;
    const size_t used = 16 * (size_t)at;

    strcpy(image->strings + used, name);
    image->symbols[at] = (ElfW(Sym)){.st_name = (uint32_t)used,
                                     .st_shndx = defined ? 1 : SHN_UNDEF,
                                     .st_value = address_of(&image->code[at]) - address_of(image)};
    image->versions[at] = version;
    image->hash.bucket = FIRST;
    if (at > FIRST)
        image->hash.chain[at - 1 - FIRST] &= ~1u;
    image->hash.chain[at - FIRST] = hash_of(hashed) | 1; /* the last of its bucket */
    return at;
}

static void define(int object, const char *name)
{
    add_symbol(object, name, name, true, 2);
}

void setUp(void)
{
    object_count = 0;
}

void tearDown(void) {}

static void test_the_default_version_is_found(void)
{
    const int i = add_object("/lib/libx.so.1", false);

    const int hidden = add_symbol(i, "alpha", "alpha", true, 2 | HIDDEN);
    TEST_ASSERT_EQUAL_PTR(&images[i].code[hidden], elfsym_defined_in(&objects[i], "alpha"));
    const int newest = add_symbol(i, "alpha", "alpha", true, 3);
    add_symbol(i, "alpha", "alpha", true, 4 | HIDDEN);
    TEST_ASSERT_EQUAL_PTR(&images[i].code[newest], elfsym_defined_in(&objects[i], "alpha"));
    images[i].dynamic[3].d_tag = DT_NULL; /* without versions the first one counts */
    TEST_ASSERT_EQUAL_PTR(&images[i].code[hidden], elfsym_defined_in(&objects[i], "alpha"));
}

static void test_what_an_object_only_uses_it_does_not_define(void)
{
    const int i = add_object("/lib/libx.so.1", false);

    add_symbol(i, "alpha", "alpha", false, 2);
    TEST_ASSERT_NULL(elfsym_defined_in(&objects[i], "alpha"));
    const int defined = add_symbol(i, "alpha", "alpha", true, 2);
    TEST_ASSERT_EQUAL_PTR(&images[i].code[defined], elfsym_defined_in(&objects[i], "alpha"));
}

static void test_names_are_compared_whole(void)
{
    const int i = add_object("/lib/libx.so.1", false);

    add_symbol(i, "bet", "beta", true, 2);
    add_symbol(i, "betamax", "beta", true, 2);
    TEST_ASSERT_NULL(elfsym_defined_in(&objects[i], "beta"));
    const int last = add_symbol(i, "beta", "beta", true, 2);
    TEST_ASSERT_EQUAL_PTR(&images[i].code[last], elfsym_defined_in(&objects[i], "beta"));
    TEST_ASSERT_NULL(elfsym_defined_in(&objects[i], "gamma"));
}

static void test_tables_may_be_offsets(void)
{
    const int i = add_object("/lib/libx.so.1", true);

    define(i, "alpha");
    TEST_ASSERT_EQUAL_PTR(&images[i].code[FIRST], elfsym_defined_in(&objects[i], "alpha"));
}

static void test_an_object_may_have_no_tables(void)
{
    const int i = add_object("/lib/libx.so.1", false);

    define(i, "alpha");
    images[i].hash.buckets = 0;
    TEST_ASSERT_NULL(elfsym_defined_in(&objects[i], "alpha"));
    images[i].hash.buckets = 1;
    images[i].hash.bucket = 0; /* an empty one */
    TEST_ASSERT_NULL(elfsym_defined_in(&objects[i], "alpha"));
    images[i].hash.bucket = FIRST;
    images[i].dynamic[2].d_tag = DT_NULL; /* no hash */
    TEST_ASSERT_NULL(elfsym_defined_in(&objects[i], "alpha"));
    objects[i].dlpi_phnum = 1;
    TEST_ASSERT_NULL(elfsym_dynamic(&objects[i]));
    TEST_ASSERT_NULL(elfsym_defined_in(&objects[i], "alpha"));
}

static void test_an_object_holds_its_segments_from_first_to_last_byte(void)
{
    const int i = add_object("/lib/libx.so.1", false);
    const char *start = (const char *)&images[i];

    TEST_ASSERT_TRUE(elfsym_holds(&objects[i], start));
    TEST_ASSERT_TRUE(elfsym_holds(&objects[i], start + sizeof(images[i]) - 1));
    TEST_ASSERT_FALSE(elfsym_holds(&objects[i], start + sizeof(images[i])));
    TEST_ASSERT_FALSE(elfsym_holds(&objects[i], start - 1));
    images[i].headers[0].p_type = PT_NOTE;
    TEST_ASSERT_FALSE(elfsym_holds(&objects[i], start));
}

static void test_a_library_is_known_by_the_beginning_of_its_file_name(void)
{
    define(add_object("/opt/libcuda.so.d/libother.so", false), "cuNew");
    TEST_ASSERT_FALSE(elfsym_defines("libcuda.so", "cuNew"));
    define(add_object("/opt/lib/libcuda.so.580.1", false), "cuNew");
    TEST_ASSERT_TRUE(elfsym_defines("libcuda.so", "cuNew"));
    TEST_ASSERT_FALSE(elfsym_defines("libcuda.so", "cuOld"));
    TEST_ASSERT_FALSE(elfsym_defines("libcuda.so.580.12", "cuNew"));
    define(add_object("libcuda.so.2", false), "cuOld"); /* without a folder */
    TEST_ASSERT_TRUE(elfsym_defines("libcuda.so", "cuOld"));
}

static void test_the_next_definition_is_the_first_after_the_caller(void)
{
    const int before = add_object("/bin/before", false), caller = add_object("/bin/caller", false);
    const int us = add_object("/lib/libgpucap.so", false), after = add_object("/lib/libcuda.so.1", false);
    const void *in_caller = images[caller].code, *ours = images[us].code;

    define(before, "f");
    define(caller, "f");
    define(us, "f");
    struct elfsym_next next = elfsym_after(in_caller, ours, "f");
    TEST_ASSERT_TRUE(next.known && !next.start_is_later && !next.is_earlier);
    TEST_ASSERT_NULL_MESSAGE(next.address, "neither the caller's own, nor an earlier one, nor ours");

    define(after, "f");
    next = elfsym_after(in_caller, ours, "f");
    TEST_ASSERT_EQUAL_PTR(&images[after].code[FIRST], next.address);
    TEST_ASSERT_TRUE(next.known && !next.start_is_later && !next.is_earlier);

    next = elfsym_after(images[before].code, ours, "f");
    TEST_ASSERT_EQUAL_PTR(&images[caller].code[FIRST], next.address);
    TEST_ASSERT_TRUE(next.known && !next.start_is_later && next.is_earlier);

    next = elfsym_after(images[after].code, ours, "f");
    TEST_ASSERT_NULL(next.address);
    TEST_ASSERT_TRUE(next.known && next.start_is_later);
    next = elfsym_after(&next, ours, "f");
    TEST_ASSERT_FALSE(next.known);
    TEST_ASSERT_NULL(next.address);
}

static void test_functions_of_the_c_library_are_found_where_they_are(void)
{
    TEST_ASSERT_EQUAL_PTR((void *)getpid, elfsym_find("libc.so", "getpid"));
    TEST_ASSERT_NULL(elfsym_find("libc.so", "no_such_function"));
    TEST_ASSERT_NULL(elfsym_find("bc.so", "getpid"));
    TEST_ASSERT_NULL(elfsym_find("libc.so.6.more", "getpid"));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_default_version_is_found);
    RUN_TEST(test_what_an_object_only_uses_it_does_not_define);
    RUN_TEST(test_names_are_compared_whole);
    RUN_TEST(test_tables_may_be_offsets);
    RUN_TEST(test_an_object_may_have_no_tables);
    RUN_TEST(test_an_object_holds_its_segments_from_first_to_last_byte);
    RUN_TEST(test_a_library_is_known_by_the_beginning_of_its_file_name);
    RUN_TEST(test_the_next_definition_is_the_first_after_the_caller);
    RUN_TEST(test_functions_of_the_c_library_are_found_where_they_are);
    return UNITY_END();
}
