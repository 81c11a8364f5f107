/* route_grow: memory that the driver takes for itself: contexts, code, stacks, graphs. See route.h. */
#include "interpose/route.h"

#include "interpose/account/known_kernels.h"
#include "interpose/base/lock.h"
#include "interpose/base/sums.h"
#include "interpose/lend.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/recorded.h"
#include "interpose/refusal.h"
#include "interpose/see/events.h"
#include "interpose/settings/log.h"
#include "interpose/share/ipc.h"

#include <errno.h>
#include <pthread.h>

#define GROWTH_UNKNOWN   LIMIT_PAGE
#define CONTEXTS_COUNTED 64 /* contexts whose growth is known; the stack of any beyond counts as fresh */

/* ---- growth ---- */

static bool grant(struct route_growth *growth, struct device *device, uint64_t bytes)
{
    if (!account_grow_begin(&device->account, bytes))
        return false;
    *growth = (struct route_growth){.device = device, .bytes = bytes};
    lock_disable_cancel(); /* until settle_growth: the bytes would stay in flight for ever */
    return true;
}

static void settle_growth(const struct route_growth *growth, bool lasting)
{
    if (growth->beside) {
        device_end_admission(growth->beside, growth->bytes);
        lock_restore_cancel();
    }
    if (!growth->device)
        return;
    account_grow_end(&growth->device->account, growth->bytes, lasting);
    lock_restore_cancel();
}

static bool grow_borrowed(struct route_growth *growth, struct device *device, uint64_t bytes)
{
    struct loan loan = {.device = device, .need = bytes, .missing = account_short_to_grow};
    bool granted = false;

    while (!granted && lend_more(&loan))
        granted = grant(growth, device, bytes) ||
                  (route_make_room(device->ordinal, bytes) && grant(growth, device, bytes));
    lend_end(&loan);
    return granted;
}

