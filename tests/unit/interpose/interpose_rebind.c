/* rebind: which slots of which objects are written after a dlopen with RTLD_DEEPBIND, and which objects count
 * as ones that cannot be bound. The dynamic loader and its objects are the test's own. */
#include "interpose/hook/rebind.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unity.h>

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
#include "apart.h"
#include "log_fake.h"

#define DEEP    (RTLD_NOW | RTLD_DEEPBIND)
#define OBJECTS 6
#define SLOTS   4

static atomic_int mode = LIBRARY_ON;
_Atomic(atomic_int *) library_state = &mode;
bool library_limited = true;

/* Addresses. */
static char hook, drivers, real_look_up, real_versioned, nvmls, nvml_hook, plain, handle_place, driver_place;

static struct object {
    const char *name, *defines;
    bool is_ours;
    int write_rc;
    struct elfslot slots[SLOTS];
    void *values[SLOTS];
} objects[OBJECTS];

static struct fake {
    unsigned long long added, removed;
    size_t count;
    void (*load)(void); /* what the next dlopen does to the objects; NULL: it fails */
    bool driver_loaded, nvml_loaded;
    struct link_map *maps;
    char past[64];
    int expected_unseen, stopped, asks_always, touched, errors_cleared, written, opened_apart, forgotten;
    unsigned long long unloaded;
} fake;

/* ---- the test's own dynamic loader ---- */

int __wrap_dl_iterate_phdr(int (*visit)(struct dl_phdr_info *object, size_t size, void *argument),
                           void *argument);
int __wrap_dl_iterate_phdr(int (*visit)(struct dl_phdr_info *object, size_t size, void *argument),
                           void *argument)
{
    int rc = 0;

    for (size_t i = 0; i < fake.count && rc == 0; i++) {
        struct dl_phdr_info info = {
            .dlpi_addr = i, .dlpi_name = objects[i].name, .dlpi_adds = fake.added, .dlpi_subs = fake.removed};

        rc = visit(&info, sizeof(info), argument);
    }
    return rc;
}

static void *fake_dlopen(const char *file, int flags)
{
    if (flags & RTLD_NOLOAD) {
        const bool loaded = !strcmp(file, "libcuda.so.1") ? fake.driver_loaded : fake.nvml_loaded;

        return loaded ? (void *)&driver_place : NULL;
    }
    TEST_ASSERT_EQUAL_INT(DEEP, flags);
    if (!fake.load)
        return NULL;
    fake.load();
    return &handle_place;
}

static void *fake_dlmopen(Lmid_t name_space, const char *file, int flags)
{
    (void)file, (void)flags;
    TEST_ASSERT_EQUAL_INT(LM_ID_NEWLM, name_space);
    fake.opened_apart++;
    return fake.maps ? &handle_place : NULL;
}

int __wrap_dlinfo(void *handle, int request, void *out);
int __wrap_dlinfo(void *handle, int request, void *out)
{
    TEST_ASSERT_EQUAL_PTR(&handle_place, handle);
    TEST_ASSERT_EQUAL_INT(RTLD_DI_LINKMAP, request);
    *(struct link_map **)out = fake.maps;
    return 0;
}

int __wrap_dlclose(void *handle);
int __wrap_dlclose(void *handle)
{
    TEST_ASSERT_EQUAL_PTR(&driver_place, handle);
    return 0;
}

char *__wrap_dlerror(void);
char *__wrap_dlerror(void)
{
    fake.errors_cleared++;
    return NULL;
}

void *(*real_dlsym)(void *handle, const char *name);
void *(*real_dlvsym)(void *handle, const char *name, const char *version);
void *(*real_dlopen)(const char *file, int mode);
void *(*real_dlmopen)(Lmid_t name_space, const char *file, int mode);

void real_find(void)
{
    real_dlsym = (__typeof__(real_dlsym))(void *)&real_look_up;
    real_dlvsym = (__typeof__(real_dlvsym))(void *)&real_versioned;
    real_dlopen = fake_dlopen;
    real_dlmopen = fake_dlmopen;
}

void *real_symbol(void *handle, const char *name)
{
    TEST_ASSERT_EQUAL_PTR(&driver_place, handle);
    if (!strcmp(name, "cuInit"))
        return &drivers;
    return !strcmp(name, "nvmlDeviceGetMemoryInfo") ? &nvmls : NULL;
}

bool elfsym_holds(const struct dl_phdr_info *object, const void *address)
{
    (void)address;
    return objects[object->dlpi_addr].is_ours;
}

