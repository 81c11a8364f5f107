/* Divides a text into windows: those for training in its first part, those for validation in the rest. A
 * window and the byte after it are within one part. Pure arithmetic. */
#ifndef HARNESS_TEXT_H
#define HARNESS_TEXT_H

#include "harness/data/dataset.h"
#include "harness/base/rng.h"

struct text_layout {
    uint64_t length;             /* of a window, without the byte after it */
    uint64_t begin[DATA_SPLITS]; /* first byte */
    uint64_t end[DATA_SPLITS];   /* one past the last byte */
    uint64_t count[DATA_SPLITS]; /* windows in an epoch; 0 if the part is too short */
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

/* Returns where a window starts: random in training, the index-th in validation. `index` is below the
 * split's count. */
static inline uint64_t text_window(const struct text_layout *layout, enum data_split split, uint64_t index,
                                   struct rng *rng)
{
    uint64_t starts = layout->end[split] - layout->begin[split] - layout->length;

    if (split == DATA_VALIDATION)
        return layout->begin[split] + index * layout->length;
    return layout->begin[split] + rng_below(rng, starts);
}

#endif
