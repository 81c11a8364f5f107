/* symbols: see symbols.h. */
#include "tools/gpucap/symbols.h"

#include <stddef.h>
#include <string.h>

static const char *const hooked[] = {
#define HOOK(symbol, type) #symbol,
#define CALL(symbol, type)
#include "interpose/driver/hooks.def"
};

/* Beginnings of the names under which every driver so far hands out memory; a newer ABI of a function keeps
 * the name and adds _v2, _ptsz and the like. cuMemPoolCreate is not among them: a pool's memory is handed out
 * by cuMemAllocFromPoolAsync; nor is cuGraphAddMemAllocNode: a graph's memory is handed out by its launch. */
static const char *const device_memory[] = {
    "cuMemAlloc",
    "cuMemCreate",
    "cuMemPoolImport",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuMipmappedArrayCreate",
    "cuImportExternalMemory",
    "cuMemImport",
    "cuIpcOpenMemHandle",
    "cuMulticastCreate",
};
static const char *const host_memory[] = {"cuMemAllocHost", "cuMemHostAlloc", "cuMemHostRegister"};

static bool begins_with_any(const char *name, const char *const *beginnings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!strncmp(name, beginnings[i], strlen(beginnings[i])))
            return true;
    }
    return false;
}

static bool is_hooked(const char *name)
{
    for (size_t i = 0; i < sizeof(hooked) / sizeof(hooked[0]); i++) {
        if (!strcmp(name, hooked[i]))
            return true;
    }
    return false;
}

enum symbols_kind symbols_classify(const char *name)
{
    if (begins_with_any(name, host_memory, sizeof(host_memory) / sizeof(host_memory[0])))
        return SYMBOLS_HOST;
    if (!begins_with_any(name, device_memory, sizeof(device_memory) / sizeof(device_memory[0])))
        return SYMBOLS_OTHER;
    return is_hooked(name) ? SYMBOLS_HOOKED : SYMBOLS_NOT_COUNTED;
}

bool symbols_conflict(const char *name)
{
    return !strcmp(name, "dlsym") || !strcmp(name, "dlvsym") || is_hooked(name);
}