void *elfsym_defined_in(const struct dl_phdr_info *object, const char *symbol)
{
    const char *defines = objects[object->dlpi_addr].defines;

    return defines && !strcmp(defines, symbol) ? &plain : NULL;
}

void elfslot_each(const struct dl_phdr_info *object, void (*visit)(const struct elfslot *slot, void *context),
                  void *context)
{
    struct object *of = &objects[object->dlpi_addr];

    for (int i = 0; i < SLOTS && of->slots[i].name; i++) {
        of->slots[i].at = &of->values[i];
        of->slots[i].value = of->values[i];
        visit(&of->slots[i], context);
    }
}

int elfslot_write(const struct dl_phdr_info *object, const struct elfslot *slot, void *value, bool *complete)
{
    struct object *of = &objects[object->dlpi_addr];

    (void)complete;
    if (of->write_rc == 0)
        *slot->at = value;
    fake.written++;
    return of->write_rc;
}

/* ---- the test's own library ---- */

bool driver_bind(const void *symbol)
{
    TEST_ASSERT_EQUAL_PTR(&drivers, symbol);
    atomic_store(&driver_bound, true);
    return true;
}

enum library_mode library_begin(void)
{
    return LIBRARY_ON;
}

void *hooks_find(const char *name)
{
    return !strcmp(name, "cuMemAlloc_v2") ? &hook : NULL;
}

void *hooks_for(void *address)
{
    return address == &drivers ? &hook : address;
}

void *hooks_find_nvml(const char *name)
{
    return !strcmp(name, "nvmlDeviceGetMemoryInfo") ? &nvml_hook : NULL;
}

void streams_unknown(const char *name)
{
    snprintf(fake.past, sizeof(fake.past), "%s", name);
}

void known_kernels_stop(void)
{
    fake.stopped++;
}

void drivers_pools_ask_always(void)
{
    fake.asks_always++;
}

void account_expect_unseen(void)
{
    fake.expected_unseen++;
}

void account_touch(struct account *account)
{
    (void)account;
    fake.touched++;
}

void device_each(void (*visit)(struct device *device))
{
    static struct device device;

    visit(&device);
}

atomic_uint owner_reads;

void owner_forget_unloaded(unsigned long long unloaded)
{
    fake.forgotten++;
    fake.unloaded = unloaded;
}

/* ---- helpers ---- */

/* Loads an object behind the others that calls cuMemAlloc_v2. */
static struct object *add(const char *name, void *value, bool lazy)
{
    struct object *object = &objects[fake.count++];

    *object = (struct object){
        .name = name, .slots[0] = {.name = "cuMemAlloc_v2", .lazy = lazy}, .values[0] = value};
    fake.added++;
    return object;
}

static void load_plugin(void)
{
    add("plugin.so", &drivers, false);
}

static void open_deep(void (*load)(void))
{
    fake.load = load;
    fake.past[0] = '\0';
    const struct trampoline_answer answer = rebind_dlopen("/lib/plugin.so", DEEP, NULL, NULL);
    TEST_ASSERT_EQUAL_UINT64(1, answer.decided);
    TEST_ASSERT_EQUAL_PTR(&handle_place, answer.address);
}

void setUp(void)
{
    log_fake_clear();
    fake = (struct fake){.driver_loaded = true};
    memset(objects, 0, sizeof(objects));
    add("program", &drivers, false); /* bound before, by its own wish */
    add("libgpucap.so", &drivers, false)->is_ours = true;
    atomic_store(&driver_bound, false);
}

void tearDown(void) {}

/* ---- promises ---- */

static void test_calls_of_a_deeply_bound_object_lead_to_the_hooks(void)
{
    open_deep(load_plugin);
    TEST_ASSERT_EQUAL_PTR(&hook, objects[2].values[0]);
    TEST_ASSERT_EQUAL_PTR_MESSAGE(&drivers, objects[0].values[0], "what was loaded before stays as it is");
    TEST_ASSERT_EQUAL_PTR(&drivers, objects[1].values[0]);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", fake.past, "all of its calls are seen");
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.touched, "its constructors may have allocated");
    TEST_ASSERT_GREATER_THAN_INT(0, fake.errors_cleared);
}

static void load_nothing(void) {}

static void test_an_object_that_was_loaded_already_is_not_looked_at(void)
{
    load_plugin();
    open_deep(load_nothing);
    TEST_ASSERT_EQUAL_INT(0, fake.written);
    TEST_ASSERT_EQUAL_INT(0, fake.touched);
}

