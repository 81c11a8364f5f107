/* owner, owner_maps, stacks: names of libraries, and what the bytes before a return address say. */
#include "interpose/see/owner.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/see/owner_maps.h"
#include "interpose/see/stacks.h"
#include "interpose_owner_passes.h"

void setUp(void) {}

void tearDown(void) {}

static void test_libraries_have_the_names_that_people_know(void)
{
    static const struct {
        const char *path, *name;
    } known[] = {
        {"/x/nvidia/cudnn/lib/libcudnn_ops.so.9", "cuDNN"},
        {"/usr/lib/libcublasLt.so.13", "cuBLAS"},
        {"/usr/lib/libcufft.so.12", "cuFFT"},
        {"/usr/lib/libcusparse.so.12", "cuSPARSE"},
        {"/usr/lib/libcusolver.so.12", "cuSOLVER"},
        {"/usr/lib/libnccl.so.2", "NCCL"},
        {"/v/site-packages/torch/lib/libtorch_cuda.so", "PyTorch"},
        {"/v/site-packages/torch/lib/libc10_cuda.so", "PyTorch"},
        {"/v/site-packages/torch/_C.cpython-312-x86_64-linux-gnu.so", "PyTorch"},
        {"/v/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so", "XLA"},
        {"/v/site-packages/jaxlib/libjax_common.so", "XLA"},
        {"/v/site-packages/cupy_backends/cuda/api/runtime.cpython-312.so", "CuPy"},
        {"/v/site-packages/tensorflow/libtensorflow_cc.so.2", "TensorFlow"},
        {"/usr/lib/libpython3.12.so.1.0", "program"},
        {"/opt/their/libsolver.so", "libsolver.so"},
        {"/opt/their/beside_libnccl.so", "beside_libnccl.so"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        TEST_ASSERT_EQUAL_STRING(known[i].name, owner_name_of(known[i].path));
    TEST_ASSERT_TRUE(owner_passes_on("/usr/local/cuda/lib64/libcudart.so.13"));
    TEST_ASSERT_TRUE(owner_passes_on("/usr/lib/x86_64-linux-gnu/libcuda.so.1"));
    TEST_ASSERT_FALSE(owner_passes_on("/usr/lib/libcublas.so.13"));
    TEST_ASSERT_TRUE(owner_never_calls("/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.33"));
    TEST_ASSERT_FALSE(owner_never_calls("/v/site-packages/torch/lib/libc10_cuda.so"));
}

static void *volatile returned_to;

__attribute__((noinline)) static void note_return(void)
{
    returned_to = __builtin_return_address(0);
}

static void (*volatile by_pointer)(void) = note_return;

static void test_calls_are_recognized_by_their_instructions(void)
{
    uint64_t target = 0;

    owner_maps_read();
    note_return();
    const uint64_t direct = (uint64_t)(uintptr_t)returned_to;
    TEST_ASSERT_EQUAL_INT(OWNER_CALL_DIRECT, owner_maps_call_before(direct, &target));
    TEST_ASSERT_EQUAL_HEX64((uint64_t)(uintptr_t)note_return, target);
    TEST_ASSERT_NOT_NULL(owner_maps_find(direct));
    void (*const called)(void) = by_pointer;
    called();
    const uint64_t pointer = (uint64_t)(uintptr_t)returned_to;
    const enum owner_call call = owner_maps_call_before(pointer, &target);
    TEST_ASSERT_TRUE(call != OWNER_NO_CALL);
    TEST_ASSERT_TRUE(owner_is_return(direct));
    TEST_ASSERT_TRUE(owner_is_return(pointer));
}

/* The bytes before a return address, and what they are. */
static const struct {
    unsigned char code[8];
    enum owner_call call;
} encodings[] = {
#if defined(__x86_64__)
    {{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0}, OWNER_CALL_POINTER}, /* *%rax */
    {{0x90, 0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd4}, OWNER_CALL_POINTER}, /* *%r12 */
    {{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0x10}, OWNER_CALL_POINTER}, /* *(%rax) */
    {{0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 0x08}, OWNER_CALL_POINTER}, /* *8(%rax) */
    {{0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0x14, 0xd8}, OWNER_CALL_POINTER}, /* *(%rax,%rbx,8) */
    {{0x90, 0x90, 0x90, 0x90, 0xff, 0x54, 0xd8, 0x08}, OWNER_CALL_POINTER}, /* *8(%rax,%rbx,8) */
    {{0x90, 0x90, 0xff, 0x90, 0x00, 0x01, 0x00, 0x00}, OWNER_CALL_POINTER}, /* *256(%rax) */
    {{0x90, 0xff, 0x94, 0xd8, 0x00, 0x01, 0x00, 0x00}, OWNER_CALL_POINTER}, /* *256(%rax,%rbx,8) */
    {{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0}, OWNER_NO_CALL},      /* jmp *%rax */
    {{0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0x60, 0x08}, OWNER_NO_CALL},      /* jmp *8(%rax) */
    {{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0x50}, OWNER_NO_CALL},      /* the beginning of *8(%rax) */
    {{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, OWNER_NO_CALL},
#elif defined(__aarch64__)
    {{0x1f, 0x20, 0x03, 0xd5, 0x00, 0x00, 0x3f, 0xd6}, OWNER_CALL_POINTER}, /* blr x0 */
    {{0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x08, 0x3f, 0xd6}, OWNER_CALL_POINTER}, /* blraaz x0 */
    {{0x1f, 0x20, 0x03, 0xd5, 0x00, 0x00, 0x1f, 0xd6}, OWNER_NO_CALL},      /* br x0 */
    {{0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5}, OWNER_NO_CALL},
#endif
};

/* The number that the next descriptor would get. */
static int next_fd(void)
{
    const int fd = fcntl(STDERR_FILENO, F_DUPFD, 0);

    close(fd);
    return fd;
}

static void test_every_form_of_a_call_is_recognized(void)
{
    uint64_t target;
    const int before = next_fd();

    for (size_t i = 0; i < sizeof(encodings) / sizeof(*encodings); i++)
        TEST_ASSERT_EQUAL_INT(encodings[i].call,
                              owner_maps_call_before((uint64_t)(uintptr_t)(encodings[i].code + 8), &target));
    TEST_ASSERT_EQUAL_INT(before, next_fd());
}

static void test_code_is_found_from_its_first_byte_to_its_last(void)
{
    size_t count;

    owner_maps_read();
    const struct owner_map *maps = owner_maps_all(&count);
    TEST_ASSERT_GREATER_THAN_size_t(1, count);
    for (size_t i = 0; i < count; i++) {
        TEST_ASSERT_EQUAL_PTR(&maps[i], owner_maps_find(maps[i].start));
        TEST_ASSERT_EQUAL_PTR(&maps[i], owner_maps_find(maps[i].end - 1));
        TEST_ASSERT_TRUE(owner_maps_find(maps[i].end) != &maps[i]);
        TEST_ASSERT_TRUE(owner_maps_find(maps[i].start - 1) != &maps[i]);
    }
}

static void test_data_of_a_file_is_no_code_and_a_path_is_kept_once(void)
{
    static int data = 1;
    static int *const constant = &data; /* not a text: on aarch64 linkers put those beside the code */
    size_t count;

    owner_maps_read();
    TEST_ASSERT_NULL(owner_maps_find((uint64_t)(uintptr_t)&data));
    TEST_ASSERT_NULL(owner_maps_find((uint64_t)(uintptr_t)&constant));
    const struct owner_map code = *owner_maps_find((uint64_t)(uintptr_t)note_return);
    owner_maps_read();
    TEST_ASSERT_EQUAL_PTR(code.path, owner_maps_find((uint64_t)(uintptr_t)note_return)->path);
    const struct owner_map *maps = owner_maps_all(&count);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++)
            TEST_ASSERT_TRUE(maps[i].path == maps[k].path || strcmp(maps[i].path, maps[k].path) != 0);
    }
}

static void test_what_is_no_code_is_no_return_address(void)
{
    uint64_t target;
    void *heap = malloc(64);

    TEST_ASSERT_FALSE(owner_is_return(0));
    TEST_ASSERT_FALSE(owner_is_return(8));
    TEST_ASSERT_FALSE(owner_is_return((uint64_t)(uintptr_t)heap));
    TEST_ASSERT_FALSE(owner_is_return(UINT64_MAX - 7));
    TEST_ASSERT_NULL(owner_maps_find((uint64_t)(uintptr_t)&target));
    TEST_ASSERT_EQUAL_INT(OWNER_NO_CALL, owner_maps_call_before(UINT64_C(0x123456780000), &target));
    free(heap);
}

static void test_a_stack_of_nonsense_has_the_call_alone(void)
{
    uint64_t words[64], frames[STACKS_FRAMES];

    for (size_t i = 0; i < 64; i++)
        words[i] = (uint64_t)(uintptr_t)&words[63 - i]; /* frame pointers without return addresses */
    const struct stack nonsense = {words, 64};
    const uint32_t stack = stacks_take(nonsense, 0x1234, 0, owner_is_return);
    TEST_ASSERT_EQUAL_UINT32(stack, stacks_take(nonsense, 0x1234, 0, owner_is_return));
    TEST_ASSERT_EQUAL_size_t(1, stacks_read(stack, frames));
    TEST_ASSERT_EQUAL_HEX64(0x1234, frames[0]);
    TEST_ASSERT_EQUAL_size_t(0, stacks_read(0, frames));
    TEST_ASSERT_EQUAL_size_t(0, stacks_read(STACKS_MAX, frames));
}

static void test_a_library_with_frame_pointers_is_in_a_stack_once(void)
{
    uint64_t words[64] = {0}, calls[3], frames[STACKS_FRAMES];

    owner_maps_read();
    note_return();
    calls[0] = (uint64_t)(uintptr_t)returned_to;
    note_return();
    calls[1] = (uint64_t)(uintptr_t)returned_to;
    note_return();
    calls[2] = (uint64_t)(uintptr_t)returned_to;
    for (size_t i = 0; i < 3; i++) { /* a frame is the pointer to the next one, and a return address */
        words[2 * i] = (uint64_t)(uintptr_t)&words[2 * i + 2];
        words[2 * i + 3] = calls[i];
    }
    const struct stack made = {.words = words, .count = 64};
    const uint32_t stack = stacks_take(made, calls[0], calls[1], owner_is_return);
    TEST_ASSERT_EQUAL_size_t(3, stacks_read(stack, frames));
    TEST_ASSERT_EQUAL_HEX64_ARRAY(calls, frames, 3);
}

static int hook(void)
{
    owner_enter(__builtin_return_address(0));
    return owner_current;
}

static void *symbol_of(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

    TEST_ASSERT_NOT_NULL_MESSAGE(handle, dlerror());
    return dlsym(handle, name);
}

/* The program of the next test. Returns its exit status. */
static int call_from_program(void)
{
    int (*volatile own)(void) = hook;

    own();
    return strcmp("program", owner_name(owner_current)) != 0;
}

/* The kernel escapes a newline in the table of mappings, but not in the link to the program's file. */
static void test_a_program_is_the_program_whatever_its_path(void)
{
    static const char *const names[] = {"plain", "two\nlines", "\\012", "a\033[2Jscreen (deleted)"};
    char folder[] = "/tmp/gpucap-owner.XXXXXX";

    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char path[128], command[512];

        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        snprintf(command, sizeof(command), "cp \"/proc/%d/exe\" '%s' && exec '%s' program", (int)getpid(),
                 path, path);
        const int status = system(command);
        unlink(path);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, status, names[i]);
    }
    rmdir(folder);
}

