/* recording_frames: see recording_frames.h. */
#include "recording_frames.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_start(const void *a, const void *b)
{
    const struct frames_module *x = a, *y = b;

    return (x->start > y->start) - (x->start < y->start);
}

bool frames_open(struct frames *frames, const struct recording *recording)
{
    frames->count = 0;
    frames->modules = calloc(recording->modules.count + 1, sizeof *frames->modules);
    if (!frames->modules)
        return false;
    for (size_t i = 0; i < recording->modules.count; i++) {
        struct frames_module *module = &frames->modules[frames->count];
        const char *text = recording->modules.entries[i].text;
        int path = 0;

        if (sscanf(text, "%" SCNx64 " %" SCNx64 " %" SCNx64 " %n", &module->start, &module->end,
                   &module->offset, &path) < 3 ||
            !path || module->end <= module->start)
            continue;
        module->path = text + path;
        frames->count++;
    }
    qsort(frames->modules, frames->count, sizeof *frames->modules, by_start);
    return true;
}

void frames_close(struct frames *frames)
{
    free(frames->modules);
    frames->modules = NULL;
    frames->count = 0;
}

const char *frames_text(const struct frames *frames, uint64_t address, char text[FRAMES_TEXT])
{
    size_t low = 0, high = frames->count;

    while (low < high) { /* the last module that begins at or before the address */
        const size_t middle = low + (high - low) / 2;

        if (frames->modules[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    const struct frames_module *module = low ? &frames->modules[low - 1] : NULL;
    if (!module || address >= module->end) {
        snprintf(text, FRAMES_TEXT, "0x%" PRIx64, address);
        return text;
    }
    const char *name = strrchr(module->path, '/');
    snprintf(text, FRAMES_TEXT, "%.150s+0x%" PRIx64, name ? name + 1 : module->path,
             address - module->start + module->offset);
    return text;
}
