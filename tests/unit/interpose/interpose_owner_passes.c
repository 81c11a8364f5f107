/* interpose_owner_passes: a library that only passes a call on, as libcudart and libffi do. */
#include "interpose_owner_passes.h"

int owner_passes(int (*next)(void *argument), void *argument)
{
    return next(argument) + 1; /* no jump: the return address stays on the stack */
}

/* Leaves several return addresses on the stack. */
__attribute__((noinline)) static int call_inside(int (*call)(void), int depth)
{
    const int result = depth ? call_inside(call, depth - 1) : call();

    __asm__ volatile("" : : "r"(result)); /* no jump here either */
    return result;
}

int owner_passes_last(void *hook)
{
    int (*call)(void) = NULL;

    *(void **)&call = hook;
    return call_inside(call, 6) + 1;
}