/* As a Python program that calls the runtime by ctypes. */
static void test_a_call_that_is_passed_on_twice_is_the_programs(void)
{
    int (*pass)(int (*next)(void *), void *) = NULL;
    int (*last)(void *) = NULL;
    int (*const own)(void) = hook;

    *(void **)&pass = symbol_of(OWNER_FFI, "owner_passes");
    *(void **)&last = symbol_of(OWNER_CUDART, "owner_passes_last");
    for (int i = 0; i < 2; i++) { /* searched for, and known */
        TEST_ASSERT_EQUAL_INT(2, pass(last, *(void *const *)&own));
        TEST_ASSERT_EQUAL_STRING("program", owner_name(owner_current));
    }
}

static void test_a_library_is_not_the_program_though_its_path_is_as_long(void)
{
    int (*last)(void *) = NULL;
    int (*const own)(void) = hook;
    char program[512];

    TEST_ASSERT_EQUAL_INT(strlen(OWNER_SAME), readlink("/proc/self/exe", program, sizeof(program)));
    *(void **)&last = symbol_of(OWNER_SAME, "owner_passes_last");
    TEST_ASSERT_GREATER_THAN_INT(1, last(*(void *const *)&own));
    TEST_ASSERT_EQUAL_STRING("libsame_long.so", owner_name(owner_current));
}

