/* dlsym, dlvsym, dlopen and dlmopen: ask a function of ours (resolve.h, rebind.h), with the caller's return address as
 * its fourth argument; unless it has done the whole call, jump (not call) to the real function, so that it sees the
 * return address of our caller. Nothing is left on the stack at that point. */

#if defined(__x86_64__)

#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

.macro TRAMPOLINE name, ask, real, third
        .globl  \name
        .type   \name, @function
\name:
        .cfi_startproc
        _CET_ENDBR
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        .if \third == 0               /* it has no third argument */
        xorl    %edx, %edx
        .endif
        movq    24(%rsp), %rcx          /* who asks */
        call    \ask
        testq   %rdx, %rdx
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jnz     1f
        jmpq    *\real(%rip)
1:      ret
        .cfi_endproc
        .size   \name, . - \name
.endm

#elif defined(__aarch64__)

.macro TRAMPOLINE name, ask, real, third
        .globl  \name
        .type   \name, %function
\name:
        .cfi_startproc
        hint    #34                     /* bti c */
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset 29, -48
        .cfi_offset 30, -40
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        .if \third == 0               /* it has no third argument */
        mov     x2, xzr
        .endif
        mov     x3, x30                 /* who asks */
        bl      \ask
        cbnz    x1, 1f
        ldp     x0, x1, [sp, #16]
        ldr     x2, [sp, #32]
        ldp     x29, x30, [sp], #48
        .cfi_remember_state
        .cfi_def_cfa_offset 0
        .cfi_restore 29
        .cfi_restore 30
        adrp    x16, \real
        ldr     x16, [x16, #:lo12:\real]
        br      x16
        .cfi_restore_state
1:      ldp     x29, x30, [sp], #48
        .cfi_def_cfa_offset 0
        .cfi_restore 29
        .cfi_restore 30
        ret
        .cfi_endproc
        .size   \name, . - \name
.endm

#else
#error "gpucap knows x86_64 and aarch64"
#endif

        .hidden resolve_look_up
        .hidden real_dlsym
        .hidden real_dlvsym
        .hidden real_dlopen
        .hidden real_dlmopen
        .hidden rebind_dlopen
        .hidden rebind_dlmopen
        .text
        .p2align 4
        TRAMPOLINE dlsym, resolve_look_up, real_dlsym, 0
        .p2align 4
        TRAMPOLINE dlvsym, resolve_look_up, real_dlvsym, 1
        .p2align 4
        TRAMPOLINE dlopen, rebind_dlopen, real_dlopen, 0
        .p2align 4
        TRAMPOLINE dlmopen, rebind_dlmopen, real_dlmopen, 1

        .section .note.GNU-stack, "", %progbits