static void load_in_place_of_another(void)
{
    fake.count--; /* "old.so" is unloaded by another thread */
    fake.removed++;
    add("plugin.so", &drivers, false);
    add("its own.so", &drivers, false);
}

static void test_objects_are_found_wherever_they_lie_if_others_were_unloaded(void)
{
    add("old.so", &plain, false);
    open_deep(load_in_place_of_another);
    TEST_ASSERT_EQUAL_PTR(&hook, objects[2].values[0]);
    TEST_ASSERT_EQUAL_PTR(&hook, objects[3].values[0]);
}

static void load_with_a_lazy_slot(void)
{
    add("plugin.so", &plain, true);
}

static void load_with_its_own_definition(void)
{
    add("plugin.so", &plain, true);
    add("stub.so", NULL, false)->defines = "cuMemAlloc_v2";
}

static void test_a_slot_that_is_not_resolved_leads_to_the_hook(void)
{
    open_deep(load_with_a_lazy_slot);
    TEST_ASSERT_EQUAL_PTR(&hook, objects[2].values[0]);
    setUp();
    open_deep(load_with_its_own_definition);
    TEST_ASSERT_EQUAL_PTR_MESSAGE(&plain, objects[2].values[0], "its own stub is what it would find");
}

static void load_what_calls_another_function(void)
{
    add("plugin.so", &plain, false); /* of that name, but not the driver's */
    add("libcuda.so.1", &drivers, false)->defines = "cuInit";
    add("libnvidia-ml.so.1", &drivers, false)->defines = "nvmlInit_v2";
}

static void test_other_functions_and_the_drivers_own_calls_stay(void)
{
    open_deep(load_what_calls_another_function);
    TEST_ASSERT_EQUAL_PTR(&plain, objects[2].values[0]);
    TEST_ASSERT_EQUAL_PTR(&drivers, objects[3].values[0]);
    TEST_ASSERT_EQUAL_PTR(&drivers, objects[4].values[0]);
    TEST_ASSERT_EQUAL_INT(0, fake.written);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.touched, "nothing was past us");
}

static void load_what_looks_up(void)
{
    struct object *object = add("plugin.so", &plain, false);

    object->slots[0] = (struct elfslot){.name = "dlsym"};
    object->values[0] = &real_look_up;
    object->slots[1] = (struct elfslot){.name = "nvmlDeviceGetMemoryInfo"};
    object->values[1] = &nvmls;
    object->slots[2] = (struct elfslot){.name = "dlvsym"}; /* one of its own */
    object->values[2] = &plain;
}

static void test_its_constructors_may_have_looked_up_the_driver(void)
{
    fake.nvml_loaded = true;
    open_deep(load_what_looks_up);
    TEST_ASSERT_EQUAL_PTR((void *)dlsym, objects[2].values[0]);
    TEST_ASSERT_EQUAL_PTR(&nvml_hook, objects[2].values[1]);
    TEST_ASSERT_EQUAL_PTR_MESSAGE(&plain, objects[2].values[2], "not libc's");
    TEST_ASSERT_EQUAL_STRING("plugin.so", fake.past);
    TEST_ASSERT_EQUAL_INT(1, fake.expected_unseen);
    TEST_ASSERT_EQUAL_INT(1, fake.stopped);
    TEST_ASSERT_EQUAL_INT(1, fake.asks_always);
    setUp();
    fake.driver_loaded = false; /* then there was nothing to look up */
    open_deep(load_what_looks_up);
    TEST_ASSERT_EQUAL_PTR((void *)dlsym, objects[2].values[0]);
    TEST_ASSERT_EQUAL_PTR_MESSAGE(&nvmls, objects[2].values[1], "NVML is not loaded");
    TEST_ASSERT_EQUAL_STRING("", fake.past);
}

static void load_what_uses_all_of_the_loader(void)
{
    const struct {
        const char *name;
        void *real;
    } loader[SLOTS] = {{"dlsym", &real_look_up},
                       {"dlvsym", &real_versioned},
                       {"dlopen", (void *)fake_dlopen},
                       {"dlmopen", (void *)fake_dlmopen}};
    struct object *object = add("plugin.so", &plain, false);

    for (int i = 0; i < SLOTS; i++) {
        object->slots[i] = (struct elfslot){.name = loader[i].name};
        object->values[i] = loader[i].real;
    }
}

