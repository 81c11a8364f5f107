/* ipc_import: the blocks of other processes that are open here, see ipc.h.
 *
 * import_lock guards the list of imports and is held for a few instructions. The thread that opens a block
 * fetches and maps it, and the thread that closes it unmaps it, without the lock: meanwhile the import is in
 * no list, or marked as waiting. If two threads open the same block at once, one mapping is dropped again.
 */
#include "interpose/pool/capture.h"
#include "interpose/share/ipc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/pool/decay.h"
#include "interpose/share/ipc_import.h"
#include "interpose/share/ipc_source.h"

#define FIRST_ID (UINT64_C(1) << 62) /* BUFFER_IDs of opened blocks: not those of pools or the driver */

struct import {
    struct ipc_ticket ticket;
    struct ipc_source *source;
    struct ipc_block block;
    CUuuid card;
    uint64_t base, span; /* of the address space */
    uint64_t mapped;     /* bytes from base on */
    struct vmm_chunk *chunks;
    uint64_t count, room; /* of chunks */
    /* guarded by import_lock */
    unsigned opens; /* 0: closed; unmap when its work is done */
    int ending;     /* calls under way that may end its context */
    bool waiting;   /* the thread that closed it waits for its work, without the lock */
    uint64_t epoch; /* of its work, set when a sweep finds it closed; 0: not set */
    struct import *next;
};

/* An open under way. */
struct opening {
    CUcontext context;
    bool is_over; /* the context has ended meanwhile */
    struct opening *next;
};

static struct lock import_lock = LOCK_INITIALIZER(LOCK_IMPORTS);
static pthread_cond_t waited = PTHREAD_COND_INITIALIZER; /* with import_lock */
/* guarded by import_lock */
static struct import *imports;
static struct opening *openings;
static unsigned unmapping; /* threads that are unmapping an import that they removed from the list */
static uint64_t last_id;
static atomic_uint import_count; /* and openings; changed with import_lock */

/* ---- what the exporter has ---- */

static int card_of(const CUuuid *card, CUdevice *ordinal)
{
    CUuuid uuid;
    int count = 0;

    driver.cuDeviceGetCount(&count);
    for (*ordinal = 0; *ordinal < count; ++*ordinal) {
        if (driver.cuDeviceGetUuid_v2(&uuid, *ordinal) == CUDA_SUCCESS &&
            memcmp(&uuid, card, sizeof(uuid)) == 0)
            return 0;
    }
    return -ENODEV;
}

/* Returns true if the chunks so far hold all of the block. */
static bool is_complete(const struct import *import)
{
    return import->count && import->ticket.bytes <= import->span - import->ticket.offset;
}

/* Returns 0 if the chunk can be the next one of the block, else -EPROTO. */
static int check(const struct import *import, const struct ipc_chunk *chunk)
{
    if (is_complete(import) || chunk->bytes != import->ticket.bytes ||
        chunk->offset != import->ticket.offset || chunk->chunk_bytes == 0 || chunk->chunk_bytes % VMM_PAGE ||
        chunk->chunk_bytes > VMM_SPAN - import->span)
        return -EPROTO;
    if (import->count)
        return memcmp(&chunk->card, &import->card, sizeof(import->card)) == 0 ? 0 : -EPROTO;
    return chunk->offset < chunk->chunk_bytes ? 0 : -EPROTO;
}

static bool make_room(struct import *import)
{
    const uint64_t room = import->room ? 2 * import->room : 8;
    struct vmm_chunk *more;

    if (import->count < import->room)
        return true;
    more = realloc(import->chunks, room * sizeof(*more));
    if (!more)
        return false;
    import->chunks = more;
    import->room = room;
    return true;
}

