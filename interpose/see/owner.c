/* owner: see owner.h.
 *
 * The table maps addresses of code to what is known of them, several entries per address if need be. An entry
 * is one word, read and written whole, so that a look-up needs no lock.
 */
#include "interpose/see/owner.h"

#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>

#include "interpose/base/lock.h"
#include "interpose/see/stacks.h"

#define PLACES       8192 /* words of the table; a power of two */
#define WAYS         4    /* places that an address can be in */
#define VALUE_BITS   16
#define VALUE_OWNER  0x8000 /* the address lies in the code of an owner, whose number is in the other bits */
#define WINDOW       512    /* words of the stack in which the caller of the hook's caller is looked for */
#define NEAR         64     /* words above a call by pointer within which a sure call is preferred to it */
#define PASSED_ON    4      /* libraries that may pass one call on */
#define HOOK_WINDOW  128    /* words between owner_enter and the hook's own return address */
#define FAILED_SITES 64
#define FAILED_TIMES 16   /* then the call site counts as the program */
#define SEARCHES     4000 /* at most; later call sites count as the program: a search takes 0.1 to 2 ms */

_Thread_local uint16_t owner_current;
_Thread_local uint32_t owner_stack;

static _Atomic uint64_t table[PLACES]; /* address << VALUE_BITS | value; value: VALUE_OWNER, or an offset: how
                                          many words above owner_enter's frame the caller is found */
static atomic_bool keep_stacks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock; names are written before `owners` includes them */
static struct owner {
    char name[OWNER_NAME];
    const char *path;
} list[OWNER_MAX];
static atomic_uint owners = 1; /* the first is the program */
static unsigned searches, turn;
static struct failed {
    uint64_t call;
    unsigned times;
} failed[FAILED_SITES]; /* searches from these call sites found nothing */
atomic_uint owner_reads;

/* ---- names ---- */

struct pattern {
    const char *part, *name;
};

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

const char *owner_name_of(const char *path)
{
    /* Of the file's name, at its beginning. */
    static const struct pattern files[] = {
        {"libcudnn", "cuDNN"},           {"libcublas", "cuBLAS"},     {"libnvblas", "cuBLAS"},
        {"libcufft", "cuFFT"},           {"libcusparse", "cuSPARSE"}, {"libcusolver", "cuSOLVER"},
        {"libcurand", "cuRAND"},         {"libcutensor", "cuTENSOR"}, {"libnccl", "NCCL"},
        {"libnvinfer", "TensorRT"},      {"libtorch", "PyTorch"},     {"libc10", "PyTorch"},
        {"libtensorflow", "TensorFlow"}, {"libnvrtc", "NVRTC"},       {"libnpp", "NPP"},
        {"libpython", "program"},        {"xla_cuda_plugin", "XLA"},  {"libxla", "XLA"},
    };
    /* Of the path, anywhere. */
    static const struct pattern folders[] = {
        {"/jaxlib/", "XLA"},    {"/jax_plugins/", "XLA"},       {"/cupy", "CuPy"},
        {"/torch/", "PyTorch"}, {"/tensorflow/", "TensorFlow"},
    };
    const char *base = base_of(path);

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        if (!strncmp(base, files[i].part, strlen(files[i].part)))
            return files[i].name;
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        if (strstr(path, folders[i].part))
            return folders[i].name;
    }
    return base;
}

/* Returns true if the file's name begins with one of the names, ended by NULL. */
static bool begins_with_any(const char *path, const char *const *names)
{
    const char *base = base_of(path);

    while (*names && strncmp(base, *names, strlen(*names)) != 0)
        names++;
    return *names != NULL;
}

bool owner_passes_on(const char *path)
{
    static const char *const names[] = {"libcuda.so", "libcudart", "libgpucap",  "libffi", "_ctypes.",
                                        "ld-linux",   "libc.so",   "libpthread", NULL};

    return begins_with_any(path, names);
}

bool owner_never_calls(const char *path)
{
    static const char *const names[] = {"libstdc++", "libgcc_s", "libm.so", NULL};

    return begins_with_any(path, names);
}

/* Returns true for the path of the program, as in the table of mappings, where it may be written otherwise
 * than elsewhere: the kernel escapes a newline there. */
static bool is_program(const char *path)
{
    const struct owner_map *program = owner_maps_find(getauxval(AT_ENTRY));

    return program && program->path == path;
}

