/* PyTorch's names and layouts of a model's parameters: the names of torchvision's ResNets, of GPT-2, and of
 * plain modules for the rest (docs/train.md has the list). Pure. */
#ifndef HARNESS_NAMES_H
#define HARNESS_NAMES_H

#include "harness/base/train_options.h"
#include "harness/model/model.h"

enum { NAMES_BYTES = 96, NAMES_DIMS = 4 };

struct names_entry {
    char name[NAMES_BYTES];
    int dims, shape[NAMES_DIMS]; /* PyTorch's */
    /* A row of ours is [positions][channels], a row of PyTorch's is [channels][positions]: filters, and the
     * weights behind a flattened picture. One position: both are the same. */
    int positions, channels;
};

/* Fills one entry for each parameter of a model that was built with these options. Fails if the description
 * here does not fit the network as it was built. */
enum status names_make(const struct model *model, const struct train_options *options,
                       struct names_entry *entries);

/* Copies a parameter's values from our layout to PyTorch's, or back. `rows`: how many rows it has. */
void names_to_torch(const struct names_entry *entry, int rows, const float *ours, float *theirs);
void names_from_torch(const struct names_entry *entry, int rows, const float *theirs, float *ours);

#endif
