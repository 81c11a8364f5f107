/* The floating point operations that a model needs, counted from its layers: those of convolutions, dense
 * layers and attention, two for each multiply-add. The rest (norms, activations, biases, the update) is left
 * out, as is usual for a share of the card's peak. Counts the necessary operations, not those executed: of a
 * causal attention the half that is not masked, and recomputation (--checkpoint-activations) not at all.
 * Pure. */
#ifndef HARNESS_FLOPS_H
#define HARNESS_FLOPS_H

#include "harness/model/model.h"

struct flops {
    uint64_t forward;
    uint64_t backward; /* twice as many, except for a layer whose input needs no gradient */
};

/* Returns those of one sample; `length` tokens of it, where there are tokens. */
struct flops flops_of_sample(const struct model *model, int length);

#endif
