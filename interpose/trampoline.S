/* dlsym and dlvsym: ask resolve_look_up; if the name is not ours, jump (not call) to the real function, so that it
 * sees the return address of our caller. Nothing is left on the stack at that point. */

#if defined(__x86_64__)

#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

.macro TRAMPOLINE name, real, version
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
        .if \version == 0
        xorl    %edx, %edx
        .endif
        movq    24(%rsp), %rcx          /* who asks */
        call    resolve_look_up
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

.macro TRAMPOLINE name, real, version
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
        .if \version == 0
        mov     x2, xzr
        .endif
        mov     x3, x30                 /* who asks */
        bl      resolve_look_up
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
        .hidden resolve_real_dlsym
        .hidden resolve_real_dlvsym
        .text
        .p2align 4
        TRAMPOLINE dlsym, resolve_real_dlsym, 0
        .p2align 4
        TRAMPOLINE dlvsym, resolve_real_dlvsym, 1

        .section .note.GNU-stack, "", %progbits