/* Returns the owner for a file, with the lock held. */
static uint16_t owner_of_file(const char *path)
{
    const unsigned known = atomic_load(&owners);
    const char *name = owner_name_of(path);

    if (is_program(path) || !strcmp(name, "program"))
        return 0;
    for (unsigned i = 1; i < known; i++) {
        if (!strncmp(list[i].name, name, OWNER_NAME - 1))
            return (uint16_t)i;
    }
    if (known == OWNER_MAX)
        return 0;
    strncpy(list[known].name, name, OWNER_NAME - 1);
    list[known].path = path;
    atomic_store_explicit(&owners, known + 1, memory_order_release);
    return (uint16_t)known;
}

const char *owner_name(uint16_t owner)
{
    if (owner == 0)
        return "program";
    return owner < atomic_load_explicit(&owners, memory_order_acquire) ? list[owner].name : "";
}

const char *owner_path(uint16_t owner)
{
    const bool known = owner && owner < atomic_load_explicit(&owners, memory_order_acquire);

    return known ? list[owner].path : "";
}

/* ---- the table ---- */

static _Atomic uint64_t *place(uint64_t address, unsigned way)
{
    const uint64_t hash = address * UINT64_C(0x9e3779b97f4a7c15) >> 40;

    return &table[(hash * WAYS + way) & (PLACES - 1)];
}

/* Returns the value of the address in this place, or -1. Acquire: who sees an owner also sees its name. */
static int value_at(uint64_t address, unsigned way)
{
    const uint64_t word = atomic_load_explicit(place(address, way), memory_order_acquire);

    return word >> VALUE_BITS == address ? (int)(word & (UINT64_C(0xffff))) : -1;
}

/* Returns the owner of a return address that has been looked at, or -1. */
static int known_owner(uint64_t address)
{
    for (unsigned way = 0; way < WAYS; way++) {
        const int value = value_at(address, way);

        if (value >= VALUE_OWNER)
            return value - VALUE_OWNER;
    }
    return -1;
}

/* With the lock held. */
static void remember(uint64_t address, unsigned value)
{
    const uint64_t word = address << VALUE_BITS | value;
    unsigned way = 0;

    if (address >> (64 - VALUE_BITS))
        return;
    for (unsigned i = 0; i < WAYS; i++) {
        if (value_at(address, i) == (int)value)
            return;
    }
    while (way < WAYS && atomic_load_explicit(place(address, way), memory_order_relaxed))
        way++;
    atomic_store_explicit(place(address, way < WAYS ? way : turn++ % WAYS), word, memory_order_release);
}

/* Reads the mappings, with the lock held, and forgets addresses at which another library lies now. */
static void read_maps(void)
{
    owner_maps_read();
    atomic_fetch_add(&owner_reads, 1);
    for (size_t i = 0; i < PLACES; i++) {
        const uint64_t word = atomic_load_explicit(&table[i], memory_order_relaxed);

        if (word && owner_maps_changed(word >> VALUE_BITS))
            atomic_store_explicit(&table[i], 0, memory_order_relaxed);
    }
}

void owner_forget_unloaded(unsigned long long unloaded)
{
    static atomic_ullong seen;

    if (atomic_exchange(&seen, unloaded) == unloaded)
        return;
    lock_mutex_take(&lock);
    read_maps();
    lock_mutex_release(&lock);
}

/* ---- the stack ---- */

/* Returns the calling thread's stack from owner_enter's frame upwards. */
static struct stack stack_above(const void *frame)
{
    uintptr_t low, high;
    const uintptr_t here = (uintptr_t)frame;

    events_stack(&low, &high);
    if (!low || here < low || here >= high) /* a stack that the program has made itself */
        return (struct stack){.words = frame, .count = 0};
    return (struct stack){.words = frame, .count = (high - here) / sizeof(uint64_t)};
}

/* How likely it is that a word of the stack is the return address of a call into the library `into`. */
enum likely { NO, BY_POINTER, SURE };

static enum likely calls_into(uint64_t address, const char *into)
{
    const struct owner_map *map = owner_maps_find(address);
    uint64_t target;

    if (!map || map->path == into || owner_never_calls(map->path))
        return NO;
    switch (owner_maps_call_before(address, &target)) {
    case OWNER_CALL_DIRECT: {
        const struct owner_map *to = owner_maps_find(target);

        return to && to->path == into ? SURE : NO;
    }
    case OWNER_CALL_POINTER:
        return BY_POINTER;
    default:
        return NO;
    }
}

/* Looks for the caller of a library above word number `from`: the first return address of a call that surely
 * leads into the library; or that of the first call by pointer, if no sure one follows within NEAR words.
 * Other words are remains of earlier calls. Returns its number, or 0. */
