/* stacks: the words of a thread's stack, and call stacks, each kept once, by frame pointers.
 *
 * Functions that keep no frame pointer are passed over or end the stack; nothing outside of the thread's
 * stack is ever read. Owns one lock, held while a stack is seen for the first time.
 */
#ifndef GPUCAP_STACKS_H
#define GPUCAP_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STACKS_FRAMES 32    /* return addresses of a stack */
#define STACKS_MAX    16384 /* different stacks; later ones are not kept */

/* The stack of the calling thread from a place below the hook's frame, as far as it may be read. */
struct stack {
    const uint64_t *words;
    size_t count;
};

/* Returns a word of the stack, or 0 behind its end. Unsanitized: it reads other functions' frames. */
__attribute__((no_sanitize("address", "thread"))) static inline uint64_t stack_word(struct stack stack,
                                                                                    size_t index)
{
    return index < stack.count ? *(const volatile uint64_t *)&stack.words[index] : 0;
}

/* Returns the number of the calling thread's call stack, from the hook's return address outwards; 0: none.
 * `caller` is the return address of the library that called the hook, where that was found, else 0.
 * `is_return` says whether a word is a return address. */
uint32_t stacks_take(struct stack stack, uint64_t return_address, uint64_t caller,
                     bool (*is_return)(uint64_t word));

/* Copies a stack, and returns how many frames it has. */
size_t stacks_read(uint32_t stack, uint64_t frames[STACKS_FRAMES]);

/* In the child of a fork. */
void stacks_after_fork(void);

#endif