/* However many calls the library that passes it on makes inside. */
static void test_a_call_that_is_passed_on_is_its_callers(void)
{
    int (*pass)(int (*next)(void *), void *) = NULL;
    int (*last)(void *) = NULL;
    int (*const own)(void) = hook;

    *(void **)&pass = symbol_of(OWNER_SAME, "owner_passes");
    *(void **)&last = symbol_of(OWNER_CUDART, "owner_passes_last");
    pass(last, *(void *const *)&own);
    TEST_ASSERT_EQUAL_STRING("libsame_long.so", owner_name(owner_current));
}

static void test_each_mapping_is_told_to_the_last(void)
{
    struct owner_map module = {.start = 0};
    size_t count;

    const struct owner_map *maps = owner_maps_all(&count);
    TEST_ASSERT_GREATER_THAN_size_t(1, count);
    TEST_ASSERT_TRUE(owner_module(count - 1, &module));
    TEST_ASSERT_EQUAL_HEX64(maps[count - 1].start, module.start);
    TEST_ASSERT_FALSE(owner_module(count, &module));
}

static void test_libraries_with_names_alike_are_apart(void)
{
    int (*last)(void *) = NULL;
    int (*const own)(void) = hook;

    *(void **)&last = symbol_of(OWNER_MORE, "owner_passes_last"); /* the program's path, and more */
    TEST_ASSERT_GREATER_THAN_INT(1, last(*(void *const *)&own));
    TEST_ASSERT_EQUAL_STRING("interpose_owner_more", owner_name(owner_current));
    *(void **)&last = symbol_of(OWNER_SAMURAI, "owner_passes_last");
    TEST_ASSERT_GREATER_THAN_INT(1, last(*(void *const *)&own));
    TEST_ASSERT_EQUAL_STRING("libsamurai.so", owner_name(owner_current));
    TEST_ASSERT_EQUAL_STRING(OWNER_SAMURAI, owner_path(owner_current));
}

