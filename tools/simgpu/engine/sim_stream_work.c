/* sim_stream_work: submits work to streams and runs it on worker threads. See sim_stream_work.h. */
#include "tools/simgpu/engine/sim_stream_work.h"

#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_local.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"

#include <signal.h>
#include <stdlib.h>

static _Thread_local bool on_worker;
static uint64_t last_id;

bool sim_stream_on_worker(void)
{
    return on_worker;
}

/* ---- the worker ---- */

static void free_stream(struct CUstream_st *stream)
{
    sim_op_drop(stream->tail);
    sim_list_remove(&stream->link);
    sim_nodes_clear(&stream->frontier);
    pthread_cond_destroy(&stream->ready);
    free(stream);
}

static void run_op(struct sim_op *op)
{
    while (!sim_ops_done(&(struct sim_ops){op->after, op->after_count}) || (op->beside && !op->beside->begun))
        sim_lock_wait();
    op->begun = true;
    if (op->is_kernel)
        sim_lock_wake();
    sim_lock_drop();
    sim_work_run(op->work);
    sim_work_delete(op->work);
    sim_lock_take();
    sim_ops_clear(&(struct sim_ops){op->after, op->after_count});
    op->work = NULL;
    op->after = NULL;
    op->after_count = 0;
    op->done = true;
    op->done_ns = sim_stream_now_ns();
    sim_lock_wake();
}

static void *worker(void *argument)
{
    struct CUstream_st *stream = argument;

    on_worker = true;
    sim_lock_take();
    for (;;) {
        struct sim_op *op;

        while (sim_list_empty(&stream->queue) && !stream->destroyed)
            sim_lock_wait_on(&stream->ready);
        if (sim_list_empty(&stream->queue))
            break;
        op = LIST_ITEM(stream->queue.next, struct sim_op, link);
        run_op(op);
        sim_list_remove(&op->link);
        sim_op_drop(op);
    }
    free_stream(stream);
    sim_lock_drop();
    return NULL;
}

static bool start_worker(struct CUstream_st *stream)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, old;
    int error;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* signals are for the program's own threads */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&thread, &attributes, worker, stream);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    stream->has_worker = error == 0;
    return stream->has_worker;
}

/* ---- submitting ---- */

static CUresult enqueue(struct CUstream_st *stream, struct sim_work *work, struct sim_ops *after,
                        struct sim_op **out)
{
    struct sim_op *op = calloc(1, sizeof(*op));

    if (!op || (!stream->has_worker && !start_worker(stream))) {
        free(op);
        sim_work_delete(work);
        sim_ops_clear(after);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->refs = 2; /* one for the queue, one for the tail */
    op->work = work;
    op->is_kernel = work->kind == WORK_KERNEL;
    op->after = after->items;
    op->after_count = after->count;
    op->stream = stream->id;
    op->place = stream->tail ? stream->tail->place + 1 : 1;
    sim_op_drop(stream->tail);
    stream->tail = op;
    sim_list_append(&stream->queue, &op->link);
    pthread_cond_signal(&stream->ready);
    *out = op;
    return CUDA_SUCCESS;
}

/* May this work begin before the work before it has ended? */
static bool is_early(const struct CUstream_st *stream, const struct sim_work *work)
{
    return work->kind == WORK_KERNEL && work->kernel.early && stream->tail && stream->tail->is_kernel &&
           !stream->tail->done;
}

static void forget_op(struct sim_ops *ops, const struct sim_op *op)
{
    unsigned int i;

    for (i = 0; i < ops->count; i++)
        if (ops->items[i] == op) {
            sim_op_drop(ops->items[i]);
            ops->items[i] = ops->items[--ops->count];
            return;
        }
}

/* Submits a kernel that runs at the same time as the previous one, on a thread of its own. Later work waits
 * for both. */
static CUresult enqueue_beside(struct CUstream_st *stream, struct sim_work *work, struct sim_ops *after)
{
    struct sim_op *before = stream->tail, *op;
    struct sim_ops both;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!stream->beside)
        stream->beside =
            sim_stream_new(stream->green ? stream->green : stream->context, CU_STREAM_NON_BLOCKING, 0);
    if (!stream->beside) {
        sim_work_delete(work);
        sim_ops_clear(after);
        return result;
    }
    forget_op(after, before);
    result = enqueue(stream->beside, work, after, &op);
    if (result != CUDA_SUCCESS)
        return result;
    op->beside = before; /* the worker cannot have seen the op yet: it needs the lock */
    before->refs++;
    if (!sim_ops_copy(&both, &(struct sim_ops){(struct sim_op *[]){op, before}, 2}))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return sim_stream_submit_after(stream, &both);
}