static CUresult grow(struct route_growth *growth, struct device *device, uint64_t bytes)
{
    *growth = (struct route_growth){.device = NULL};
    if (!device || bytes == 0)
        return CUDA_SUCCESS;
    for (int i = 0; i < ROUTE_TRIES; i++) {
        const uint64_t before = route_given_back();

        if (grant(growth, device, bytes))
            return CUDA_SUCCESS;
        if (!route_make_room(device->ordinal, bytes) && route_given_back() == before)
            break;
    }
    if (grow_borrowed(growth, device, bytes))
        return CUDA_SUCCESS;
    refusal_say(device, REFUSAL_DRIVER, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Admits growth of a process without a limit beside what is kept for other jobs on `device` (NULL: nothing
 * is). With `retry` idle memory is given back first, ours and that of others. */
static bool grow_beside(struct route_growth *growth, struct device *device, uint64_t bytes, bool retry)
{
    if (!device)
        return true;
    struct route_attempt attempt = {.ordinal = device->ordinal, .bytes = bytes, .before = route_given_back()};
    do {
        if (device_admit(device, bytes)) {
            *growth = (struct route_growth){.beside = device, .bytes = bytes};
            lock_disable_cancel(); /* until settle_growth: the claim would stay */
            return true;
        }
    } while (retry && route_retry(&attempt));
    return false;
}

/* Finds the current context's card. Returns 0; *device is NULL if it is not limited or there is none. */
static int growing_card(struct device **device)
{
    *device = NULL;
    if (!route_limited())
        return 0;
    const int rc = device_find_current(device);
    return rc == -ENXIO ? 0 : rc;
}

CUresult route_grow_begin(struct route_growth *growth, uint64_t bytes)
{
    struct device *device;

    *growth = (struct route_growth){.device = NULL};
    if (growing_card(&device))
        return route_refuse_unknown(BLOCKS_ASYNC);
    bytes = bytes ? limit_round(bytes) : GROWTH_UNKNOWN;
    if (device)
        return grow(growth, device, bytes);
    struct device *guarded = route_active() ? device_guarded_current() : NULL;
    if (grow_beside(growth, guarded, bytes, true))
        return CUDA_SUCCESS;
    refusal_say_kept(guarded, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Returns the bytes to ask for before a context is made: the known size of one. If that is not known, the
 * context is made, measured, and destroyed if it does not fit. Then, where other processes share the budget,
 * up to ACCOUNT_CONTEXT_GUESS of the room is kept from them meanwhile. */
static uint64_t context_need(struct device *device)
{
    uint64_t known = atomic_load(&device->context_bytes);

    if (known || !device_shares(device))
        return known;
    known = ledger_context_bytes(device->ledger);
    return known ? known : sums_smaller(account_room(&device->account), ACCOUNT_CONTEXT_GUESS);
}

CUresult route_grow_context_begin(struct route_growth *growth, CUdevice ordinal)
{
    struct device *device = NULL;

    *growth = (struct route_growth){.device = NULL};
    if (route_limited() && device_find(ordinal, &device) == -ENODEV) {
        route_refuse_unknown(BLOCKS_ASYNC);
        return CUDA_ERROR_NOT_PERMITTED;
    }
    /* Without a limit too, so that it can ask others for idle memory if the card is full. */
    struct device *listed = device || !route_active() ? device : device_list(ordinal);
    if (listed)
        lend_listen(listed);
    return grow(growth, device, device ? context_need(device) : 0);
}

bool route_grow_graph_begin(struct route_growth *growth, CUdevice ordinal, uint64_t bytes, bool borrow)
{
    struct device *device;

    *growth = (struct route_growth){.device = NULL};
    if (bytes == 0)
        return true;
    if (device_find(ordinal, &device) == -ENODEV)
        return false;
    if (!device)
        return grow_beside(growth, device_guarded(ordinal), bytes, borrow);
    return grant(growth, device, bytes) || (borrow && grow_borrowed(growth, device, bytes));
}

void route_grow_graph_end(const struct route_growth *growth)
{
    settle_growth(growth, false);
}

void route_touch(CUdevice ordinal)
{
    struct device *device = device_get(ordinal);

    if (device)
        account_touch(&device->account);
}

/* ---- what contexts hold ----
 *
 * A context keeps stack for every thread that can be resident, as much as the largest stack that a kernel has
 * needed so far. Its growth ends with the context. */

static struct grown {
    _Atomic(CUcontext) context;      /* NULL: unused */
    _Atomic uint64_t stack;          /* bytes per thread for which the context keeps stack */
    _Atomic uint64_t heap, fifo;     /* largest sizes that were set, of kernels' malloc and printf */
    _Atomic uint64_t bytes;          /* bytes of growth, as requested */
    _Atomic uint64_t own;            /* bytes that count for the context itself; 0: card.present counts it */
    _Atomic(struct device *) device; /* its card; NULL: not limited, or not known yet */
} contexts[CONTEXTS_COUNTED];
static atomic_bool not_all_counted; /* there were more at some time */
/* Held for a few instructions while a context is counted or leaves; taken before the account's. */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

/* Returns the entry of a context, a new one if it has none, or NULL if all are in use. */
static struct grown *entry_of(CUcontext context)
{
    for (int i = 0; i < CONTEXTS_COUNTED; i++) {
        if (atomic_load(&contexts[i].context) == context)
            return &contexts[i];
    }
    for (int i = 0; i < CONTEXTS_COUNTED; i++) {
        CUcontext none = NULL;

        if (atomic_compare_exchange_strong(&contexts[i].context, &none, context)) {
            atomic_store(&contexts[i].stack, ROUTE_STACK);
            atomic_store(&contexts[i].heap, 0);
            atomic_store(&contexts[i].fifo, 0);
            atomic_store(&contexts[i].bytes, 0);
            atomic_store(&contexts[i].own, 0);
            atomic_store(&contexts[i].device, NULL);
            return &contexts[i];
        }
        if (none == context) /* another thread was faster */
            return &contexts[i];
    }
    atomic_store(&not_all_counted, true);
    return NULL;
}

/* Returns the entry of the current context, or NULL. A green one grows with the primary one behind it. */
static struct grown *current_context(void)
{
    CUcontext context = NULL;

    return driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context
               ? entry_of(pools_owner_if_green(context))
               : NULL;
}

/* Returns true if a context other than `context` is known on the card. */
static bool has_another(const struct device *device, CUcontext context)
{
    for (int i = 0; i < CONTEXTS_COUNTED; i++) {
        CUcontext other = atomic_load(&contexts[i].context);

        if (other && other != context && atomic_load(&contexts[i].device) == device)
            return true;
    }
    return false;
}

/* If the card has another context, card.present counts that one from now on, and it no longer counts as
 * growth. */
static void count_by_presence(struct device *device)
{
    for (int i = 0; i < CONTEXTS_COUNTED; i++) {
        if (!atomic_load(&contexts[i].context) || atomic_load(&contexts[i].device) != device)
            continue;
        const uint64_t own = atomic_exchange(&contexts[i].own, 0);
        if (own) {
            account_forget_growth(&device->account, own);
            return;
        }
    }
}

static void forget_context(CUcontext context)
{
    lock_mutex_take(&counting);
    for (int i = 0; context && i < CONTEXTS_COUNTED; i++) {
        if (atomic_load(&contexts[i].context) != context)
            continue;
        struct device *device = atomic_load(&contexts[i].device);
        const uint64_t own = atomic_load(&contexts[i].own);
        if (device)
            account_forget_growth(&device->account, atomic_load(&contexts[i].bytes) + own);
        if (device && !has_another(device, context) && !atomic_load(&not_all_counted)) {
            atomic_store(&device->card.present, false);
            account_touch(&device->account); /* a measurement meanwhile has counted the context */
        }
        atomic_store(&contexts[i].context, NULL);
        if (device && !own) /* another one takes its place */
            count_by_presence(device);
    }
    lock_mutex_release(&counting);
}

/* Settles the growth of a context that is not the card's only one; if its size is not known, by a guess. */
static void settle_own(const struct route_growth *growth, struct device *device, struct grown *made)
{
    const uint64_t bytes = growth->bytes ? growth->bytes : ACCOUNT_CONTEXT_GUESS;

    if (made)
        atomic_store(&made->own, bytes);
    if (!growth->bytes)
        account_add_growth(&device->account, bytes);
    settle_growth(growth, true);
}

/* The card's first context is counted by the account itself (card.present), any other as growth. */
void route_grow_context_end(const struct route_growth *growth, CUdevice ordinal, CUcontext context)
{
    struct device *device = context && route_limited() ? device_get(ordinal) : NULL;

    if (!device) {
        settle_growth(growth, false);
        return;
    }
    lock_mutex_take(&counting);
    struct grown *made = entry_of(context);
    const bool another = !made || has_another(device, context);
    if (made)
        atomic_store(&made->device, device);
    atomic_store(&device->card.present,
                 true); /* before the growth is settled: one of the two always counts */
    if (another)
        settle_own(growth, device, made);
    else
        settle_growth(growth, false);
    lock_mutex_release(&counting);
}

void route_grow_end(const struct route_growth *growth)
{
    struct grown *context = growth->device ? current_context() : NULL;

    if (context) {
        atomic_fetch_add(&context->bytes, growth->bytes);
        atomic_store(&context->device, growth->device);
    }
    settle_growth(growth, true);
}

/* Another thread may have asked for a larger stack meanwhile. */
void route_grow_abort(const struct route_growth *growth)
{
    struct grown *context = growth->stack ? current_context() : NULL;
    uint64_t asked = growth->stack;

    if (context)
        atomic_compare_exchange_strong(&context->stack, &asked, growth->stack_before);
    settle_growth(growth, false);
}

void route_grow_result(const struct route_growth *growth, CUresult result)
{
    if (result == CUDA_SUCCESS)
        route_grow_end(growth);
    else
        route_grow_abort(growth);
}

CUresult route_grow_stack_begin(struct route_growth *growth, uint64_t bytes_per_thread)
{
    struct device *device;
    uint64_t need;

    *growth = (struct route_growth){.device = NULL};
    if (bytes_per_thread <= ROUTE_STACK)
        return CUDA_SUCCESS;
    if (growing_card(&device))
        return route_refuse_unknown(BLOCKS_ASYNC);
    if (!device)
        return CUDA_SUCCESS;
    struct grown *context = current_context();
    const uint64_t before = context ? atomic_load(&context->stack) : ROUTE_STACK;
    if (bytes_per_thread <= before)
        return CUDA_SUCCESS;
    if (__builtin_mul_overflow(bytes_per_thread - before, device->threads, &need))
        need = UINT64_MAX;
    const CUresult result = grow(growth, device, limit_round(need));
    if (result == CUDA_SUCCESS && context) {
        growth->stack = bytes_per_thread;
        growth->stack_before = before;
        atomic_store(&context->stack, bytes_per_thread); /* other threads need not ask for it */
    }
    return result;
}

static _Atomic uint64_t *largest(struct grown *context, CUlimit which)
{
    return which == CU_LIMIT_MALLOC_HEAP_SIZE ? &context->heap : &context->fifo;
}

CUresult route_grow_heap_begin(struct route_growth *growth, CUlimit which, uint64_t bytes)
{
    struct grown *context = route_limited() ? current_context() : NULL;
    const uint64_t before = context ? atomic_load(largest(context, which)) : 0;

    *growth = (struct route_growth){.device = NULL};
    return bytes > before ? route_grow_begin(growth, bytes - before) : CUDA_SUCCESS;
}

void route_grow_heap_end(const struct route_growth *growth, CUlimit which, uint64_t bytes)
{
    struct grown *context = growth->device ? current_context() : NULL;

    if (context)
        atomic_store(largest(context, which), bytes);
    route_grow_end(growth);
}

/* ---- the beginning and the end of a context ---- */

/* Returns what all processes use on the card; UINT64_MAX if not known. */
static uint64_t card_used(CUcontext context)
{
    size_t free_bytes, total;
    uint64_t used = UINT64_MAX;

    if (driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return used;
    if (driver.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS && free_bytes <= total)
        used = total - free_bytes;
    driver.cuCtxPopCurrent_v2(&context);
    return used;
}

#define CONTEXT_TRIES 4 /* of having others give idle memory back */

/* Returns true if the card has what is kept for other jobs beside a context that was just made. If not, other
 * processes give idle memory back first. */
static bool leaves_guarantees(struct device *device, CUcontext context)
{
    bool leaves = true;
    int tries = 0;

    if (!device->ledger || !ledger_is_guarded(device->ledger) ||
        driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return true;
    do {
        uint64_t free_bytes;

        leaves = device_free_bytes(device, &free_bytes) != 0 || free_bytes >= ledger_kept(device->ledger);
    } while (!leaves && tries++ < CONTEXT_TRIES && lend_on_card(device->ordinal, LIMIT_PAGE));
    driver.cuCtxPopCurrent_v2(&context);
    if (!leaves) {
        char kept[SIZE_TEXT];

        log_error("out of memory on device %d: a CUDA context would leave less than the %s that are kept for "
                  "other jobs (their min)",
                  device->ordinal, size_format(ledger_kept(device->ledger), kept));
    }
    return leaves;
}

void route_context_failed(CUdevice ordinal)
{
    struct device *device = route_limited() ? device_get(ordinal) : NULL;

    if (device && device->ledger)
        ledger_set_context_bytes(device->ledger, 0);
}

/* Says once that a context does not fit: programs may try again and again. */
static void say_context(const struct device *device, bool shares, uint64_t used)
{
    const bool of_job = shares && ledger_is_over(device->ledger);
    char bytes[SIZE_TEXT], limit[SIZE_TEXT];

    LOG_ERROR_ONCE("the CUDA context on device %d does not fit: %s would use %s, the limit is %s; raise %s",
                   device->ordinal, of_job ? "this process's job" : "this process",
                   size_format(of_job ? ledger_used(device->ledger) : used, bytes),
                   size_format(of_job ? ledger_max(device->ledger) : device->limit, limit),
                   device_limit_kind(device) == RECORDING_LIMIT_ADMIN ? "max in " OPTIONS_ADMIN_FILE
                   : shares && !of_job                                ? "each"
                                                                      : "max");
}

/* A context that was the only one when it was made, while it lives. Once a second one exists beside it, the
 * order of streams is not relied on again. */
static _Atomic(CUcontext) only_context;

/* Notes what a context takes, if that is not known. In a job others rely on the figure: it is that of one
 * context. */
static void note_context_bytes(struct device *device, CUcontext context, uint64_t bytes, bool measured)
{
    const bool shares = device_shares(device);
    uint64_t none = 0;

    if (bytes > ACCOUNT_CONTEXT_GUESS && !shares) /* the figure includes other processes */
        bytes = ACCOUNT_CONTEXT_GUESS;
    if (shares && has_another(device, context))
        bytes = 0;
    if (atomic_compare_exchange_strong(&device->context_bytes, &none, bytes) && shares)
        ledger_set_context_bytes(device->ledger, measured ? bytes : 0);
}

/* Returns true if the limits hold with a context that was just made. */
static bool fits_limits(struct device *device, CUcontext context)
{
    const bool shares = device_shares(device);
    uint64_t used, other = 0; /* memory that is not the context's */
    bool measured = true;

    if (device->ledger && !shares && ledger_has_min(device->ledger))
        account_view(&device->account); /* publishes what it uses: so much less is kept for it */
    used = card_used(context);
    if (used > device->limit || shares) {
        const struct account_view own = account_view(&device->account);

        used = sums_smaller(own.used, used); /* without a measurement, the account's figure is a guess */
        other = own.charged < used ? own.charged : 0;
        measured = own.measured;
    }
    if (used > device->limit || (shares && ledger_is_over(device->ledger))) {
        say_context(device, shares, used);
        return false;
    }
    note_context_bytes(device, context, used - other, measured);
    return true;
}

static bool context_fits(CUdevice ordinal, CUcontext context)
{
    struct device *limited = device_get(ordinal), *device = limited ? limited : device_list(ordinal);

    if (!device)
        return true;
    const bool leaves = leaves_guarantees(device, context);
    if (leaves)
        atomic_store(&device->card.present, true);
    if (limited)
        account_touch(&device->account); /* after `present`: a measurement depends on it */
    if (!leaves)
        return false;
    lend_start(device);
    return !limited || fits_limits(device, context);
}

CUresult route_context_made(CUdevice ordinal, CUcontext context)
{
    CUcontext before = NULL;

    if (!route_active())
        return CUDA_SUCCESS;
    if (!atomic_compare_exchange_strong(&only_context, &before, context) && before != context)
        pools_distrust();
    recorded_context_made(ordinal, context);
    if (context_fits(ordinal, context))
        return CUDA_SUCCESS;
    route_context_failed(ordinal);
    forget_context(context);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void forget_context_bytes(struct device *device)
{
    atomic_store(&device->context_bytes, 0);
    account_touch(&device->account);
}

void route_context_end_begin(CUcontext context)
{
    known_kernels_forget();
    if (route_active() && context) {
        ipc_exports_ending(context, true);
        ipc_imports_ending(context, true);
        pools_context_end_begin(context);
    }
}

void route_context_end_abort(CUcontext context)
{
    if (route_active() && context) {
        pools_context_end_abort(context);
        ipc_imports_ending(context, false);
        ipc_exports_ending(context, false);
    }
}

void route_context_end(CUcontext context)
{
    CUcontext ended = context;
    struct block block;

    drivers_pools_current_changes();
    if (!route_active())
        return;
    atomic_compare_exchange_strong(&only_context, &ended, NULL);
    while (context && blocks_take_of_context(context, &block)) {
        events_note_free(block.kind == BLOCKS_ARRAY || block.kind == BLOCKS_MIPMAP ? RECORDING_ARRAY
                                                                                   : RECORDING_MALLOC,
                         block.key, NULL);
        route_uncharge(&block);
    }
    recorded_context_ended(context);
    device_each(forget_context_bytes);
    capture_context_end(context);
    ipc_exports_end(context);
    ipc_imports_end(context);
    pools_context_end(context);
    forget_context(context); /* last: when all its memory has left the account */
}

bool route_set_limit(struct device *device, uint64_t bytes)
{
    if (!device_set_limit(device, bytes))
        return false;
    account_view(&device->account); /* measures */
    const uint64_t missing = account_short_to_take(&device->account, 0);
    if (missing && pools_trim(device->ordinal, missing) < missing)
        drivers_pools_trim(device->ordinal);
    return true;
}
