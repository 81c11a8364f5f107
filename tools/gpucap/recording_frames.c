/* recording_frames: see recording_frames.h. */
#include "tools/gpucap/recording_frames.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_start(const void *a, const void *b)
{
    const struct frames_module *x = a, *y = b;

    return (x->start > y->start) - (x->start < y->start);
}

/* Returns the entry of a file, one for all its mappings. */
static int file_of(struct frames *frames, const char *path)
{
    for (int i = frames->file_count - 1; i >= 0; i--) {
        if (frames->files[i].path && !strcmp(frames->files[i].path, path))
            return i;
    }
    frames->files[frames->file_count].path = path;
    return frames->file_count++;
}

bool frames_open(struct frames *frames, const struct recording *recording)
{
    memset(frames, 0, sizeof(*frames));
    frames->recorded_ns = recording->head.began_unix_ns;
    frames->modules = calloc(recording->modules.count + 1, sizeof(*frames->modules));
    frames->files = calloc(recording->modules.count + 1, sizeof(*frames->files));
    if (!frames->modules || !frames->files) {
        frames_close(frames);
        return false;
    }
    for (size_t i = 0; i < recording->modules.count; i++) {
        struct frames_module *module = &frames->modules[frames->count];
        const char *text = recording->modules.entries[i].text;
        int path = 0;

        if (sscanf(text, "%" SCNx64 " %" SCNx64 " %" SCNx64 " %n", &module->start, &module->end,
                   &module->offset, &path) < 3 ||
            !path || module->end <= module->start)
            continue;
        module->path = text + path;
        module->file = file_of(frames, module->path);
        frames->count++;
    }
    qsort(frames->modules, frames->count, sizeof(*frames->modules), by_start);
    return true;
}

void frames_close(struct frames *frames)
{
    for (int i = 0; i < frames->file_count; i++)
        functions_close(&frames->files[i].functions);
    free(frames->files);
    free(frames->modules);
    memset(frames, 0, sizeof(*frames));
}

/* Looks up the byte before the return address: the address may already be in the next function. */
static bool find_function(struct frames *frames, const struct frames_module *module, uint64_t offset,
                          char name[FUNCTIONS_NAME])
{
    struct frames_file *file = &frames->files[module->file];

    if (!file->looked)
        functions_open(&file->functions, file->path, frames->recorded_ns);
    file->looked = true;
    return file->functions.count && functions_find(&file->functions, offset - 1, name);
}

static const struct frames_module *module_of(const struct frames *frames, uint64_t address)
{
    size_t low = 0, high = frames->count;

    while (low < high) { /* the last module that begins at or before the address */
        const size_t middle = low + (high - low) / 2;

        if (frames->modules[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low && address < frames->modules[low - 1].end ? &frames->modules[low - 1] : NULL;
}

const char *frames_path(const struct frames *frames, uint64_t address)
{
    const struct frames_module *module = module_of(frames, address);

    return module ? module->path : "";
}

const char *frames_text(struct frames *frames, uint64_t address, char text[FRAMES_TEXT])
{
    const struct frames_module *module = module_of(frames, address);

    if (!module) {
        snprintf(text, FRAMES_TEXT, "0x%" PRIx64, address);
        return text;
    }
    const char *base = strrchr(module->path, '/');
    const uint64_t offset = address - module->start + module->offset;
    char name[FUNCTIONS_NAME];
    base = base ? base + 1 : module->path;
    if (find_function(frames, module, offset, name))
        snprintf(text, FRAMES_TEXT, "%s (%.60s)", name, base);
    else
        snprintf(text, FRAMES_TEXT, "%.150s+0x%" PRIx64, base, offset);
    return text;
}

bool frames_is_runtime(const char *text)
{
    return strstr(text, "libcudart") || strstr(text, "libcuda.so") || strstr(text, "libgpucap");
}
