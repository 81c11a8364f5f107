/* nvtx_abi: the part of NVTX's binary interface that an injected library uses (nvtx3/nvtxDetail/nvtxTypes.h
 * and nvtx3/nvToolsExt.h in NVIDIA's words). Frozen since NVTX 3. */
#ifndef GPUCAP_NVTX_ABI_H
#define GPUCAP_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

enum { NVTX_CALLBACKS = 1 };                                    /* NvtxExportTableID */
enum { NVTX_CORE = 1, NVTX_CORE2 = 5 };                         /* NvtxCallbackModule */
enum { NVTX_ASCII = 1, NVTX_UNICODE = 2, NVTX_REGISTERED = 3 }; /* nvtxMessageType_t */
enum {                                                          /* NvtxCallbackIdCore */
       NVTX_RANGE_PUSH_EX = 8,
       NVTX_RANGE_PUSH_A,
       NVTX_RANGE_PUSH_W,
       NVTX_RANGE_POP
};
enum { /* NvtxCallbackIdCore2 */
       NVTX_DOMAIN_RANGE_PUSH_EX = 4,
       NVTX_DOMAIN_RANGE_POP = 5,
       NVTX_DOMAIN_REGISTER_STRING_A = 10,
       NVTX_DOMAIN_REGISTER_STRING_W,
       NVTX_DOMAIN_CREATE_A,
       NVTX_DOMAIN_CREATE_W
};

typedef void (*nvtx_function)(void);
typedef const void *(*nvtx_get_export_table)(uint32_t id);

/* NvtxExportTableCallbacks. A table is an array of addresses of function pointers. */
struct nvtx_callbacks {
    size_t struct_size;
    int (*get_module_function_table)(int module, nvtx_function ***table, unsigned *size);
};

/* nvtxEventAttributes_t */
struct nvtx_event {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;
        const wchar_t *unicode;
        const void *registered;
    } message;
};

#endif