CUresult sim_stream_submit(struct CUstream_st *stream, struct sim_work *work, bool wait)
{
    CUresult result;
    struct sim_ops after;
    struct sim_op *op;

    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (stream->capture)
        return sim_capture_add(stream, work);
    result = sim_capture_check_implicit(stream);
    if (result == CUDA_SUCCESS && work->kind == WORK_KERNEL)
        result = sim_local_grow(stream->context, work->kernel.local);
    if (result == CUDA_SUCCESS && !sim_stream_pending(stream, &after))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        sim_work_delete(work);
        return result;
    }
    if (is_early(stream, work))
        return enqueue_beside(stream, work, &after);
    result = enqueue(stream, work, &after, &op);
    if (result != CUDA_SUCCESS || !wait)
        return result;
    op->refs++;
    while (!op->done)
        sim_lock_wait();
    sim_op_drop(op);
    return CUDA_SUCCESS;
}

CUresult sim_stream_submit_after(struct CUstream_st *stream, struct sim_ops *after)
{
    struct sim_work *nothing;
    struct sim_op *op;

    if (sim_ops_done(after)) {
        sim_ops_clear(after);
        return CUDA_SUCCESS;
    }
    nothing = sim_work_new(WORK_NOTHING);
    if (!nothing) {
        sim_ops_clear(after);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return enqueue(stream, nothing, after, &op);
}

/* ---- creating and destroying ---- */

/* Makes a new stream wait for what its context waits for. Returns false if the host is out of memory. */
static bool keep_back(struct CUstream_st *stream, const struct CUctx_st *context)
{
    struct sim_ops after;

    return !context->barrier || (sim_ops_copy(&after, context->barrier) &&
                                 sim_stream_submit_after(stream, &after) == CUDA_SUCCESS);
}

struct CUstream_st *sim_stream_new(struct CUctx_st *context, unsigned int flags, int priority)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));

    if (!stream)
        return NULL;
    stream->context = sim_context_base(context);
    stream->green = context->base ? context : NULL;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++last_id;
    pthread_cond_init(&stream->ready, NULL);
    sim_list_init(&stream->queue);
    sim_list_append(&stream->context->streams, &stream->link);
    if (!keep_back(stream, stream->context) || (stream->green && !keep_back(stream, stream->green))) {
        sim_stream_end(stream);
        return NULL;
    }
    return stream;
}

void sim_stream_end(struct CUstream_st *stream)
{
    if (stream->beside)
        sim_stream_end(stream->beside);
    sim_capture_forget_stream(stream);
    sim_object_remove(stream);
    stream->destroyed = true;
    if (stream->has_worker)
        pthread_cond_signal(&stream->ready);
    else
        free_stream(stream);
}

void sim_stream_end_context(struct CUctx_st *context)
{
    struct sim_link *at = context->streams.next;

    while (at != &context->streams) {
        struct CUstream_st *stream = LIST_ITEM(at, struct CUstream_st, link);

        at = at->next;
        if (stream->destroyed)
            continue;
        sim_stream_end(stream);
        at = context->streams.next; /* start over: the stream beside it may be deleted as well */
    }
    context->legacy = NULL;
}

/* Finds the thread's per-thread default stream in a context, and makes it at first use. */
static CUresult per_thread(struct CUctx_st *context, struct CUstream_st **out)
{
    struct sim_link *at;

    for (at = context->streams.next; at != &context->streams; at = at->next) {
        *out = LIST_ITEM(at, struct CUstream_st, link);
        if ((*out)->owner == sim_stream_thread() && !(*out)->destroyed)
            return CUDA_SUCCESS;
    }
    *out = sim_stream_new(context, CU_STREAM_DEFAULT, 0);
    if (!*out)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->owner = sim_stream_thread();
    return CUDA_SUCCESS;
}

static CUresult find_made(CUstream handle)
{
    if (!sim_object_is(handle, OBJECT_STREAM))
        return CUDA_ERROR_INVALID_HANDLE;
    return handle->green && !handle->green->alive ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult sim_stream_find(CUstream handle, struct CUstream_st **out)
{
    struct CUctx_st *context;
    CUresult result;

    if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        *out = handle;
        return find_made(handle);
    }
    result = sim_context_current_itself(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == CU_STREAM_PER_THREAD && context->base)
        return CUDA_ERROR_INVALID_HANDLE; /* a green context has none, as cuda.h says */
    if (handle == CU_STREAM_PER_THREAD)
        return per_thread(context, out);
    *out = context->legacy;
    return CUDA_SUCCESS;
}
