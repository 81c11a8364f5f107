/* sim_nvml_device: the list of cards, their names and attributes. NVML shows all cards of the machine,
 * independent of CUDA_VISIBLE_DEVICES. The PCI address is made from the index: bus index + 1 in domain 0. No
 * lock.
 */
#include "tools/simgpu/nvml/sim_nvml_session.h"
#include "tools/simgpu/engine/sim_card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEVICE_NAME      "simgpu"
#define COMPUTE_MAJOR    9 /* the H200 that simgpu imitates */
#define COMPUTE_MINOR    0
#define PCI_DEVICE_ID    0x233510deu
#define PCI_SUBSYSTEM_ID 0x18be10deu
#define PCI_BUS(card)    ((unsigned)(card) + 1)

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    SIM_NVML_TRY(sim_nvml_session_check());
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned)sim_card_count();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    SIM_NVML_TRY(sim_nvml_session_check());
    if (!device || index >= (unsigned)sim_card_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = sim_nvml_session_handle((int)index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    SIM_NVML_TRY(sim_nvml_session_check());
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < sim_card_count(); i++) {
        char text[CARD_UUID_TEXT];
        sim_card_spec_uuid_text(sim_card_info(i), text);
        if (!strcasecmp(uuid, text)) {
            *device = sim_nvml_session_handle(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned domain, bus, slot, function = 0;
    int end = 0;
    SIM_NVML_TRY(sim_nvml_session_check());
    if (!bus_id || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (sscanf(bus_id, "%8x:%2x:%2x%n.%1x%n", &domain, &bus, &slot, &end, &function, &end) < 3 || bus_id[end])
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < sim_card_count(); i++) {
        if (domain == 0 && bus == PCI_BUS(i) && slot == 0 && function == 0) {
            *device = sim_nvml_session_handle(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    int card;
    SIM_NVML_TRY(sim_nvml_session_card(device, &card));
    if (!index)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = (unsigned)card;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    return nvmlDeviceGetIndex(device, minor);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    int card;
    char text[CARD_UUID_TEXT];
    SIM_NVML_TRY(sim_nvml_session_card(device, &card));
    sim_card_spec_uuid_text(sim_card_info(card), text);
    return sim_nvml_session_text(text, uuid, length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    int card;
    nvmlReturn_t result = sim_nvml_session_card(device, &card);
    return result == NVML_SUCCESS ? sim_nvml_session_text(DEVICE_NAME, name, length) : result;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    int card;
    SIM_NVML_TRY(sim_nvml_session_card(device, &card));
    if (!pci)
        return NVML_ERROR_INVALID_ARGUMENT;
    *pci = (nvmlPciInfo_t){
        .bus = PCI_BUS(card), .pciDeviceId = PCI_DEVICE_ID, .pciSubSystemId = PCI_SUBSYSTEM_ID};
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", PCI_BUS(card) & 0xff);
    snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", PCI_BUS(card) & 0xff);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    int card;
    SIM_NVML_TRY(sim_nvml_session_card(device, &card));
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = COMPUTE_MAJOR;
    *minor = COMPUTE_MINOR;
    return NVML_SUCCESS;
}

/* simgpu does not measure utilization and always reports 0. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    int card;
    SIM_NVML_TRY(sim_nvml_session_card(device, &card));
    if (!utilization)
        return NVML_ERROR_INVALID_ARGUMENT;
    *utilization = (nvmlUtilization_t){0};
    return NVML_SUCCESS;
}
