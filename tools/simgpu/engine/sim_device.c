/* sim_device: the devices of this process. See sim_device.h. */
#include "tools/simgpu/engine/sim_device.h"

#include "tools/simgpu/engine/sim_card_spec.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_device devices[CARD_MAX_DEVICES];
static int count;

int sim_device_count(void)
{
    return count;
}

struct sim_device *sim_device_get(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < count ? &devices[ordinal] : NULL;
}

CUdevice sim_device_by_card(int card)
{
    CUdevice i;

    for (i = 0; i < count; i++)
        if (devices[i].card == card)
            return i;
    return -1;
}

const struct sim_card_info *sim_device_info(CUdevice ordinal)
{
    return sim_card_info(devices[ordinal].card);
}

/* Returns the only card whose UUID begins with this text, or -1 if there is none or more than one. */
static int card_by_uuid(const char *text, size_t length)
{
    char uuid[CARD_UUID_TEXT];
    int card, found = -1;

    for (card = 0; card < sim_card_count(); card++) {
        sim_card_spec_uuid_text(sim_card_info(card), uuid);
        if (strncasecmp(uuid, text, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = card;
    }
    return found;
}

static int card_by_entry(const char *text, size_t length)
{
    char *end;
    long index;

    if (length >= 4 && (strncasecmp(text, "GPU-", 4) == 0 || strncasecmp(text, "MIG-", 4) == 0))
        return card_by_uuid(text, length);
    if (length == 0 || !isdigit((unsigned char)text[0]))
        return -1;
    errno = 0;
    index = strtol(text, &end, 10);
    if (errno || end != text + length || index >= sim_card_count())
        return -1;
    return (int)index;
}

static bool already_listed(int card)
{
    int i;

    for (i = 0; i < count; i++)
        if (devices[i].card == card)
            return true;
    return false;
}

/* As CUDA does: the list ends at the first entry that names no card; a card named twice ends it too. */
static void enumerate_listed(const char *list)
{
    while (count < CARD_MAX_DEVICES) {
        size_t skip = strspn(list, " "), length;
        int card;

        list += skip;
        length = strcspn(list, ", ");
        card = card_by_entry(list, length);
        if (card < 0 || already_listed(card))
            return;
        devices[count++].card = card;
        list += length;
        list += strspn(list, " ");
        if (*list != ',')
            return;
        list++;
    }
}

bool sim_device_enumerate(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");

    count = 0;
    if (list)
        enumerate_listed(list);
    else
        while (count < sim_card_count()) {
            devices[count].card = count;
            count++;
        }
    return count > 0;
}

void sim_device_bus_id(CUdevice ordinal, char *text, size_t size)
{
    snprintf(text, size, "0000:%02X:00.0", devices[ordinal].card + 1);
}