/* Relaxes the capture mode: otherwise the driver may consider the call unsafe and end an open capture. */
static bool import_chunk(struct vmm_chunk *taken, int fd)
{
    const CUstreamCaptureMode mode = driver_relax();
    const bool imported =
        driver.cuMemImportFromShareableHandle(&taken->handle, (void *)(intptr_t)fd,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS;

    driver_restore(mode);
    return imported;
}

static int take_chunk(struct import *import, const struct ipc_chunk *chunk, int fd)
{
    int rc = check(import, chunk);

    if (rc == 0 && import->count == 0) {
        import->card = chunk->card;
        rc = card_of(&chunk->card, &import->block.ordinal);
    }
    if (rc == 0 && !make_room(import))
        rc = -ENOMEM;
    if (rc)
        return rc;
    struct vmm_chunk *taken = &import->chunks[import->count];
    if (!import_chunk(taken, fd))
        return -EIO;
    taken->bytes = chunk->chunk_bytes;
    import->count++;
    import->span += chunk->chunk_bytes;
    return 0;
}

/* Imports the chunks that belong to the block. */
static int take_chunks(void *argument, const struct ipc_chunks *chunks, const int *fds)
{
    struct import *import = argument;
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < chunks->count; i++) {
        if (chunks->list[i].id == import->ticket.id)
            rc = take_chunk(import, &chunks->list[i], fds[i]);
    }
    return rc;
}

/* Asks the exporter for the chunks that are missing. */
static int ask_for_rest(struct import *import)
{
    struct ipc_link link;
    int rc = ipc_source_connect(&link, &import->ticket);

    if (rc)
        return rc;
    while (rc == 0 && !is_complete(import)) {
        const uint64_t before = import->count;

        rc = ipc_source_ask(&link, import->ticket.id, before, take_chunks, import);
        if (rc == 0 && import->count == before)
            rc = -EPROTO;
    }
    ipc_source_disconnect(&link);
    return rc;
}

static int fetch(struct import *import)
{
    const int rc = ipc_source_look(import->source, take_chunks, import);

    return rc || is_complete(import) ? rc : ask_for_rest(import);
}

/* ---- mapping ---- */

