/* How a text of some length is divided: training windows in its first part, validation windows in the rest.
 * Pure arithmetic; every window with the byte behind it lies inside its own part. */
#ifndef HARNESS_TEXT_H
#define HARNESS_TEXT_H

#include "harness/data/dataset.h"
#include "harness/base/rng.h"

struct text_layout {
    uint64_t length;             /* of a window, without the byte behind it */
    uint64_t begin[DATA_SPLITS]; /* first byte */
    uint64_t end[DATA_SPLITS];   /* behind the last */
    uint64_t count[DATA_SPLITS]; /* windows of an epoch; 0 where the part is too short */
};

static inline struct text_layout text_divide(uint64_t bytes, uint64_t length, double validation)
{
    struct text_layout layout = {.length = length};
    uint64_t border = bytes - (uint64_t)((double)bytes * validation);

    border = border > bytes ? bytes : border;
    layout.end[DATA_TRAIN] = border;
    layout.begin[DATA_VALIDATION] = border;
    layout.end[DATA_VALIDATION] = bytes;
    for (int i = 0; i < DATA_SPLITS; i++) {
        uint64_t part = layout.end[i] - layout.begin[i];

        layout.count[i] = part > length ? (part - 1) / length : 0;
    }
    return layout;
}

/* Where a window starts: index < count of the split. */
static inline uint64_t text_window(const struct text_layout *layout, enum data_split split, uint64_t index,
                                   struct rng *rng)
{
    uint64_t starts = layout->end[split] - layout->begin[split] - layout->length;

    if (split == DATA_VALIDATION)
        return layout->begin[split] + index * layout->length;
    return layout->begin[split] + rng_below(rng, starts);
}

#endif
