/* rebind: see rebind.h. */
#include "interpose/hook/rebind.h"

#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "interpose/account/device.h"
#include "interpose/account/drivers_pools.h"
#include "interpose/account/known_kernels.h"
#include "interpose/driver/driver.h"
#include "interpose/driver/elfslot.h"
#include "interpose/driver/elfsym.h"
#include "interpose/driver/real.h"
#include "interpose/hook/hooks.h"
#include "interpose/library.h"
#include "interpose/pool/streams.h"
#include "interpose/see/owner.h"
#include "interpose/settings/log.h"

#define NAME_BYTES 256 /* of an object's name in messages */

atomic_bool rebind_pending;

/* ---- objects in load order ---- */

struct objects {
    unsigned long long added, removed; /* in the life of the process */
    size_t count;                      /* objects loaded now; new ones are at the end */
};

static int count_one(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct objects *now = argument;

    (void)size;
    now->added = object->dlpi_adds;
    now->removed = object->dlpi_subs;
    now->count++;
    return 0;
}

static struct objects objects_now(void)
{
    struct objects now = {0};

    dl_iterate_phdr(count_one, &now);
    return now;
}

static int count_unloads(struct dl_phdr_info *object, size_t size, void *argument)
{
    (void)size;
    *(unsigned long long *)argument = object->dlpi_subs;
    return 1; /* each object has the same figure */
}

/* A new library may lie where another was. */
EARLY static void note_unloads(void)
{
    unsigned long long unloaded = 0;

    if (!atomic_load_explicit(&owner_reads, memory_order_relaxed))
        return;
    dl_iterate_phdr(count_unloads, &unloaded);
    owner_forget_unloaded(unloaded);
}

/* ---- which slots lead past us ---- */

/* Functions that we hook and that are not the driver's. */
struct target {
    const char *name;
    void *real, *hook; /* real is NULL if its library is not loaded */
    bool looks_up;
};
#define TARGETS 6

struct scan {
    struct target targets[TARGETS];
    size_t first; /* objects before this one are skipped */
    size_t index; /* of the current object */
    const struct dl_phdr_info *object;
    bool complete; /* the current object is known to be loaded */
    bool driver_loaded;
    /* results */
    bool wrote;
    char stuck[NAME_BYTES];  /* object that cannot be bound */
    char unsure[NAME_BYTES]; /* object that may have looked up the driver already, or is still being loaded */
};

/* Returns true for the libraries that we hook. They call themselves directly, as without us. */
static bool is_theirs(const struct dl_phdr_info *object)
{
    return elfsym_defined_in(object, "cuInit") || elfsym_defined_in(object, "nvmlInit_v2");
}

struct definers {
    const char *name;
    size_t first, index;
};

static int defines(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct definers *d = argument;

    (void)size;
    return d->index++ >= d->first && elfsym_defined_in(object, d->name) && !is_theirs(object);
}

/* Returns true if one of the new objects defines that name itself. */
static bool has_its_own(const struct scan *scan, const char *name)
{
    struct definers d = {.name = name, .first = scan->first};

    return dl_iterate_phdr(defines, &d) != 0;
}

static const struct target *target_named(const struct scan *scan, const char *name)
{
    for (size_t i = 0; i < TARGETS; i++) {
        if (!strcmp(scan->targets[i].name, name))
            return &scan->targets[i];
    }
    return NULL;
}

/* Returns what to write into the slot, or NULL if it is right. */
static void *hook_for(const struct scan *scan, const struct elfslot *slot, const struct target *target)
{
    void *hook = target ? target->hook : hooks_find(slot->name);

    if (!hook || slot->value == hook)
        return NULL;
    if (slot->lazy)
        return has_its_own(scan, slot->name) ? NULL : hook;
    if (target)
        return target->real && slot->value == target->real ? hook : NULL;
    return atomic_load(&driver_bound) && hooks_for(slot->value) != slot->value ? hook : NULL;
}

static void note_name(char to[NAME_BYTES], const struct scan *scan)
{
    snprintf(to, NAME_BYTES, "%s", scan->object->dlpi_name);
}

static void visit_slot(const struct elfslot *slot, void *context)
{
    struct scan *scan = context;
    const struct target *target = target_named(scan, slot->name);
    void *hook = hook_for(scan, slot, target);

    if (!hook)
        return;
    const int rc = elfslot_write(scan->object, slot, hook, &scan->complete);
    scan->wrote = scan->wrote || rc == 0;
    if (rc && rc != -EBUSY)
        note_name(scan->stuck, scan);
    if (rc == -EBUSY || (target && target->looks_up && !slot->lazy && scan->driver_loaded))
        note_name(scan->unsure, scan);
}

static int visit_object(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct scan *scan = argument;

    (void)size;
    if (scan->index++ < scan->first || elfsym_holds(object, (const void *)rebind_dlopen) || is_theirs(object))
        return 0;
    scan->object = object;
    scan->complete = false;
    elfslot_each(object, visit_slot, scan);
    return 0;
}

/* ---- what follows ---- */

/* Notes that the object's work and memory may go unseen. */
static void past_us(const char *object)
{
    streams_unknown(object);
    known_kernels_stop();
    drivers_pools_ask_always();
    account_expect_unseen();
}

static void cannot_bind(const char *object, const char *why)
{
    if (library_mode() == LIBRARY_ON && library_limited)
        LOG_ERROR_ONCE("%s %s and cannot be bound to gpucap: it can exceed the limit; its memory counts "
                       "against later requests",
                       object, why);
    past_us(object);
}

static void touch(struct device *device)
{
    account_touch(&device->account);
}

static void *loaded(const char *library)
{
    return real_dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
}

static void drop(void *library)
{
    if (library)
        dlclose(library);
}