static void test_each_function_of_the_loader_is_bound_to_its_own_hook(void)
{
    open_deep(load_what_uses_all_of_the_loader);
    TEST_ASSERT_EQUAL_PTR((void *)dlsym, objects[2].values[0]);
    TEST_ASSERT_EQUAL_PTR((void *)dlvsym, objects[2].values[1]);
    TEST_ASSERT_EQUAL_PTR((void *)dlopen, objects[2].values[2]);
    TEST_ASSERT_EQUAL_PTR((void *)dlmopen, objects[2].values[3]);
}

static void load_unwritable(void)
{
    add("plugin.so", &drivers, false)->write_rc = -EACCES;
}

static void load_unfinished(void)
{
    add("plugin.so", &drivers, false)->write_rc = -EBUSY;
}

static void test_an_object_that_cannot_be_bound_is_said_and_counted(void)
{
    open_deep(load_unfinished); /* another thread still loads it: bound later */
    TEST_ASSERT_EQUAL_STRING("plugin.so", fake.past);
    TEST_ASSERT_EQUAL_STRING("", log_fake_errors);
    TEST_ASSERT_EQUAL_INT(1, fake.expected_unseen);
    setUp();
    library_limited = false; /* without a limit there is nothing to warn of */
    open_deep(load_unwritable);
    TEST_ASSERT_EQUAL_STRING("", log_fake_errors);
    TEST_ASSERT_EQUAL_STRING("plugin.so", fake.past);
    library_limited = true;
    setUp();
    open_deep(load_unwritable);
    TEST_ASSERT_EQUAL_STRING("plugin.so", fake.past);
    TEST_ASSERT_EQUAL_INT(1, fake.expected_unseen);
    TEST_ASSERT_NOT_NULL(
        strstr(log_fake_errors, "plugin.so is loaded with RTLD_DEEPBIND and cannot be bound"));
    TEST_ASSERT_EQUAL_INT(0, fake.touched);
}

static void test_a_failed_dlopen_is_the_programs(void)
{
    const struct trampoline_answer answer = rebind_dlopen("/lib/plugin.so", DEEP, NULL, NULL);

    TEST_ASSERT_EQUAL_UINT64(1, answer.decided);
    TEST_ASSERT_NULL(answer.address);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.errors_cleared, "dlerror says why");
}

static void test_other_calls_of_dlopen_go_to_the_real_one(void)
{
    TEST_ASSERT_EQUAL_UINT64(0, rebind_dlopen("/lib/x.so", RTLD_NOW, NULL, NULL).decided);
    TEST_ASSERT_EQUAL_UINT64(0, rebind_dlopen("/lib/x.so", DEEP | RTLD_NOLOAD, NULL, NULL).decided);
    TEST_ASSERT_EQUAL_UINT64(0, rebind_dlopen(NULL, DEEP, NULL, NULL).decided);
    TEST_ASSERT_EQUAL_UINT64(0, rebind_dlmopen(LM_ID_BASE, "/lib/x.so", RTLD_NOW, NULL).decided);
    TEST_ASSERT_EQUAL_UINT64(0, rebind_dlmopen(LM_ID_NEWLM, NULL, RTLD_NOW, NULL).decided);
    TEST_ASSERT_EQUAL_UINT64(0, rebind_dlmopen(LM_ID_NEWLM, "/x.so", RTLD_NOLOAD, NULL).decided);
    TEST_ASSERT_EQUAL_STRING("", fake.past);
    TEST_ASSERT_FALSE(atomic_load(&rebind_pending));
}

/* While or after a recording: the new one may get the addresses of an unloaded one. */
static void test_owners_are_told_of_unloaded_libraries_before_each_load(void)
{
    fake.removed = 3;
    rebind_dlopen("/lib/x.so", RTLD_NOW, NULL, NULL);
    TEST_ASSERT_EQUAL_INT(0, fake.forgotten); /* nothing has been recorded */
    atomic_store(&owner_reads, 1);
    rebind_dlopen("/lib/x.so", RTLD_NOW, NULL, NULL);
    TEST_ASSERT_EQUAL_INT(1, fake.forgotten);
    TEST_ASSERT_EQUAL_UINT64(3, fake.unloaded);
    rebind_dlmopen(LM_ID_BASE, "/lib/x.so", RTLD_NOW, NULL);
    rebind_dlmopen(LM_ID_NEWLM, NULL, RTLD_NOW, NULL);
    TEST_ASSERT_EQUAL_INT(3, fake.forgotten);
    atomic_store(&owner_reads, 0);
}