/* As a program that replaces a plug-in by another one. */
static void test_a_library_has_its_own_name_where_another_was_unloaded(void)
{
    static const char *const libraries[][2] = {{OWNER_SAMURAI, "libsamurai.so"},
                                               {OWNER_MORE, "interpose_owner_more"}};
    int (*const own)(void) = hook;
    void *before = NULL;

    for (unsigned i = 0; i < 2; i++) {
        int (*last)(void *) = NULL;
        void *library = dlopen(libraries[i][0], RTLD_NOW | RTLD_LOCAL);

        TEST_ASSERT_NOT_NULL_MESSAGE(library, dlerror());
        *(void **)&last = dlsym(library, "owner_passes_last");
        const bool moved = before && before != *(void **)&last;
        before = *(void **)&last;
        for (int k = 0; k < 2 && !moved; k++) {
            TEST_ASSERT_GREATER_THAN_INT(1, last(*(void *const *)&own));
            TEST_ASSERT_EQUAL_STRING(libraries[i][1], owner_name(owner_current));
        }
        TEST_ASSERT_EQUAL_INT(0, dlclose(library));
        if (moved)
            TEST_IGNORE_MESSAGE("the second library has other addresses");
        owner_forget_unloaded(i + 1);
    }
}

#ifndef __SANITIZE_THREAD__ /* which knows nothing of such stacks */
static ucontext_t back, own_stack;
static int (*call_hook)(void *);