static size_t find_caller(struct stack stack, size_t from, const char *into)
{
    size_t by_pointer = 0;

    for (size_t i = from; i < from + WINDOW && i < stack.count; i++) {
        const enum likely likely = calls_into(stack_word(stack, i), into);

        if (likely == SURE)
            return i;
        if (likely == BY_POINTER && !by_pointer)
            by_pointer = i;
        if (by_pointer && i - by_pointer == NEAR)
            break;
    }
    return by_pointer;
}

/* The same through all libraries that pass the call on. */
static size_t find_first_caller(struct stack stack, uint64_t return_address, const char *into)
{
    size_t at = 0;

    while (at < HOOK_WINDOW && at < stack.count && stack_word(stack, at) != return_address)
        at++;
    for (int i = 0; i < PASSED_ON && (at = find_caller(stack, at + 1, into)); i++) {
        into = owner_maps_find(stack_word(stack, at))->path;
        if (!owner_passes_on(into))
            return at;
    }
    return 0;
}

/* Counts a search in vain, with the lock, so that callers in code of no file are not searched for again and
 * again. */
static void note_failure(uint64_t call)
{
    struct failed *site = &failed[call % FAILED_SITES];

    if (site->call != call)
        *site = (struct failed){.call = call};
    if (++site->times >= FAILED_TIMES)
        remember(call, VALUE_OWNER);
}

/* Looks at a call site for the first time. Returns its owner, and the caller's return address if that is
 * another than the hook's. */
static uint16_t search(struct stack stack, uint64_t return_address, uint64_t *caller)
{
    uint16_t owner = 0;

    lock_mutex_take(&lock);
    if (searches < SEARCHES) {
        searches++;
        read_maps();
        const struct owner_map *map = owner_maps_find(return_address);
        const size_t found =
            map && owner_passes_on(map->path) ? find_first_caller(stack, return_address, map->path) : 0;
        if (found) {
            *caller = stack_word(stack, found);
            owner = owner_of_file(owner_maps_find(*caller)->path);
            remember(*caller, VALUE_OWNER | owner);
            remember(return_address, (unsigned)found);
        } else if (map && !owner_passes_on(map->path)) {
            owner = owner_of_file(map->path);
            remember(return_address, VALUE_OWNER | owner);
        } else {
            note_failure(return_address);
        }
    }
    lock_mutex_release(&lock);
    return owner;
}

static uint16_t owner_of_call(struct stack stack, uint64_t return_address, uint64_t *caller)
{
    for (unsigned way = 0; way < WAYS; way++) {
        const int value = value_at(return_address, way);

        if (value >= VALUE_OWNER)
            return (uint16_t)(value - VALUE_OWNER);
        const uint64_t word = value > 0 ? stack_word(stack, (size_t)value) : 0;
        const int owner = word ? known_owner(word) : -1;
        if (owner >= 0) {
            *caller = word;
            return (uint16_t)owner;
        }
    }
    return search(stack, return_address, caller);
}

__attribute__((noinline)) void owner_enter(void *return_address)
{
    const struct stack stack = stack_above(__builtin_frame_address(0));
    const uint64_t call = (uint64_t)(uintptr_t)return_address;
    uint64_t caller = 0;

    owner_current = owner_of_call(stack, call, &caller);
    owner_stack = atomic_load_explicit(&keep_stacks, memory_order_relaxed)
                      ? stacks_take(stack, call, caller, owner_is_return)
                      : 0;
}

/* ---- for stacks ---- */

void owner_keep_stacks(bool on)
{
    atomic_store(&keep_stacks, on);
}

bool owner_is_return(uint64_t address)
{
    uint64_t target;

    if (known_owner(address) >= 0)
        return true;
    lock_mutex_take(&lock);
    bool is_return = false;
    if (searches < SEARCHES) {
        const struct owner_map *map = owner_maps_find(address);

        if (!map) {
            searches++;
            read_maps();
            map = owner_maps_find(address);
        }
        is_return = map && owner_maps_call_before(address, &target) != OWNER_NO_CALL;
        if (is_return)
            remember(address, VALUE_OWNER | owner_of_file(map->path));
    }
    lock_mutex_release(&lock);
    return is_return;
}

bool owner_module(size_t index, struct owner_map *module)
{
    size_t count;

    pthread_mutex_lock(&lock);
    const struct owner_map *maps = owner_maps_all(&count);
    if (index < count)
        *module = maps[index];
    pthread_mutex_unlock(&lock);
    return index < count;
}

void owner_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    owner_maps_after_fork();
    owner_current = 0;
    owner_stack = 0;
}