static int map(struct import *import, CUdevice current)
{
    CUmemAccessDesc access[2] = {{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = current},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    const bool elsewhere = current != import->block.ordinal;
    CUdeviceptr base;

    if (driver.cuMemAddressReserve(&base, import->span, VMM_PAGE, 0, 0) != CUDA_SUCCESS)
        return -ENOMEM;
    import->base = base;
    for (uint64_t i = 0; i < import->count; i++) {
        if (driver.cuMemMap(base + import->mapped, import->chunks[i].bytes, 0, import->chunks[i].handle, 0) !=
            CUDA_SUCCESS)
            return -EIO;
        import->mapped += import->chunks[i].bytes;
    }
    access[1] = access[0];
    access[1].location.id = import->block.ordinal;
    if (driver.cuMemSetAccess(base, import->span, access, elsewhere ? 2 : 1) != CUDA_SUCCESS)
        return -EIO;
    import->block.start = import->base + import->ticket.offset;
    import->block.bytes = import->ticket.bytes;
    return 0;
}

/* Unmaps, releases and frees an import that is in no list. `taken`: also counts a close. Without the lock. */
static void undo(struct import *import, bool taken)
{
    if (import->mapped)
        driver.cuMemUnmap(import->base, import->mapped);
    for (uint64_t i = 0; i < import->count; i++)
        driver.cuMemRelease(import->chunks[i].handle);
    if (import->base)
        driver.cuMemAddressFree(import->base, import->span);
    if (taken)
        ipc_source_drop(import->source, import->ticket.id);
    ipc_source_put(import->source);
    free(import->chunks);
    free(import);
}

/* ---- the list; with the lock ---- */

static void add(struct import *import)
{
    import->block.id = FIRST_ID + ++last_id;
    import->opens = 1;
    import->next = imports;
    imports = import;
    atomic_fetch_add(&import_count, 1);
}

/* Removes an import from the list and unmaps it. Drops the lock meanwhile. */
static void end(struct import *import)
{
    struct import **at = &imports;

    while (*at != import)
        at = &(*at)->next;
    *at = import->next;
    unmapping++;
    lock_release(&import_lock);
    undo(import, true);
    lock_take(&import_lock);
    unmapping--;
    atomic_fetch_sub(&import_count, 1);
    pthread_cond_broadcast(&waited);
}

void ipc_imports_before_fork(void)
{
    lock_take(&import_lock);
}

/* The child has no threads that wait or unmap. */
void ipc_imports_after_fork(bool in_child)
{
    while (in_child && imports) {
        struct import *import = imports;

        imports = import->next;
        free(import->chunks);
        free(import);
    }
    if (in_child) {
        openings = NULL;
        atomic_store(&import_count, 0);
        unmapping = 0;
        pthread_cond_init(&waited, NULL);
    }
    lock_release(&import_lock);
}

/* Takes the lock. Cancellation stays disabled also while the lock is dropped, or a block would stay open. */
static void enter(void)
{
    lock_disable_cancel();
    lock_take(&import_lock);
}

static void leave(void)
{
    lock_release(&import_lock);
    lock_restore_cancel();
}

/* Finds the import of a ticket in a context, but not one that is about to be unmapped. */
static struct import *find_open(const struct ipc_ticket *ticket, CUcontext context)
{
    struct import *import = imports;

    while (import &&
           !(import->block.context == context && !import->waiting && import->ticket.id == ticket->id &&
             memcmp(import->ticket.key, ticket->key, IPC_KEY) == 0))
        import = import->next;
    return import;
}

/* Returns true if the import is to be unmapped and no thread is doing so. */
static bool is_closed(const struct import *import)
{
    return !import->opens && !import->waiting && !import->ending;
}

static bool is_waiting(const struct import *import)
{
    return import->waiting;
}

/* Returns the first import of a context that `is` chooses (NULL: any). */
static struct import *first_in(CUcontext context, bool (*is)(const struct import *import))
{
    struct import *import = imports;

    while (import && (import->block.context != context || (is && !is(import))))
        import = import->next;
    return import;
}

/* ---- open ---- */

/* Fetches and maps a block. Returns 0 or -errno. Without the lock. */
static int open_new(const struct ipc_ticket *ticket, CUcontext context, struct import **out)
{
    struct import *import = calloc(1, sizeof(*import));
    CUdevice current;

    if (!import)
        return -ENOMEM;
    import->ticket = *ticket;
    import->block.context = context;
    int rc = ipc_source_get(ticket, &import->source);
    if (rc) {
        free(import);
        return rc;
    }
    rc = ipc_source_take(import->source, ticket->id);
    const bool taken = rc == 0;
    if (rc == 0 && driver.cuCtxGetDevice(&current) != CUDA_SUCCESS)
        rc = -EIO;
    if (rc == 0)
        rc = fetch(import);
    if (rc == 0)
        rc = map(import, current);
    if (rc) {
        undo(import, taken);
        return rc;
    }
    *out = import;
    return 0;
}

/* Counts one more open of a block that is open here. Returns true and *address, or false. */
static bool open_again(const struct ipc_ticket *ticket, CUcontext context, CUdeviceptr *address)
{
    struct import *import = find_open(ticket, context);

    if (import) {
        import->opens++;
        *address = import->block.start;
    }
    return import;
}

static void begin_opening(struct opening *opening)
{
    opening->next = openings;
    openings = opening;
    atomic_fetch_add(&import_count, 1);
}

static void end_opening(const struct opening *opening)
{
    struct opening **at = &openings;

    while (*at != opening)
        at = &(*at)->next;
    *at = opening->next;
    atomic_fetch_sub(&import_count, 1);
}

/* Opens a block. The caller holds the lock, which is dropped while the block is fetched. */
static int open_ticket(const struct ipc_ticket *ticket, CUcontext context, CUdeviceptr *address)
{
    struct opening opening = {.context = context};
    struct import *made = NULL;

    if (open_again(ticket, context, address))
        return 0;
    begin_opening(&opening);
    lock_release(&import_lock);
    const int rc = open_new(ticket, context, &made);
    lock_take(&import_lock);
    end_opening(&opening);
    if (rc)
        return rc;
    if (!opening.is_over && !open_again(ticket, context, address)) {
        add(made);
        *address = made->block.start;
        return 0;
    }
    lock_release(&import_lock);
    undo(made, true); /* another thread was faster, or has ended the context */
    lock_take(&import_lock);
    return opening.is_over ? -ECANCELED : 0;
}

int ipc_imports_open(const struct ipc_ticket *ticket, CUcontext context, CUdeviceptr *address)
{
    enter();
    const int rc = open_ticket(ticket, context, address);
    leave();
    return rc;
}

/* ---- close ---- */

/* Waits for the work of a closed import and unmaps it, with the lock dropped. Only a thread that ends the
 * context waits for this, and it waits for all work of the context anyway. Returns false if the wait failed
 * or a capture is open: then it stays mapped. */
static bool unmap(struct import *import)
{
    import->waiting = true;
    lock_release(&import_lock);
    const bool done = capture_wait_context(import->block.context) == CUDA_SUCCESS && !capture_any();
    lock_take(&import_lock);
    import->waiting = false;
    if (done)
        end(import);
    else
        pthread_cond_broadcast(&waited);
    return done;
}

/* Unmaps all closed imports of a context. Does not wait for work of other contexts, which may depend on what
 * the calling thread does next. */
static void unmap_closed(CUcontext context)
{
    struct import *import;

    while ((import = first_in(context, is_closed)) && unmap(import))
        ;
}

int ipc_close(CUdeviceptr address)
{
    if (!atomic_load(&import_count))
        return -ENOENT;
    enter();
    struct import *import = imports;
    while (import && !(import->block.start == address && import->opens))
        import = import->next;
    const bool found = import;
    bool left = false;
    if (found && --import->opens == 0) {
        const CUcontext context = import->block.context;

        import->epoch = 0;
        unmap_closed(context);
        left = first_in(context, is_closed);
    }
    leave();
    if (left)
        decay_wake();
    return found ? 0 : -ENOENT;
}

/* Returns a closed import in the fence's context whose work is done, or NULL. */
static struct import *find_done(struct fence *fence)
{
    struct import *import = imports;

    for (; import; import = import->next) {
        if (!is_closed(import) || import->block.context != fence->context)
            continue;
        if (!import->epoch)
            import->epoch = fence_epoch_quietly(fence);
        if (fence_done(fence, import->epoch))
            break;
    }
    return import;
}

void ipc_imports_sweep(struct fence *fence)
{
    struct import *import;

    if (!atomic_load(&import_count) || capture_any())
        return;
    lock_take(&import_lock);
    const bool any = first_in(fence->context, is_closed);
    lock_release(&import_lock);
    if (!any)
        return;
    fence_poll(fence); /* may wait for room in the driver's queue, and fork needs the lock */
    lock_take(&import_lock);
    while (!capture_any() && (import = find_done(fence)))
        end(import);
    lock_release(&import_lock);
}

/* ---- questions ---- */

enum ipc_place ipc_find(uint64_t address, struct ipc_block *block)
{
    enum ipc_place place = IPC_NOT_OURS;

    if (__builtin_expect(!atomic_load(&import_count), 1))
        return place;
    lock_take(&import_lock);
    struct import *import = imports;
    while (import && address - import->base >= import->span)
        import = import->next;
    if (import) {
        *block = import->block;
        place = import->opens && address - block->start < block->bytes ? IPC_BLOCK : IPC_BESIDE;
    }
    lock_release(&import_lock);
    return place;
}

/* ---- the end of a context ---- */

static void await_closers(CUcontext context)
{
    while (first_in(context, is_waiting) || unmapping)
        lock_wait(&import_lock, &waited);
}

void ipc_imports_ending(CUcontext context, bool ending)
{
    if (!atomic_load(&import_count))
        return;
    enter();
    for (struct import *import = imports; import; import = import->next) {
        if (import->block.context == context)
            import->ending += ending ? 1 : import->ending > 0 ? -1 : 0;
    }
    if (ending)
        await_closers(context);
    leave();
}

void ipc_imports_end(CUcontext context)
{
    struct import *import;

    if (!atomic_load(&import_count))
        return;
    enter();
    for (struct opening *opening = openings; opening; opening = opening->next)
        opening->is_over |= opening->context == context;
    await_closers(context); /* for imports that were opened while it ended */
    while ((import = first_in(context, NULL)))
        end(import);
    leave();
}