static void run_on_own_stack(void)
{
    int (*const own)(void) = hook;

    call_hook(*(void *const *)&own);
}

/* As a program with coroutines, whose stacks end where nothing is mapped. */
static void test_nothing_is_read_behind_a_stack_of_the_programs_own(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 16 * page;
    char *memory = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    TEST_ASSERT_TRUE(memory != MAP_FAILED);
    TEST_ASSERT_EQUAL_INT(0, mprotect(memory + bytes, page, PROT_NONE));
    *(void **)&call_hook = symbol_of(OWNER_FFI, "owner_passes_last");
    TEST_ASSERT_EQUAL_INT(0, getcontext(&own_stack));
    own_stack.uc_stack.ss_sp = memory;
    own_stack.uc_stack.ss_size = bytes;
    own_stack.uc_link = &back;
    makecontext(&own_stack, run_on_own_stack, 0);
    TEST_ASSERT_EQUAL_INT(0, swapcontext(&back, &own_stack));
    TEST_ASSERT_EQUAL_STRING("program", owner_name(owner_current));
    munmap(memory, bytes + page);
}
#endif

/* Runs last: from here on nothing new is looked up. */
static void test_searches_in_vain_come_to_an_end(void)
{
    enum { SEARCHES = 4000 }; /* as in owner.c */
    const unsigned before = atomic_load(&owner_reads);

    for (uint64_t i = 0; i < SEARCHES + 100; i++)
        TEST_ASSERT_FALSE(owner_is_return(0x100 + i)); /* no code is there */
    TEST_ASSERT_GREATER_THAN_UINT(before, atomic_load(&owner_reads));
    TEST_ASSERT_LESS_OR_EQUAL_UINT(before + SEARCHES, atomic_load(&owner_reads));
}

int main(int count, char **words)
{
    (void)words;
    if (count > 1)
        return call_from_program();
    UNITY_BEGIN();
    RUN_TEST(test_libraries_have_the_names_that_people_know);
    RUN_TEST(test_calls_are_recognized_by_their_instructions);
    RUN_TEST(test_every_form_of_a_call_is_recognized);
    RUN_TEST(test_code_is_found_from_its_first_byte_to_its_last);
    RUN_TEST(test_data_of_a_file_is_no_code_and_a_path_is_kept_once);
    RUN_TEST(test_what_is_no_code_is_no_return_address);
#ifndef __SANITIZE_THREAD__
    RUN_TEST(test_nothing_is_read_behind_a_stack_of_the_programs_own);
#endif
    RUN_TEST(test_a_library_has_its_own_name_where_another_was_unloaded);
    RUN_TEST(test_a_program_is_the_program_whatever_its_path);
    RUN_TEST(test_a_call_that_is_passed_on_twice_is_the_programs);
    RUN_TEST(test_a_library_is_not_the_program_though_its_path_is_as_long);
    RUN_TEST(test_a_call_that_is_passed_on_is_its_callers);
    RUN_TEST(test_each_mapping_is_told_to_the_last);
    RUN_TEST(test_libraries_with_names_alike_are_apart);
    RUN_TEST(test_a_stack_of_nonsense_has_the_call_alone);
    RUN_TEST(test_a_library_with_frame_pointers_is_in_a_stack_once);
    RUN_TEST(test_searches_in_vain_come_to_an_end);
    return UNITY_END();
}
