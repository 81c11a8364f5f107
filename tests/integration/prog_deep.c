/* prog_deep: loads a plugin so that the loader binds it past preloaded libraries, and uses it: prog_deep HOW
 * FILE WHAT.
 *
 * HOW: "plain" is a plain dlopen, "deep" is RTLD_DEEPBIND, "sealed" the same where memory cannot be made
 * writable, "apart" a namespace of its own, "nested" RTLD_DEEPBIND by another such plugin. WHAT: "memory":
 * the plugin takes 800 MiB, then the program 100 MiB; "late": the same, with CUDA started first; "alone":
 * only the program takes; "work": the plugin still writes to blocks that the program frees; prints how many
 * bytes of other blocks it hit. Knows nothing of gpucap. */
#include "prog_check.h"
#include "prog_deep.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS      100
#define BLOCK_BYTES (4 * MIB)

static bool sealed;

/* As under a security policy, while `sealed`. */
int mprotect(void *address, size_t bytes, int protection)
{
    if (sealed) {
        errno = EACCES;
        return -1;
    }
    return (int)syscall(SYS_mprotect, address, bytes, protection);
}

static void *must_load(void *plugin)
{
    if (!plugin)
        fprintf(stderr, "%s\n", dlerror());
    MUST(true, plugin != NULL);
    return plugin;
}

/* By another plugin, which lies beside it. */
static void *load_nested(const char *file)
{
    char outer[1024];

    snprintf(outer, sizeof(outer), "%.*s/libprog_deep_lazy.so", (int)(strrchr(file, '/') - file), file);
    void *(*load)(const char *) =
        (void *(*)(const char *))dlsym(must_load(dlopen(outer, RTLD_LAZY | RTLD_DEEPBIND)), "plugin_load");
    MUST(true, load != NULL);
    return must_load(load(file));
}

static void *load(const char *how, const char *file)
{
    if (!strcmp(how, "nested"))
        return load_nested(file);
    sealed = !strcmp(how, "sealed");
    void *plugin = !strcmp(how, "apart")
                       ? dlmopen(LM_ID_NEWLM, file, RTLD_NOW)
                       : dlopen(file, RTLD_LAZY | (strcmp(how, "plain") ? RTLD_DEEPBIND : 0));
    sealed = false;
    return must_load(plugin);
}

static void alone(void)
{
    CUdeviceptr block;

    printf("program %d\n", (int)cuMemAlloc(&block, 100 * MIB));
}

static void memory(void *plugin, bool first)
{
    int (*take)(size_t) = (int (*)(size_t))dlsym(plugin, "plugin_take");
    CUdeviceptr block;

    MUST(true, take != NULL);
    if (first)
        prog_context(0);
    MUST(0, cuMemAlloc(&block, 20 * MIB)); /* what is in use has been measured */
    const int theirs = take(800 * MIB), ours = (int)cuMemAlloc(&block, 100 * MIB);
    printf("plugin %d program %d\n", theirs, ours);
}

/* One block freed while the plugin is about to write to it, and another one in its place. */
static long reuse(int (*write)(unsigned long long, unsigned char, size_t), int (*finish)(void))
{
    CUdeviceptr block, other;
    long wrong;

    MUST(0, cuMemAlloc(&block, BLOCK_BYTES));
    MUST(0, write(block, 1, BLOCK_BYTES));
    MUST(0, cuMemFree(block));
    MUST(0, cuMemAlloc(&other, BLOCK_BYTES));
    prog_fill(other, 2, BLOCK_BYTES);
    MUST(0, finish());
    wrong = prog_wrong(other, 2, BLOCK_BYTES);
    MUST(0, cuMemFree(other));
    return wrong;
}

static void work(void *plugin)
{
    int (*write)(unsigned long long, unsigned char, size_t) =
        (int (*)(unsigned long long, unsigned char, size_t))dlsym(plugin, "plugin_write");
    int (*finish)(void) = (int (*)(void))dlsym(plugin, "plugin_finish");
    long wrong = 0;

    MUST(true, write && finish);
    for (int i = 0; i < ROUNDS; i++)
        wrong += reuse(write, finish);
    printf("wrong %ld\n", wrong);
}

int main(int argc, char **argv)
{
    MUST(4, argc);
    const bool first = !strcmp(argv[3], "memory");
    CUdeviceptr block;

    if (!first) { /* all of the program's work is on one stream */
        prog_context(0);
        MUST(0, cuMemAlloc(&block, MIB));
        prog_fill(block, 1, MIB);
        MUST(0, cuMemFree(block));
    }
    void *plugin = load(argv[1], argv[2]);
    if (!strcmp(argv[3], "work"))
        work(plugin);
    else if (!strcmp(argv[3], "alone"))
        alone();
    else
        memory(plugin, first);
    return 0;
}