static void test_a_namespace_of_its_own_cannot_be_bound(void)
{
    static char other[] = "/lib/libother.so", cuda[] = "/lib/libcuda.so.1", folder[] = "/libcuda.so.d/x.so";
    struct link_map maps[] = {{.l_name = other}, {.l_name = folder}};

    fake.maps = &maps[1];
    maps[1].l_prev = &maps[0];
    maps[0].l_next = &maps[1];
    TEST_ASSERT_EQUAL_PTR(&handle_place, rebind_dlmopen(LM_ID_NEWLM, "/x.so", RTLD_NOW, NULL).address);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("/x.so", fake.past, "it may load a driver later");
    TEST_ASSERT_EQUAL_STRING("", log_fake_errors);
    maps[0].l_name = cuda; /* before the object itself in the list */
    TEST_ASSERT_EQUAL_UINT64(1, rebind_dlmopen(LM_ID_NEWLM, "/y.so", RTLD_NOW, NULL).decided);
    TEST_ASSERT_EQUAL_STRING("/y.so", fake.past);
    TEST_ASSERT_NOT_NULL(strstr(log_fake_errors, "/y.so is loaded into a namespace of its own"));
    TEST_ASSERT_EQUAL_INT(2, fake.expected_unseen);
    TEST_ASSERT_EQUAL_INT(2, fake.errors_cleared);

    setUp(); /* one that cannot be loaded */
    const struct trampoline_answer failed = rebind_dlmopen(LM_ID_NEWLM, "/x.so", RTLD_NOW, NULL);
    TEST_ASSERT_EQUAL_UINT64(1, failed.decided);
    TEST_ASSERT_NULL(failed.address);
    TEST_ASSERT_EQUAL_STRING("", fake.past);
    TEST_ASSERT_EQUAL_INT(0, fake.errors_cleared);
    TEST_ASSERT_EQUAL_UINT64(0, rebind_dlmopen(LM_ID_NEWLM, "x.so", RTLD_NOW, NULL).decided);
    TEST_ASSERT_EQUAL_STRING("x.so", fake.past);
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.opened_apart, "one that is searched for is the real function's");
}

/* Runs last: from here on something is pending for good. */
static void test_an_object_that_is_searched_for_is_bound_at_the_next_call(void)
{
    TEST_ASSERT_EQUAL_UINT64(0, rebind_dlopen("$ORIGIN/plugin.so", DEEP, NULL, NULL).decided);
    TEST_ASSERT_EQUAL_STRING("$ORIGIN/plugin.so", fake.past);
    TEST_ASSERT_EQUAL_INT(1, fake.expected_unseen);
    TEST_ASSERT_TRUE(atomic_load(&rebind_pending));
    rebind_check(); /* not loaded yet */
    TEST_ASSERT_EQUAL_INT(0, fake.written);
    load_plugin();
    rebind_check();
    TEST_ASSERT_EQUAL_PTR(&hook, objects[2].values[0]);
    TEST_ASSERT_EQUAL_PTR(&drivers, objects[0].values[0]);
    TEST_ASSERT_EQUAL_INT(1, fake.written);
    objects[2].values[0] = &drivers; /* by its own wish, later */
    rebind_check();
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.written, "nothing new was loaded");
    load_plugin();
    rebind_check();
    TEST_ASSERT_EQUAL_PTR(&hook, objects[3].values[0]);
    fake.load = NULL;
    TEST_ASSERT_EQUAL_UINT64(0, rebind_dlopen("plugin.so", DEEP, NULL, NULL).decided);
    TEST_ASSERT_EQUAL_STRING("plugin.so", fake.past);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_a_namespace_of_its_own_cannot_be_bound); /* said once in a process */
    RUN_TEST(test_calls_of_a_deeply_bound_object_lead_to_the_hooks);
    RUN_TEST(test_an_object_that_was_loaded_already_is_not_looked_at);
    RUN_TEST(test_objects_are_found_wherever_they_lie_if_others_were_unloaded);
    RUN_TEST(test_a_slot_that_is_not_resolved_leads_to_the_hook);
    RUN_TEST(test_other_functions_and_the_drivers_own_calls_stay);
    RUN_TEST(test_its_constructors_may_have_looked_up_the_driver);
    RUN_TEST(test_each_function_of_the_loader_is_bound_to_its_own_hook);
    RUN_TEST(test_an_object_that_cannot_be_bound_is_said_and_counted);
    RUN_TEST(test_a_failed_dlopen_is_the_programs);
    RUN_TEST(test_other_calls_of_dlopen_go_to_the_real_one);
    RUN_TEST(test_owners_are_told_of_unloaded_libraries_before_each_load);
    RUN_TEST(test_an_object_that_is_searched_for_is_bound_at_the_next_call);
    return UNITY_END();
}