/* Binds us to the driver if it is loaded. */
static bool bind_loaded_driver(void)
{
    void *library = loaded("libcuda.so.1"), *entry = library ? real_symbol(library, "cuInit") : NULL;
    const bool bound = entry && driver_bind(entry);

    drop(library);
    return bound;
}

static struct target nvml_target(void *library, const char *name)
{
    return (struct target){name, library ? real_symbol(library, name) : NULL, hooks_find_nvml(name), false};
}

static void fill_targets(struct scan *scan, void *nvml_library)
{
    const struct target targets[TARGETS] = {
        {"dlsym", (void *)real_dlsym, (void *)dlsym, true},
        {"dlvsym", (void *)real_dlvsym, (void *)dlvsym, true},
        {"dlopen", (void *)real_dlopen, (void *)dlopen, false},
        {"dlmopen", (void *)real_dlmopen, (void *)dlmopen, false},
        nvml_target(nvml_library, "nvmlDeviceGetMemoryInfo"),
        nvml_target(nvml_library, "nvmlDeviceGetMemoryInfo_v2"),
    };

    memcpy(scan->targets, targets, sizeof(targets));
}

static void walk(struct scan *scan)
{
    dl_iterate_phdr(visit_object, scan);
    if (*scan->stuck)
        cannot_bind(scan->stuck, "is loaded with RTLD_DEEPBIND");
    else if (*scan->unsure)
        past_us(scan->unsure);
}

/* ---- loading ---- */

/* Returns the index of the first new object; 0 if others were unloaded: new ones may be anywhere. */
static size_t first_new(const struct objects *before, const struct objects *now)
{
    return before->removed == now->removed ? before->count : 0;
}

static struct trampoline_answer open_deep(const char *file, int mode)
{
    const struct objects before = objects_now();
    void *handle = real_dlopen(file, mode);
    struct scan scan = {0};

    if (!handle)
        return (struct trampoline_answer){NULL, 1};
    const struct objects now = objects_now();
    if (now.added != before.added) {
        void *nvml_library = loaded("libnvidia-ml.so.1");

        scan.first = first_new(&before, &now);
        scan.driver_loaded = bind_loaded_driver();
        fill_targets(&scan, nvml_library);
        walk(&scan);
        drop(nvml_library);
        if (scan.wrote)
            device_each(touch); /* a constructor may have allocated */
    }
    dlerror(); /* our own look-ups must not show in the program's dlerror */
    return (struct trampoline_answer){handle, 1};
}

/* For an object that the real function will load, at a time that we do not know. */
static struct objects pending_since;
static atomic_ullong pending_added; /* objects ever added at the last look at the slots */

static void expect_deep(const char *file)
{
    static atomic_flag once = ATOMIC_FLAG_INIT;

    past_us(file);
    if (log_first(&once)) {
        pending_since = objects_now();
        atomic_store(&pending_added, pending_since.added);
        atomic_store(&rebind_pending, true);
    }
}

void rebind_pending_now(void)
{
    struct objects now = objects_now();

    if (atomic_exchange(&pending_added, now.added) == now.added)
        return;
    if (!atomic_load(&driver_bound))
        bind_loaded_driver(); /* only a look-up gets here unbound, and it waits for the loader anyway */
    now = objects_now();
    struct scan scan = {.first = first_new(&pending_since, &now)};
    fill_targets(&scan, NULL);
    walk(&scan);
}

/* Returns true if the namespace of the handle has a driver. */
static bool namespace_has_driver(void *handle)
{
    struct link_map *map = NULL;

    if (dlinfo(handle, RTLD_DI_LINKMAP, &map))
        return false;
    while (map->l_prev)
        map = map->l_prev;
    for (; map; map = map->l_next) {
        const char *slash = map->l_name ? strrchr(map->l_name, '/') : NULL;

        if (map->l_name && !strncmp(slash ? slash + 1 : map->l_name, "libcuda.so", strlen("libcuda.so")))
            return true;
    }
    return false;
}

static struct trampoline_answer open_apart(Lmid_t name_space, const char *file, int mode)
{
    void *handle = real_dlmopen(name_space, file, mode);

    if (!handle)
        return (struct trampoline_answer){NULL, 1};
    if (namespace_has_driver(handle))
        cannot_bind(file, "is loaded into a namespace of its own");
    else
        past_us(file); /* it may load the driver later with that namespace's own dlopen */
    dlerror();
    return (struct trampoline_answer){handle, 1};
}

/* Returns true if every caller finds the file in the same place. */
EARLY static bool is_path(const char *file)
{
    bool slash = false;

    for (; *file; file++) {
        if (*file == '$')
            return false;
        slash = slash || *file == '/';
    }
    return slash;
}

EARLY struct trampoline_answer rebind_dlopen(const char *file, int mode, const void *unused,
                                             const void *caller)
{
    (void)unused, (void)caller;
    real_find();
    note_unloads();
    rebind_check();
    if (!(mode & RTLD_DEEPBIND) || (mode & RTLD_NOLOAD) || !file)
        return (struct trampoline_answer){0};
    if (is_path(file))
        return open_deep(file, mode);
    expect_deep(file);
    return (struct trampoline_answer){0};
}

EARLY struct trampoline_answer rebind_dlmopen(Lmid_t name_space, const char *file, int mode,
                                              const void *caller)
{
    if (name_space == LM_ID_BASE)
        return rebind_dlopen(file, mode, NULL, caller);
    real_find();
    note_unloads();
    if (!file || (mode & RTLD_NOLOAD))
        return (struct trampoline_answer){0};
    if (is_path(file))
        return open_apart(name_space, file, mode);
    past_us(file);
    return (struct trampoline_answer){0};
}
