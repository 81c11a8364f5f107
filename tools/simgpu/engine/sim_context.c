/* sim_context: the list of contexts, and which one is current to a thread. See sim_context.h. */
#include "tools/simgpu/engine/sim_context.h"

#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"

#include <stdio.h>
#include <stdlib.h>

/* Contexts pushed by one thread. The driver has no such limit, but programs use two. */
#define STACK_DEPTH 64

static struct sim_link all = {&all, &all};
static _Thread_local struct CUctx_st *stack[STACK_DEPTH];
static _Thread_local unsigned int depth;

struct sim_link *sim_context_all(void)
{
    return &all;
}

struct CUctx_st *sim_context_base(struct CUctx_st *context)
{
    return context->base ? context->base : context;
}

CUresult sim_context_current_itself(struct CUctx_st **out)
{
    if (depth == 0 || !stack[depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = stack[depth - 1];
    return (*out)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_context_current(struct CUctx_st **out)
{
    CUresult result = sim_context_current_itself(out);

    if (result != CUDA_ERROR_INVALID_CONTEXT)
        *out = sim_context_base(*out);
    return result;
}

bool sim_context_is_valid(CUcontext context)
{
    return sim_object_is(context, OBJECT_CONTEXT) && context->alive;
}

/* A real driver may crash if a context is used while it is destroyed. simgpu always aborts, so that a test
 * finds it. Lock held. */
void sim_context_must_stay(CUcontext context)
{
    for (struct sim_link *at = all.next; at != &all; at = at->next) {
        const struct CUctx_st *known = LIST_ITEM(at, struct CUctx_st, all);

        if (known == context && known->ending) {
            fputs("simgpu: a context is used while it is being destroyed\n", stderr);
            abort();
        }
    }
}

CUresult sim_context_check_current(void)
{
    struct CUctx_st *context;

    SIM_LOCKED();
    return sim_context_current(&context);
}

/* ---- the stack of a thread ---- */

bool sim_context_has_room(void)
{
    return depth < STACK_DEPTH;
}

void sim_context_enter(struct CUctx_st *context)
{
    stack[depth++] = context;
}

void sim_context_leave(const struct CUctx_st *context)
{
    if (depth > 0 && stack[depth - 1] == context)
        depth--;
}

CUresult sim_context_push(CUcontext context)
{
    SIM_LOCKED();
    sim_context_must_stay(context);
    if (!sim_object_is(context, OBJECT_CONTEXT))
        return context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    if (depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult sim_context_pop(CUcontext *out)
{
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (out)
        *out = stack[depth];
    return CUDA_SUCCESS;
}

CUresult sim_context_set(CUcontext context)
{
    if (!context) {
        if (depth > 0)
            depth--;
        return CUDA_SUCCESS;
    }
    SIM_LOCKED();
    if (!sim_object_is(context, OBJECT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth > 0 ? depth - 1 : depth++] = context;
    return CUDA_SUCCESS;
}

CUresult sim_context_get(CUcontext *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = depth > 0 ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}
